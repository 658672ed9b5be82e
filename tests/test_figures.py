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
    "pipelines": {"pick": {"fmax_mhz": 136.54, "critical_path": "e to f"}},
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
    assert "| pick | 136.5 | e to f |" in text
    assert "| bind | 1,234 | 5 | 1 |" in text
    assert "777" not in text
    assert "| `codec_packets_per_second` | 31,000.5 | 1/s | decode and encode |" in text


def test_the_speed_of_the_model_stands_beside_that_of_the_public_simulator():
    rates = {"model_packets_per_second_8x4": 120_000.0, "model_packets_per_second_8x4_plain": 12_000.0}
    shares = {"nics": 0.6, "fabric": 0.25, "handover": 0.1, "software": 0.05}
    names = {**rates, **{f"model_share_{part}_8x4": share for part, share in shares.items()}}
    bench = {name: {"value": value, "unit": "1", "definition": name} for name, value in names.items()}
    row = "| 8 | 120,000 | 12,000 | 10.0 | 180,000 to 305,000 | 60% / 25% / 10% / 5% |"
    assert row in page(None, bench)
    assert "Speed of the golden model" not in page(None, BENCH)


def test_what_was_not_measured_is_left_out():
    assert "nox -s bench" not in page(SYNTHESIS, None)
    assert "LFE5U" not in page(None, BENCH)
