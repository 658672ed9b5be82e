"""All kinds of workload; each module registers its kinds when it is imported."""

from mrc_host.experiment.workload import WORKLOADS
from mrc_host.experiment.workloads import arrivals, collectives, incast, trace

__all__ = ["WORKLOADS", "arrivals", "collectives", "incast", "trace"]
