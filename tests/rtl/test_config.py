"""Sizes of a NIC are checked where they are given.

Sweep: every parameter of NicConfig outside its range. Checks: the message names parameter, range and value.
"""

import pytest

from mrc_rtl.config import ConfigurationError, NicConfig


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"planes": 9}, "planes must be between 1 and 8, got 9"),
        ({"data_width": 32}, "data_width must be one of 64, 128, 256, 512, got 32"),
        ({"clock_ps": 3_000}, "clock_ps must divide 128000 ps, got 3000"),
        ({"mtu": 1500}, "mtu must be one of 256, 512, 1024, 2048, 4096, got 1500"),
        ({"qps": 12}, "qps must be a power of two, got 12"),
        ({"mpr_psns": 64}, "mpr_psns must be between 128 and 4096, got 64"),
        ({"evs_per_plane": 33}, "evs_per_plane must be between 1 and 32, got 33"),
        ({"receive_buffer_bytes": 1024}, "receive_buffer_bytes must be between 2048 and 1048576, got 1024"),
        ({"address_width": 16}, "address_width must be between 32 and 64, got 16"),
    ],
)
def test_a_value_out_of_range_is_named(change, message):
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        NicConfig(**change)


@pytest.mark.parametrize("name", ["small", "quickstart", "default", "large"])
def test_named_configurations_are_valid(name):
    config = getattr(NicConfig, name)()
    assert config.cycles_per_tick * config.clock_ps == 128_000
    assert NicConfig(**config.as_dict()) == config


def test_named_sizes_are_those_of_the_profile():
    small, default, large = NicConfig.small(), NicConfig.default(), NicConfig.large()
    assert (small.planes, small.data_width, small.mtu, small.qps, small.evs) == (2, 64, 1024, 8, 64)
    assert (default.planes, default.data_width, default.qps, default.mpr_psns, default.evs) == (
        4,
        128,
        16,
        1024,
        128,
    )
    assert (large.planes, large.data_width, large.qps, large.mpr_psns, large.evs) == (8, 512, 256, 1024, 256)
    assert [c.packet_interval for c in (small, default, large)] == [16, 8, 4]
