"""The quick look agrees with the codec.

Sweep: every opcode and stack; every cut; what is not MRC.
Stimulus: frames of the codec.
Checks: every field of FrameInfo against the decoded packet; None where there is nothing to see.
Timing: none.
"""

from __future__ import annotations

import pytest

from mrc_host.packets.codec import decode
from mrc_host.packets.peek import peek
from mrc_rtl.wire import Opcode
from packets.strategies import STACKS, frame_of


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_agrees_with_the_codec(opcode, stack):
    frame = frame_of(opcode, stack)
    packet, info = decode(frame), peek(frame)
    assert info is not None
    bth = packet["bth"]
    assert (info.opcode, info.dest_qp, info.psn) == (opcode, bth["dest_qp"], bth["psn"])
    assert (info.ack_req, info.rtx, info.ts) == (bth["ack_req"] == 1, bth["rtx"] == 1, bth["ts"] == 1)
    assert (info.ev, info.dscp, info.ecn, info.trimmed) == (packet.ev, 8, 0, False)
    assert info.encapsulated == stack.startswith("srv6")
    assert info.payload_len == len(packet.payload)
    write = "reth" in packet
    assert info.msn == (packet["meth"]["msn"] if write else None)
    assert info.va == (packet["reth"]["va"] if write else None)
    assert info.outer_offset == 14
    assert frame[info.bth_offset] == opcode
    assert peek(frame[14:], 0) == info._replace(outer_offset=0, bth_offset=info.bth_offset - 14)


@pytest.mark.parametrize("stack", STACKS)
def test_every_cut(stack):
    frame = frame_of(Opcode.WRITE_ONLY, stack)
    whole = peek(frame)
    assert whole is not None
    for size in range(len(frame)):
        info = peek(frame[:size])
        assert (info is not None) == (size >= whole.bth_offset + 12), size
        if info is not None:
            assert info.psn == whole.psn
            assert (info.msn is None) == (size < whole.bth_offset + 16)
            assert (info.va is None) == (size < whole.bth_offset + 28)


def test_congestion_on_any_header_counts():
    frame = bytearray(frame_of(Opcode.WRITE_ONLY, "srv6"))
    frame[55] |= 0x30  # ECN of the inner header
    info = peek(bytes(frame))
    assert info is not None
    assert info.ecn == 3


@pytest.mark.parametrize(("at", "value"), [(20, 6), (57, 1), (62, 0x0A), (14, 0x50), (14, 0x46)])
def test_not_mrc(at, value):
    frame = bytearray(frame_of(Opcode.WRITE_ONLY, "ipv6"))
    frame[at] = value
    assert peek(bytes(frame)) is None
