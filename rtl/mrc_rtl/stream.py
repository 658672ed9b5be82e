"""Signatures of the buses between blocks, and nothing that holds state.

Packets travel on :class:`PacketStream` (AXI4-Stream names, byte lane i is byte i of the wire), records on
:class:`amaranth.lib.stream.Signature`. The four stream rules of Amaranth hold: valid does not depend on
ready, and the payload stays unchanged until it is taken.
"""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = [
    "Axi4ReadSignature",
    "Axi4WriteSignature",
    "AxiLiteSignature",
    "PacketStream",
    "TableBus",
]


class PacketStream(wiring.Signature):
    """A stream of frames, seen from the source.

    Parameters
    ----------
    width : int
        Data width in bits, a multiple of 8.

    Members
    -------
    tvalid, tready, tlast
        As in AXI4-Stream.
    tdata : width
        Byte lane i holds byte i of the beat.
    tkeep : width / 8
        Valid lanes; all ones except on the last beat, where it is ones from lane 0 upwards.
    tuser : 1
        On the last beat: the frame is bad and must be dropped.
    """

    def __init__(self, width: int) -> None:
        if width < 8 or width % 8:
            raise ValueError(f"width must be a positive multiple of 8, got {width}")
        self.width = width
        super().__init__(
            {
                "tdata": Out(width),
                "tkeep": Out(width // 8),
                "tlast": Out(1),
                "tuser": Out(1),
                "tvalid": Out(1),
                "tready": In(1),
            }
        )


class Axi4ReadSignature(wiring.Signature):
    """AXI4 read channels of a manager: bursts of type INCR, full width, one identifier per requester.

    Parameters
    ----------
    data_width, address_width, id_width : int
        Widths in bits.
    """

    def __init__(self, data_width: int, address_width: int, id_width: int) -> None:
        super().__init__(
            {
                "arid": Out(id_width),
                "araddr": Out(address_width),
                "arlen": Out(8),
                "arsize": Out(3),
                "arburst": Out(2),
                "arvalid": Out(1),
                "arready": In(1),
                "rid": In(id_width),
                "rdata": In(data_width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class Axi4WriteSignature(wiring.Signature):
    """AXI4 write channels of a manager: bursts of type INCR, full width with byte strobes.

    Parameters
    ----------
    data_width, address_width, id_width : int
        Widths in bits.
    """

    def __init__(self, data_width: int, address_width: int, id_width: int) -> None:
        super().__init__(
            {
                "awid": Out(id_width),
                "awaddr": Out(address_width),
                "awlen": Out(8),
                "awsize": Out(3),
                "awburst": Out(2),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(data_width),
                "wstrb": Out(data_width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(id_width),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )


class AxiLiteSignature(wiring.Signature):
    """AXI4-Lite of 32 bits data, seen from the manager.

    Parameters
    ----------
    address_width : int
        Width of the byte address in bits.
    """

    def __init__(self, address_width: int) -> None:
        super().__init__(
            {
                "awaddr": Out(address_width),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_width),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class TableBus(wiring.Signature):
    """Host access to one table, seen from the host side: a command to the owner, answered word by word.

    A command moves the 64-bit words of one entry in ascending order. The owner takes a word when
    ``valid & ready``; it applies an entry as a whole when the word with ``last`` is taken, so that the engine
    never sees half an entry. A read word is answered by ``done`` together with ``read_data`` (any number of
    cycles later); a write word likewise (so that a command has an end). ``error`` with ``done`` says that
    index or state does not allow the command.

    Members
    -------
    valid, ready
        Handshake of one word.
    write : 1
        Write when set, read otherwise.
    index : 16
        Entry of the table.
    word : 4
        Number of the 64-bit word inside the entry.
    last : 1
        Last word of this command.
    write_data : 64
    done, error, read_data : 1, 1, 64
        Answer.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "write": Out(1),
                "index": Out(16),
                "word": Out(4),
                "last": Out(1),
                "write_data": Out(64),
                "done": In(1),
                "error": In(1),
                "read_data": In(64),
            }
        )


def layout_bits(layout: data.Layout) -> int:
    """Number of bits of a layout."""
    return layout.size
