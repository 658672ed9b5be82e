"""The rule for memories, checked on an elaborated design.

A second write port or a bit-granular write enable costs tens of thousands of LUTs on an ECP5, and a memory
wider than the data path wastes block RAM. Memories of at most :data:`DISTRIBUTED_ROWS` rows become
distributed RAM and may be of any width, but still have one write port.

Source: design, rule 11 ("One memory, one owner, one write port").
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Fragment, Shape
from amaranth.hdl._mem import MemoryInstance

from .config import NicConfig

__all__ = ["DISTRIBUTED", "DISTRIBUTED_ROWS", "MemoryFact", "memories_of", "violations"]

#: Memories with at most this many rows are mapped to distributed RAM.
DISTRIBUTED_ROWS = 32

#: Attributes of a memory with more rows that is better in LUTs: small boards run out of block RAM first.
DISTRIBUTED = {"ram_style": "distributed"}


@dataclass(frozen=True)
class MemoryFact:
    """One memory of a design.

    Parameters
    ----------
    path : str
        Instance path, parts joined by ".".
    width, depth : int
        Bits of a row and rows.
    read_ports, write_ports : int
    granularity : int
        Bits written together by one write enable.
    synchronous : bool
        Every read port is clocked.
    """

    path: str
    width: int
    depth: int
    read_ports: int
    write_ports: int
    granularity: int
    synchronous: bool


def memories_of(design: Any) -> list[MemoryFact]:
    """Every memory of a component, in the order of elaboration."""
    facts: list[MemoryFact] = []

    def walk(fragment: Fragment, path: tuple[str, ...]) -> None:
        if isinstance(fragment, MemoryInstance):
            width = Shape.cast(fragment._data.shape).width
            facts.append(
                MemoryFact(
                    path=".".join(path) or "memory",
                    width=width,
                    depth=fragment._data.depth,
                    read_ports=len(fragment._read_ports),
                    write_ports=len(fragment._write_ports),
                    granularity=min((port._granularity for port in fragment._write_ports), default=width),
                    synchronous=all(port._domain != "comb" for port in fragment._read_ports),
                )
            )
        for number, (child, name, _) in enumerate(fragment.subfragments):
            walk(child, (*path, name or f"part{number}"))

    walk(Fragment.get(design, None), ())
    return facts


def violations(design: Any, config: NicConfig) -> list[str]:
    """Every breach of the rule, one sentence each; empty when the design keeps it."""
    widest = max(72, config.data_width + 8)
    found = []
    for fact in memories_of(design):
        if fact.write_ports > 1:
            found.append(f"{fact.path}: one write port is allowed, got {fact.write_ports}")
        if fact.granularity != fact.width:
            found.append(
                f"{fact.path}: rows of {fact.width} bits must be written whole, got {fact.granularity} bits"
            )
        if fact.depth > DISTRIBUTED_ROWS and fact.width > widest:
            found.append(f"{fact.path}: width must be at most {widest} bits, got {fact.width}")
        if fact.depth > DISTRIBUTED_ROWS and not fact.synchronous:
            found.append(f"{fact.path}: {fact.depth} rows must be read with a clock")
    return found
