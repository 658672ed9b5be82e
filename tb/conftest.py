"""Options and fixtures of the benches."""

import shutil
from pathlib import Path

import find_libpython
import pytest

from runner import LIMIT_SECONDS, Simulation


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options a bench run understands."""
    group = parser.getgroup("benches")
    group.addoption(
        "--sim", choices=["verilator", "icarus"], default="verilator", help="simulator of the benches"
    )
    group.addoption("--seed", type=int, default=1, help="seed of stimulus and power-up contents")
    group.addoption("--waves", action="store_true", help="record signal traces beside each log")
    group.addoption("--coverage-to", type=Path, help="count lines and toggles into this folder (Verilator)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let pytest wait as long as the slower simulator may take."""
    if config.getoption("--sim") == "icarus":
        for item in items:
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS["icarus"] + 300))


@pytest.fixture
def simulation(request: pytest.FixtureRequest, tmp_path: Path) -> Simulation:
    """Return how to simulate; skip the test if the chosen simulator is missing."""
    if find_libpython.find_libpython() is None:
        pytest.fail(
            "cocotb needs Python as a shared library, which is missing: apt-get install libpython3-dev",
            pytrace=False,
        )
    simulator = request.config.getoption("--sim")
    if simulator == "icarus" and shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog (iverilog) is not installed: apt-get install iverilog")
    return Simulation(
        simulator=simulator,
        seed=request.config.getoption("--seed"),
        results=tmp_path,
        waves=request.config.getoption("--waves"),
        coverage=request.config.getoption("--coverage-to"),
    )
