"""The bench of the model's speed measures what it says.

Sweep: none.
Stimulus: 2 MB for each of 8 NICs on F.
Checks: it ends, every byte right, and gives a rate; how high it is, is not asserted.
Timing: none.
"""

from mrc_host.benches.model_speed import f_experiment, measure
from mrc_host.experiment.load import parse_experiment
from mrc_host.experiment.lockstep import PARTS


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


def test_the_bench_counts_data_packets_and_the_time_of_the_parts():
    speed = measure(8, 2)
    assert speed.data_packets == 8 * -(-2_000_000 // 4096)
    assert speed.packets > speed.data_packets
    assert speed.data_packets_per_second > 0
    assert set(speed.parts) == set(PARTS) and 0 < sum(speed.parts.values()) <= speed.seconds
