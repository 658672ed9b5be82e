"""Reads and changes the Verilog of a design before it is compiled for a bench."""

import re

__all__ = ["TOP", "control_file", "ports", "with_random_memories", "with_random_registers"]

TOP = "top"
"""Name of the top module of every bench."""


def ports(verilog: str) -> list[tuple[str, str]]:
    """Return (direction, name) of the ports of the top module."""
    header = re.search(rf"^module {TOP}\(([^)]*)\);", verilog, re.MULTILINE)
    if header is None:
        raise ValueError(f"Verilog must contain a module {TOP!r}, but does not")
    names = {name.strip() for name in header[1].split(",")}
    body = verilog[header.end() : verilog.index("endmodule", header.end())]
    declared = re.findall(r"^\s*(input|output)\s+(?:\[[^]]*\]\s*)?([A-Za-z_]\w*)\s*;", body, re.MULTILINE)
    # Functions inside the module have inputs too.
    return [(direction, name) for direction, name in declared if name in names]


def control_file(verilog: str) -> str:
    """Return the Verilator control file that publishes the ports and nothing else."""
    lines = ["`verilator_config"]
    for _, name in ports(verilog):
        lines.append(f'public_flat_rw -module "{TOP}" -var "{name}"')
    return "\n".join(lines) + "\n"


_ZERO_MEMORY = re.compile(r"  initial begin\n((?:    \S+\[\d+\] = \d+'[bdh]0+;\n)+)  end\n")
_MEMORY_WORD = re.compile(r"    (\S+)\[\d+\] = (\d+)'")
_RANDOM_BITS = 32
"""Width of $urandom."""


def with_random_memories(verilog: str) -> str:
    """Let memories that the design writes power up with random words instead of zeros.

    Block RAM powers up with what is in it; a block that counts on zeros must fail its bench. Memories
    with other contents are tables and keep them, and so do zeros nobody ever writes. The words are
    drawn when the simulation starts, so that another seed needs no other model. Leaving them to
    `--x-initial unique` would fill a whole memory with one and the same word.
    """

    def replace(match: re.Match[str]) -> str:
        words = match[1].splitlines()
        first = _MEMORY_WORD.match(words[0])
        assert first is not None, "the outer expression consists of these lines"
        name, width = first[1], int(first[2])
        if not re.search(rf"^\s+{re.escape(name)}\[[^]]+\](?:\s*\[[^]]+\])? <= ", verilog, re.MULTILINE):
            return match[0]
        parts = ", ".join(["$urandom"] * -(-width // _RANDOM_BITS))
        return (
            f"  initial begin : power_up_{match.start()}\n    integer word;\n"
            f"    for (word = 0; word < {len(words)}; word = word + 1) {name} [word] = {{{parts}}};\n  end\n"
        )

    return _ZERO_MEMORY.sub(replace, verilog)


_UNSET_REGISTER = re.compile(
    r"^  reg (?:\[(\d+):0\] )?(\S+) ;$|^  reg (?:\[(\d+):0\] )?([A-Za-z_]\w*);$", re.MULTILINE
)


def with_random_registers(verilog: str) -> str:
    """Give registers without an initial value a random one: the outputs of memories.

    Verilator does so by itself. Icarus leaves them undefined, and an undefined value spreads even through
    logic whose result does not depend on it.
    """

    def replace(match: re.Match[str]) -> str:
        name = match[2] or match[4]
        width = int(match[1] or match[3] or 0) + 1
        parts = ", ".join(["$urandom"] * -(-width // _RANDOM_BITS))
        return f"  reg [{width - 1}:0] {name} = {{{parts}}};"

    return _UNSET_REGISTER.sub(replace, verilog)
