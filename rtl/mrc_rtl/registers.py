"""The register map as plain Python objects, elaborated from ``registers.rdl``.

The gateware's AXI4-Lite block, the host's driver and the page ``docs/registers.md`` are made from what
:func:`register_map` returns. Nothing here imports Amaranth. ``python -m mrc_rtl.registers --write`` makes the
page, ``--check`` fails when it is not current.

Source: SystemRDL 2.0 for the properties; the file's head says what they mean here.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from systemrdl import RDLCompiler
from systemrdl.node import AddressableNode, FieldNode, Node, RegfileNode, RegNode

from .config import NicConfig

__all__ = [
    "DOCUMENT",
    "Register",
    "RegisterField",
    "RegisterKind",
    "RegisterMap",
    "config_hash",
    "constant_value",
    "main",
    "markdown",
    "register_map",
]

_SOURCE = Path(__file__).with_name("registers.rdl")

#: The generated page, relative to the repository.
DOCUMENT = Path("docs/registers.md")

_CAPABILITY = "capability_"


class RegisterKind(Enum):
    """How a register behaves; follows from its SystemRDL properties."""

    CONSTANT = "constant"
    SETTING = "setting"
    STATE = "state"
    COMMAND = "command"
    POP = "pop"
    BUFFER = "buffer"


_KINDS = {
    ("r", "na"): RegisterKind.CONSTANT,
    ("rw", "r"): RegisterKind.SETTING,
    ("r", "w"): RegisterKind.STATE,
    ("w", "r"): RegisterKind.COMMAND,
    ("rw", "rw"): RegisterKind.BUFFER,
}

_KIND_TEXT = {
    RegisterKind.CONSTANT: "read only, constant",
    RegisterKind.SETTING: "read and write",
    RegisterKind.STATE: "read only",
    RegisterKind.COMMAND: "write only",
    RegisterKind.POP: "read only, reading takes",
    RegisterKind.BUFFER: "read and write",
}


@dataclass(frozen=True)
class RegisterField:
    """One field of a register.

    Parameters
    ----------
    name : str
    low, width : int
        Position of the least significant bit and width in bits.
    reset : int
        Value after reset.
    text : str
        Meaning and unit.
    """

    name: str
    low: int
    width: int
    reset: int
    text: str

    @property
    def mask(self) -> int:
        """All ones over the width, at bit 0."""
        return (1 << self.width) - 1


@dataclass(frozen=True)
class Register:
    """A register, or an array of equal ones.

    Parameters
    ----------
    name : str
        Path in the map joined with underscores, such as ``port_mac``.
    title, text : str
        Headline and meaning.
    offset : int
        Byte address of the first one.
    width : int
        32, 64 or 128 bits; wider than 32 means several words, the lowest first.
    kind : RegisterKind
    fields : tuple of RegisterField
    count, stride : int
        Size of the array (1 when it is none) and bytes from one to the next.
    """

    name: str
    title: str
    text: str
    offset: int
    width: int
    kind: RegisterKind
    fields: tuple[RegisterField, ...]
    count: int = 1
    stride: int = 0

    @property
    def words(self) -> int:
        """32-bit words of one register."""
        return self.width // 32

    @property
    def readable(self) -> bool:
        """Whether software may read it."""
        return self.kind is not RegisterKind.COMMAND

    @property
    def writable(self) -> bool:
        """Whether software may write it."""
        return self.kind in (RegisterKind.SETTING, RegisterKind.COMMAND, RegisterKind.BUFFER)

    @property
    def reset(self) -> int:
        """Value after reset."""
        return self.pack()

    def address(self, index: int = 0, word: int = 0) -> int:
        """Byte address of a word of element ``index``.

        Raises
        ------
        IndexError
            When the array or the register is not that long.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"index of {self.name} must be between 0 and {self.count - 1}, got {index}")
        if not 0 <= word < self.words:
            raise IndexError(f"word of {self.name} must be between 0 and {self.words - 1}, got {word}")
        return self.offset + index * self.stride + 4 * word

    def field(self, name: str) -> RegisterField:
        """The field of that name.

        Raises
        ------
        KeyError
            When the register has none.
        """
        for field in self.fields:
            if field.name == name:
                return field
        names = ", ".join(field.name for field in self.fields)
        raise KeyError(f"register {self.name} has fields {names}; got {name!r}")

    def pack(self, **values: int) -> int:
        """The register's value with these fields; others take their reset value.

        Raises
        ------
        KeyError
            For a field the register does not have.
        ValueError
            For a value that does not fit its field.
        """
        for name in values:
            self.field(name)
        result = 0
        for field in self.fields:
            value = values.get(field.name, field.reset)
            if not 0 <= value <= field.mask:
                raise ValueError(
                    f"{self.name}.{field.name} must be between 0 and {field.mask:#x}, got {value:#x}"
                )
            result |= value << field.low
        return result

    def unpack(self, value: int) -> dict[str, int]:
        """Split a value of the register into its fields."""
        return {field.name: value >> field.low & field.mask for field in self.fields}

    @property
    def mask(self) -> int:
        """Bits that belong to a field."""
        return sum(field.mask << field.low for field in self.fields)


@dataclass(frozen=True)
class RegisterMap:
    """All registers of an engine, in the order of their addresses.

    Parameters
    ----------
    title, text : str
        Headline and what holds for every register.
    registers : tuple of Register
    """

    title: str
    text: str
    registers: tuple[Register, ...]

    def __getitem__(self, name: str) -> Register:
        for register in self.registers:
            if register.name == name:
                return register
        raise KeyError(f"the engine has no register {name!r}")

    def __iter__(self) -> Iterator[Register]:
        return iter(self.registers)

    def __contains__(self, name: object) -> bool:
        return any(register.name == name for register in self.registers)


def config_hash(config: NicConfig) -> int:
    """Low 32 bits of the SHA-256 over every parameter of a configuration."""
    text = json.dumps(config.as_dict(), sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[-4:], "big")


def constant_value(register: Register, config: NicConfig) -> int:
    """What a register of kind CONSTANT reads as in an engine of this configuration.

    Raises
    ------
    ValueError
        When the register is not a constant.
    """
    if register.kind is not RegisterKind.CONSTANT:
        raise ValueError(f"register must be a constant, got {register.name} ({register.kind.value})")
    if register.name == "config_hash":
        return config_hash(config)
    if register.name.startswith(_CAPABILITY):
        return int(config.as_dict()[register.name.removeprefix(_CAPABILITY)])
    return register.reset


def _text(node: Node) -> str:
    return " ".join((node.get_property("desc") or "").split())


def _field(node: FieldNode) -> RegisterField:
    reset = node.get_property("reset")
    return RegisterField(node.inst_name, node.low, node.width, int(reset or 0), _text(node))


def _kind(node: RegNode) -> RegisterKind:
    kinds = set()
    for field in node.fields():
        access = (field.get_property("sw").name, field.get_property("hw").name)
        kind = _KINDS[access]
        kinds.add(RegisterKind.POP if field.get_property("swacc") else kind)
    if len(kinds) != 1:
        raise ValueError(f"fields of register {node.get_path()} must behave alike, got {kinds}")
    return kinds.pop()


def _register(node: RegNode, prefix: str, base: int, array: AddressableNode | None) -> Register:
    own = node if node.is_array else array
    return Register(
        name=prefix + node.inst_name,
        title=node.get_property("name") if "name" in node.list_properties() else node.inst_name,
        text=_text(node),
        offset=base + node.raw_address_offset,
        width=node.get_property("regwidth"),
        kind=_kind(node),
        fields=tuple(_field(field) for field in node.fields()),
        count=1 if own is None else own.array_dimensions[0],
        stride=0 if own is None else own.array_stride,
    )


@cache
def register_map() -> RegisterMap:
    """Elaborate ``registers.rdl``; the first call takes about half a second, later ones nothing."""
    compiler = RDLCompiler()
    compiler.compile_file(str(_SOURCE))
    top = compiler.elaborate().top
    registers: list[Register] = []
    for node in top.children():
        if isinstance(node, RegNode):
            registers.append(_register(node, "", 0, None))
        elif isinstance(node, RegfileNode):
            array = node if node.is_array else None
            for child in node.registers():
                registers.append(_register(child, f"{node.inst_name}_", node.raw_address_offset, array))
    registers.sort(key=lambda register: register.offset)
    return RegisterMap(top.get_property("name"), _text(top), tuple(registers))


def markdown() -> str:
    """The page that describes every register."""
    described = register_map()
    lines = [
        "# Registers of the engine",
        "",
        "Made from `rtl/mrc_rtl/registers.rdl` by `python -m mrc_rtl.registers --write`; do not edit.",
        "",
        described.text,
        "",
        "| address | register | bits | access | reset |",
        "|---|---|---|---|---|",
    ]
    for register in described:
        address = f"0x{register.offset:03x}"
        if register.count > 1:
            address += f" + {register.stride:#x} i"
        name = register.name + (f"[{register.count}]" if register.count > 1 else "")
        reset = "from the configuration" if _configured(register) else f"{register.reset:#x}"
        lines.append(
            f"| {address} | `{name}` | {register.width} | {_KIND_TEXT[register.kind]} | "
            f"{'' if register.kind in (RegisterKind.COMMAND, RegisterKind.BUFFER) else reset} |"
        )
    for register in described:
        if register.name.startswith(_CAPABILITY):
            continue
        lines += ["", f"## `{register.name}`: {register.title}", "", register.text, ""]
        lines += ["| bits | field | reset | meaning |", "|---|---|---|---|"]
        for field in register.fields:
            bits = f"{field.low + field.width - 1}:{field.low}" if field.width > 1 else str(field.low)
            lines.append(f"| {bits} | `{field.name}` | {field.reset:#x} | {field.text} |")
    lines += ["", "## Capabilities", "", "The parameters of `NicConfig` this engine was built with.", ""]
    lines += ["| register | meaning |", "|---|---|"]
    for register in described:
        if register.name.startswith(_CAPABILITY):
            lines.append(f"| `{register.name}` | {register.text} |")
    return "\n".join(lines) + "\n"


def _configured(register: Register) -> bool:
    return register.name == "config_hash" or register.name.startswith(_CAPABILITY)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; returns the exit code (1 when ``--check`` finds it out of date)."""
    parser = argparse.ArgumentParser(prog="python -m mrc_rtl.registers", description=__doc__.split("\n")[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help=f"write {DOCUMENT}")
    action.add_argument("--check", action="store_true", help=f"fail when {DOCUMENT} is not current")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the repository, by default here")
    options = parser.parse_args(arguments)
    path = options.root / DOCUMENT
    if options.write:
        path.write_text(markdown())
        return 0
    if not path.exists() or path.read_text() != markdown():
        print(
            f"{path} must equal what registers.rdl describes, but differs: "
            "run python -m mrc_rtl.registers --write"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
