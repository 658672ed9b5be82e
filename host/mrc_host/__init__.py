"""Experiments, fabric, NIC drivers, packets, reports and the `mrc` command."""

from mrc_host.compiled import activate

activate()
