"""The page of measured figures.

Stimulus: made-up results, both, one, none. Checks: every figure of the input is on the page, with its unit
and goal; what is absent is left out; modules below the first level are not listed.
"""

from mrc_host.figures import page

SYNTHESIS = {
    "lut4": {"value": 12345, "unit": "LUT4", "definition": "whole engine"},
    "block_ram": {"value": 35, "unit": "DP16KD", "definition": "memories"},
    "fmax_mhz": {"value": 71.25, "unit": "MHz", "definition": "median over the seeds"},
    "seeds": [1, 2],
    "fmax_mhz_all_seeds": [70.0, 71.25],
    "critical_paths": ["a to b", "c to d"],
    "modules": {
        "top": {"lut4": 9, "ff": 8, "block_ram": 7},
        "top.bind": {"lut4": 1234, "ff": 5, "block_ram": 1},
        "top.bind.pick": {"lut4": 777, "ff": 1, "block_ram": 0},
    },
}
BENCH = {"codec_packets_per_second": {"value": 31000.5, "unit": "1/s", "definition": "decode and encode"}}


def test_every_figure_is_on_the_page():
    text = page(SYNTHESIS, BENCH)
    assert "| whole engine | 12,345 LUT4 | at most 15,000, aim 12,000 |" in text
    assert "| memories | 35 DP16KD | at most 36 |" in text
    assert "| median over the seeds | 71.2 MHz | at least 50, aim 80 |" in text
    assert "- seed 2: 71.2 MHz; critical path c to d" in text
    assert "| bind | 1,234 | 5 | 1 |" in text
    assert "777" not in text
    assert "| `codec_packets_per_second` | 31,000.5 | 1/s | decode and encode |" in text


def test_what_was_not_measured_is_left_out():
    assert "nox -s bench" not in page(SYNTHESIS, None)
    assert "LFE5U" not in page(None, BENCH)
