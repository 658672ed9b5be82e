"""The pins of the engine as the C++ shim uses them: one table of names, and the header made from it.

Verilator tells the ports it found in the header of the model. They are compared with the table, so that an
engine whose ports differ is refused with the name of the port, and then bound to macros and functions of
``pins.h``; the shim itself knows no name, number or width of a port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mrc_host.errors import InfrastructureError

__all__ = ["PORT_MEMBERS", "ModelPort", "engine_ports", "parse_ports", "pins_header"]

MODEL = "Vtop"

#: Members of a packet stream (AXI4-Stream).
PORT_MEMBERS = ("tdata", "tkeep", "tlast", "tuser", "tvalid", "tready")

#: Ports that exist once, by the macro of the shim.
SINGLE_PORTS: dict[str, str] = {
    "CLK": "clk",
    "RST": "rst",
    "NOW": "now",
    "QUIESCENT": "quiescent",
    "NEXT_DEADLINE": "next_deadline",
    "DEADLINE_VALID": "deadline_valid",
    "LINK_UP": "link_up",
    "EVENT_WAITING": "event_waiting",
    **{
        f"CONTROL_{member.upper()}": f"control__{member}"
        for member in (
            "awaddr awvalid awready wdata wstrb wvalid wready bresp bvalid bready "
            "araddr arvalid arready rdata rresp rvalid rready"
        ).split()
    },
    **{
        f"MEMORY_READ_{member.upper()}": f"memory_read__{member}"
        for member in (
            "arid araddr arlen arsize arburst arvalid arready rid rdata rresp rlast rvalid rready"
        ).split()
    },
    **{
        f"MEMORY_WRITE_{member.upper()}": f"memory_write__{member}"
        for member in (
            "awid awaddr awlen awsize awburst awvalid awready wdata wstrb wlast wvalid wready "
            "bid bresp bvalid bready"
        ).split()
    },
}

TRACE_PORTS = ("trace__valid", "trace__ready", "trace__payload")


@dataclass(frozen=True)
class ModelPort:
    """A port of a verilated model: its Verilog name, direction (``in`` or ``out``) and width in bits."""

    name: str
    direction: str
    width: int

    @property
    def member(self) -> str:
        """Name of the member of the C++ class: Verilator writes a double underscore as ``___05F``."""
        return self.name.replace("__", "___05F")


def engine_ports(planes: int, trace: bool) -> list[str]:
    """Return the names of all ports an engine must have."""
    streams = [
        f"{direction}_{plane}__{member}"
        for direction in ("transmit", "receive")
        for plane in range(planes)
        for member in PORT_MEMBERS
    ]
    return [*SINGLE_PORTS.values(), *streams, *(TRACE_PORTS if trace else ())]


def parse_ports(model_header: str) -> list[ModelPort]:
    """Read the ports from the text of the header that Verilator wrote for a model."""
    pattern = re.compile(r"VL_(IN|OUT)(?:8|16|64|W)?\(&(\w+),(\d+),(\d+)(?:,\d+)?\)")
    return [
        ModelPort(name.replace("___05F", "__"), direction.lower(), int(high) - int(low) + 1)
        for direction, name, high, low in pattern.findall(model_header)
    ]


def pins_header(ports: list[ModelPort], planes: int, data_width: int, trace: bool) -> str:
    """Return the text of ``pins.h`` for a model.

    Raises
    ------
    InfrastructureError
        A port is missing, or one is there that nothing would drive.
    """
    found = {port.name: port for port in ports}
    expected = engine_ports(planes, trace)
    missing = [name for name in expected if name not in found]
    unknown = [name for name in found if name not in expected]
    if missing or unknown:
        raise InfrastructureError(
            "ports of the engine must be those of the shim's table, "
            f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
        )
    width = found["receive_0__tdata"].width
    if width != data_width:
        raise InfrastructureError(f"receive_0__tdata must have {data_width} bits, got {width}")
    inputs = [port for port in ports if port.direction == "in" and port.name != "clk"]
    member = {name: port.member for name, port in found.items()}
    trace_bytes = (found["trace__payload"].width + 7) // 8 if trace else 0
    lines = [
        "// Made from the ports of the model; see pins.py.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        f'#include "{MODEL}.h"',
        "#include <verilated.h>",
        "",
        *(f"#define PIN_{macro} {found[name].member}" for macro, name in SINGLE_PORTS.items()),
        "",
        "namespace pins {",
        "",
        f"using Model = {MODEL};",
        f"constexpr int PLANES = {planes};",
        f"constexpr int DATA_BYTES = {data_width // 8};",
        f"constexpr int TRACE_BYTES = {trace_bytes};",
        f"constexpr int INPUTS = {len(inputs)};",
        f"using Keep = {_keep_type(data_width // 8)};",
        "",
        "struct Plane {",
        "    void* tdata;",
        "    Keep* tkeep;",
        "    uint8_t *tlast, *tuser, *tvalid, *tready;",
        "};",
        "",
        "struct Input {",
        "    void* bytes;",
        "    int size;",
        "};",
        "",
        "inline void bind(Model& m, Plane* transmit, Plane* receive) {",
    ]
    for direction in ("transmit", "receive"):
        for plane in range(planes):
            members = ", ".join(
                f"&m.{found[f'{direction}_{plane}__{member}'].member}" for member in PORT_MEMBERS
            )
            lines.append(f"    {direction}[{plane}] = {{{members}}};")
    lines += ["}", "", "inline const Input* inputs(Model& m, Input* table) {"]
    lines += [
        f"    table[{number}] = {{&m.{port.member}, sizeof m.{port.member}}};"
        for number, port in enumerate(inputs)
    ]
    lines += ["    return table;", "}", ""]
    if trace:
        lines += [
            f"inline auto& trace_ready(Model& m) {{ return m.{member['trace__ready']}; }}",
            f"inline bool trace_valid(const Model& m) {{ return m.{member['trace__valid']}; }}",
            f"inline const void* trace_payload(const Model& m) {{ return &m.{member['trace__payload']}; }}",
        ]
    else:
        lines += [
            "// Without a trace stream these exist for overload resolution only and are never called.",
            "template <class M> uint8_t& trace_ready(M&);",
            "template <class M> bool trace_valid(const M&);",
            "template <class M> const void* trace_payload(const M&);",
        ]
    return "\n".join([*lines, "", "}  // namespace pins", ""])


def _keep_type(lanes: int) -> str:
    return f"uint{max(8, lanes)}_t"
