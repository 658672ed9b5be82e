"""Header descriptions and the struct layouts made of them.

Sweep: every header of mrc_rtl.wire.
Stimulus: random integers as header bytes.
Checks: lengths of protocol.md 1, pack and unpack are inverse, exact messages, struct value equals the
big-endian integer of the header, addresses of profile.md 2 and 3.
Timing: none.
"""

from __future__ import annotations

import random

import pytest

from mrc_rtl import layouts, wire

LENGTHS = {
    "ethernet": 14,
    "ipv6": 40,
    "ipv4": 20,
    "srh": 24,
    "udp": 8,
    "bth": 12,
    "meth": 4,
    "tseth": 4,
    "reth": 16,
    "immdt": 4,
    "aeth": 4,
    "seth": 28,
    "cc_state": 8,
    "neth": 20,
    "peth": 16,
    "erth": 16,
    "eeth": 36,
    "icrc": 4,
}


def test_lengths():
    assert {name: header.bytes for name, header in wire.HEADERS.items()} == LENGTHS
    assert all(header.bits % 8 == 0 for header in wire.HEADERS.values())


@pytest.mark.parametrize("name", LENGTHS)
def test_pack_and_unpack_are_inverse_and_equal_the_struct(name):
    header, layout = wire.HEADERS[name], layouts.LAYOUTS[name]
    assert layout.size == header.bits
    source = random.Random(name)
    for _ in range(20):
        integer = source.getrandbits(header.bits)
        values = header.unpack(integer)
        assert header.pack(values) == integer
        struct = layout.from_bits(integer)
        assert {item.name: struct[item.name] for item in header.fields} == values


def test_offsets_count_from_the_first_bit_on_the_wire():
    assert wire.BTH.offset("opcode") == 0
    assert wire.BTH.offset("psn") == 72
    assert wire.BTH.shift("psn") == 0
    assert wire.SETH.byte_offset("sack_bitmap") == 20
    assert wire.CC_STATE.byte_offset("rcvd_bytes") == 5


def test_messages():
    with pytest.raises(ValueError, match=r"^bth.psn must be between 0 and 0xffffff, got 0x1000000$"):
        wire.BTH.pack(psn=1 << 24)
    with pytest.raises(KeyError, match="header meth has fields rqmsn, msn; got 'psn'"):
        wire.METH.pack(psn=1)
    with pytest.raises(ValueError, match="field names of header x must differ, got 'a' twice"):
        wire.Header("x", (wire.Field("a", 8), wire.Field("a", 8)))
    with pytest.raises(ValueError, match="uSID index must be between 1 and 1023, got 0"):
        wire.usid_value(1, 0, 0)
    with pytest.raises(ValueError, match="an address holds at most 6 uSIDs, got 7"):
        wire.outer_address([1] * 7)
    with pytest.raises(ValueError, match="headers must differ, got bth, bth"):
        layouts.headers_layout(wire.BTH, wire.BTH)


def test_opcodes_have_class_110_and_the_predicates_hold():
    assert all(opcode >> 5 == 0b110 for opcode in wire.Opcode)
    assert set(wire.HEADERS_AFTER_BTH) == set(wire.Opcode)
    assert [o.name for o in wire.Opcode if wire.is_first(o)] == [
        "WRITE_FIRST",
        "WRITE_ONLY",
        "WRITE_ONLY_IMM",
    ]
    assert [o.name for o in wire.Opcode if wire.has_immediate(o)] == ["WRITE_LAST_IMM", "WRITE_ONLY_IMM"]
    assert sum(wire.is_last(o) for o in wire.Opcode) == 4
    assert sum(wire.is_write(o) for o in wire.Opcode) == 6
    assert wire.fixed_headers_bytes(wire.Opcode.WRITE_ONLY, ts=True, srv6=False) == 98
    assert wire.fixed_headers_bytes(wire.Opcode.WRITE_ONLY_IMM, ts=True, srv6=True) == 142
    assert wire.fixed_headers_bytes(wire.Opcode.SACK, ts=False, srv6=False) + 4 == 114


def test_addresses_of_the_profile():
    assert wire.usid_value(plane=5, tier=wire.Tier.T1, index=0x2A) == 0b0_101_01_0000101010
    assert wire.ev_value(plane=5, uplink=0x2A, replica=7) == 0xC52A0007
    assert wire.mac_address(plane=3, host=0x102) == 0x020000030102
    assert wire.inner_address(0x22) == 0xFD00_0000_0000_0022_0000_0000_0000_0001
    assert wire.outer_address([0x1001, 0x1402]) == 0x5F00_0000_1001_1402 << 64
    assert max(wire.usid_value(7, tier, 1023) for tier in wire.Tier) < 0xE000


def test_network_order_reverses_bytes():
    from amaranth.hdl import Const, Module, Signal
    from amaranth.sim import Simulator

    m = Module()
    result = Signal(32)
    m.d.comb += result.eq(layouts.to_network_order(Const(0x44332211, 32)))

    async def check(ctx):
        assert ctx.get(result) == 0x11223344

    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()
    with pytest.raises(ValueError, match="lanes must be a whole number of bytes, got 7 bits"):
        layouts.to_network_order(Const(0, 7))
