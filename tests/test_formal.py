"""The machinery of the proofs: right and wrong claims, covers that nothing reaches, broken copies.

Sweep: every registered proof; small proofs made for this test.
Stimulus: a counter with true, false and idle claims; the ledger and a broken copy of it.
Checks: what the solvers say, that the verdict is kept, that every mutation still finds its text, that every
proof is explained in docs/formal.md.
Timing: bounded.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover, Module, Signal

import formal.runner
from formal.claims import CLAIMS
from formal.mutation import Mutation, mutated
from formal.proof import Proof
from formal.runner import Claim, run_covers, run_mutation, run_proof
from formal.sizes import ProofConfig
from mrc_rtl.responder import buffer_ledger

ROOT = Path(__file__).parent.parent
BY_NAME = {claim.name: claim for claim in CLAIMS}


class Counter(Proof):
    """Counts to a limit when it may; ``bound`` is claimed, ``allowed`` says whether it may."""

    def __init__(self, bound: int, allowed: bool = True) -> None:
        super().__init__(ProofConfig())
        self.bound, self.allowed = bound, allowed

    def describe(self, m: Module) -> None:
        count, step = Signal(4), AnySeq(1)
        with m.If(step & (count < 5)):
            m.d.sync += count.eq(count + 1)
        m.d.comb += [Assert(count <= self.bound), Cover(count == 5)]
        if not self.allowed:
            m.d.comb += Assume(~step)


def claim(make: Callable[[], Proof], mode: str = "induction") -> Claim:
    return Claim(name="counter", shows="", make=make, mode=mode, depth=8, cover_depth=8, mutations=())


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("mode", ["induction", "bounded"])
def test_a_true_claim_holds_and_a_false_one_fails(own_cache: None, mode: str) -> None:
    assert run_proof(claim(lambda: Counter(5), mode)).result == "PASS"
    false = run_proof(claim(lambda: Counter(4), mode))
    assert false.result == "FAIL"
    assert false.findings and "test_formal.py" in false.findings[0]


def test_a_bounded_proof_says_nothing_beyond_its_depth(own_cache: None) -> None:
    assert run_proof(claim(lambda: Counter(3), "bounded"), depth=3).result == "PASS"
    assert run_proof(claim(lambda: Counter(3), "bounded"), depth=8).result == "FAIL"


def test_a_claim_under_assumptions_that_nothing_meets_is_seen(own_cache: None) -> None:
    idle = claim(lambda: Counter(0, allowed=False), "bounded")
    assert run_proof(idle).result == "PASS"
    assert run_covers(idle).result == "FAIL"
    assert run_covers(claim(lambda: Counter(5))).result == "PASS"


def test_a_verdict_is_kept(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_proof(claim(lambda: Counter(5)))
    assert not first.cached

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the solver must not be called again")

    monkeypatch.setattr(formal.runner.subprocess, "run", refuse)
    again = run_proof(claim(lambda: Counter(5)))
    assert again.cached and again.result == first.result
    with pytest.raises(AssertionError, match="must not be called"):
        run_proof(claim(lambda: Counter(6)))


def test_the_ledger_is_proved_and_its_broken_copies_are_refused() -> None:
    ledger = BY_NAME["ledger"]
    assert run_proof(ledger).result == "PASS"
    assert [run_mutation(ledger, mutation).result for mutation in ledger.mutations] == ["FAIL"] * 2


@pytest.mark.parametrize("name", BY_NAME)
def test_every_proof_has_broken_copies_that_can_be_made(name: str) -> None:
    assert BY_NAME[name].mutations
    for mutation in BY_NAME[name].mutations:
        with mutated(mutation):
            BY_NAME[name].make().elaborate(None)


def test_a_mutation_ends_with_its_block() -> None:
    original = buffer_ledger.BufferLedger
    with mutated(BY_NAME["ledger"].mutations[0]):
        assert buffer_ledger.BufferLedger is not original
    assert buffer_ledger.BufferLedger is original


def test_a_mutation_whose_text_is_gone_says_so() -> None:
    with pytest.raises(LookupError, match="must hold 'no such text' once, holds it 0 times"):
        with mutated(Mutation("responder.buffer_ledger", "no such text", "")):
            pass


def test_the_page_names_every_proof() -> None:
    page = (ROOT / "docs/formal.md").read_text()
    assert [name for name in BY_NAME if f"`{name}`" not in page] == []
