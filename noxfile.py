"""The sessions of the project. `nox -l` lists them, `nox -s NAME -- ARGUMENTS` runs one.

Every session runs in the environment nox itself is in, which `make install` made: installing the tools
again for each session would take minutes and hundreds of megabytes.
"""

import os
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests", "tb"]
nox.options.error_on_external_run = False

PYTHON = sys.executable
RUNS = Path("runs")
QUICKSTART = "experiments/quickstart.yaml"
GENERATORS = ["mrc_rtl.registers"]
"""Modules that write a file of the repository: `--write` makes it, `--check` fails when it is not current."""

COMPILE = [PYTHON, "-m", "mrc_host.compiler"]
"""Compiles the model when its source has changed, or says why it runs as plain Python."""

PYTEST = [PYTHON, "-m", "pytest", "--quiet", "-n", "2"]
"""Two workers: a simulation keeps one core busy, and machines with two cores are common."""


@nox.session
def sim(session: nox.Session) -> None:
    """Run the quickstart experiment on simulated RTL NICs and say where its report is."""
    before = set(RUNS.glob("*/report.html"))
    session.run(PYTHON, "-m", "mrc_host", "run", QUICKSTART, *session.posargs)
    for report in sorted(set(RUNS.glob("*/report.html")) - before):
        session.log(f"Open the report in a browser: {report.resolve()}")


@nox.session
def tests(session: nox.Session) -> None:
    """Test packets, fabric, drivers, experiments and what crosses layers, with the model compiled."""
    session.run(*COMPILE)
    session.run(*PYTEST, "tests", *session.posargs)


@nox.session
def tb(session: nox.Session) -> None:
    """Run the benches of every gateware block (-- --sim icarus for the second simulator)."""
    session.run(*PYTEST, "tb", *session.posargs)


@nox.session
def histories(session: nox.Session) -> None:
    """Drive MRC_HISTORIES (default 10,000) random histories through two model NICs; the tests do 300."""
    environment = {"MRC_HISTORIES": os.environ.get("MRC_HISTORIES", "10000")}
    session.run(*COMPILE)
    session.run(*PYTEST, "tests/model/test_histories.py", *session.posargs, env=environment)


@nox.session
def differential(session: nox.Session) -> None:
    """Compare gateware and model in MRC_SCENARIOS (default 500) random scenarios; the tests do 20."""
    environment = {"MRC_SCENARIOS": os.environ.get("MRC_SCENARIOS", "500")}
    session.run(*PYTEST, "tests/nic/test_differential.py", *session.posargs, env=environment)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Throw a million hostile frames (-- --frames N, --nic model) at a NIC that serves a good peer."""
    session.run(PYTHON, "tests/nic/fuzz_session.py", *session.posargs)


@nox.session
def formal(session: nox.Session) -> None:
    """Prove what docs/formal.md claims of the gateware's blocks (-- NAME to run one, -- --list)."""
    session.run(PYTHON, "-m", "formal", *session.posargs, env={"PYTHONPATH": "tb"})


@nox.session
def coverage(session: nox.Session) -> None:
    """Count branches and bits of the gateware that block tests reach (-- --engine: benches, in Verilog)."""
    engine = "--engine" in session.posargs
    arguments = [argument for argument in session.posargs if argument != "--engine"]
    session.run(PYTHON, "tb/coverage_report.py" if engine else "tb/branch_report.py", *arguments)


@nox.session
def mutants(session: nox.Session) -> None:
    """Put faults into the gateware, one at a time, and see whether its tests notice (-- --quick for four)."""
    session.run(PYTHON, "tb/mutants.py", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Send a million packets (-- --packets N) between two NICs whose fabric does anything to packets."""
    session.run(PYTHON, "tests/nic/soak_session.py", *session.posargs, env={"PYTHONPATH": "tests/nic"})


@nox.session
def schema(session: nox.Session) -> None:
    """Run an experiment for every value of every field and option, and MRC_FUZZ (500) combinations."""
    environment = {"MRC_FUZZ": os.environ.get("MRC_FUZZ", "500")}
    session.run(*PYTEST, "tests/experiment/test_schema_fuzz.py", *session.posargs, env=environment)


@nox.session
def reproduce(session: nox.Session) -> None:
    """Reproduce the published figures of claims.yaml into docs/results.md (-- --tier 2 for all seeds)."""
    session.run(*COMPILE)
    session.run(PYTHON, "-m", "mrc_host.experiment.claims", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format, and that generated files are current."""
    session.run(PYTHON, "-m", "ruff", "check", "--quiet", *session.posargs)
    session.run(PYTHON, "-m", "ruff", "format", "--check", "--quiet")
    for module in GENERATORS:
        session.run(PYTHON, "-m", module, "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of host and lab strictly."""
    session.run(PYTHON, "-m", "mypy", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed and engine efficiency, and write bench.json."""
    session.run(PYTHON, "-m", "mrc_host.bench", *session.posargs)


@nox.session
def synth(session: nox.Session) -> None:
    """Size the engine for an ECP5 against its budget and write synth.json (-- --pnr to place and route)."""
    session.run(PYTHON, "-m", "mrc_rtl.synth", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Write the generated pages again and check every link between pages."""
    for module in GENERATORS:
        session.run(PYTHON, "-m", module, "--write")
    session.run(PYTHON, "-m", "pytest", "--quiet", "tests/test_repository.py", "-k", "docs", *session.posargs)
