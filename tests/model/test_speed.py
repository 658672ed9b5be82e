"""The bench of the model's speed measures what it says.

Sweep: none.
Stimulus: 2 MB for each of 8 NICs on F.
Checks: it ends, every byte right, and gives a rate; how high it is, is not asserted.
Timing: none.
"""

from mrc_host.benches.model_speed import f_experiment, model_packets_per_second
from mrc_host.experiment.load import parse_experiment


def test_the_bench_runs_the_configuration_f():
    experiment = parse_experiment(f_experiment(8, 2))
    config, topology = experiment.nic.config(), experiment.topology()
    assert (topology.hosts, topology.planes, config.mpr_psns, config.evs, config.mtu) == (
        8,
        4,
        256,
        128,
        4096,
    )
    assert model_packets_per_second(8, 2) > 0
