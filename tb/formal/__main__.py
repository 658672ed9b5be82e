"""Run the proofs and print what holds: ``python -m formal [NAME ...] [--list]``."""

import argparse
import sys

from .claims import CLAIMS
from .runner import Claim, Verdict, run_covers, run_mutation, run_proof

__all__ = ["main"]

_COLUMNS = "{:<18} {:<22} {:>5}  {:<8} {:>8}  {}"


def _line(claim: Claim, what: str, verdict: Verdict, right: bool) -> bool:
    """Print a row; returns whether the verdict is the one that was wanted."""
    seconds = f"{verdict.seconds:.1f} s" + ("*" if verdict.cached else "")
    remark = "" if right else "not what is wanted: " + ", ".join(verdict.findings)
    result = {"PASS": "holds", "FAIL": "fails", "UNKNOWN": "not shown"}.get(verdict.result, verdict.result)
    print(_COLUMNS.format(claim.name, what, verdict.depth, result, seconds, remark).rstrip(), flush=True)
    return right


def _run(claim: Claim) -> bool:
    proof = run_proof(claim)
    right = [_line(claim, claim.mode, proof, proof.result == "PASS")]
    covers = run_covers(claim)
    right.append(_line(claim, "covers reached", covers, covers.result == "PASS"))
    for number, mutation in enumerate(claim.mutations, 1):
        verdict = run_mutation(claim, mutation)
        caught = verdict.result == "FAIL"
        right.append(_line(claim, f"broken copy {number}", verdict, caught))
        if not caught:
            print(f"    {mutation}")
    return all(right)


def main() -> int:
    """Run the proofs that are named, or all; the exit code is 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m formal", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="proofs to run (default: all)")
    parser.add_argument("--list", action="store_true", help="say what each proof shows, and run none")
    arguments = parser.parse_args()
    known = {claim.name: claim for claim in CLAIMS}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"NAME must be one of {', '.join(known)}, got {', '.join(unknown)}")
    chosen = [known[name] for name in arguments.names] or list(CLAIMS)
    if arguments.list:
        for claim in chosen:
            print(f"{claim.name:<18} {claim.mode}: {claim.shows}")
        return 0
    print(_COLUMNS.format("proof", "mode", "depth", "result", "time", "").rstrip())
    results = [_run(claim) for claim in chosen]
    print("* an earlier run on the same inputs")
    print(
        f"{sum(results)} of {len(results)} proofs hold, with all covers reached and all broken copies refused"
    )
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
