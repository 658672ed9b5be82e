"""Judges the headers and lengths of a normalised frame."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..layouts import to_network_order
from ..wire import Opcode
from .frame_words import WORD_BYTES
from .normaliser import IP_OFFSET, LAST_POSITION

__all__ = ["BODY_OFFSET", "BTH_OFFSET", "TRIMMED_BYTES", "UDP_OFFSET", "HeaderParser"]

UDP_OFFSET = IP_OFFSET + wire.IPV6.bytes
BTH_OFFSET = UDP_OFFSET + wire.UDP.bytes
BODY_OFFSET = BTH_OFFSET + wire.BTH.bytes

#: A trimmed write is of use from here on: METH is there.
TRIMMED_BYTES = BODY_OFFSET + wire.METH.bytes
_STAMPED_BYTES = TRIMMED_BYTES + wire.TSETH.bytes

_WRITES = tuple(opcode for opcode in Opcode if wire.is_write(opcode))

#: Lane in which the frame must end, by the low bits of the length that IPv6 announces, and how many words
#: behind the one with UDP's first byte that is, beside the length in words.
_END_LANES = [(UDP_OFFSET + low - 1) % WORD_BYTES for low in range(WORD_BYTES)]
_UDP_WORD = UDP_OFFSET // WORD_BYTES
_NEXT_WORD_FROM = _END_LANES.index(0)


class HeaderParser(wiring.Component):
    """Judges headers and lengths of a normalised frame as it passes; its fields stand in the record.

    The length that IPv6 announces is counted down in words, so the end of the frame tells whether it agrees
    and the payload's last word is known when it comes. Findings are complete one cycle after a word,
    ``length`` two cycles after the word with BTH's ``ts``, those of the end two cycles after the last word.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    here, position, data, keep : 1, 4, 64, 8
        Words of the normalised frame.
    end, end_incomplete : 1
        Any frame's last word is in this cycle; it ends in an outer header.
    settings : records.settings
    stamped : 1
        BTH says that TSETH is there.
    write, known : 1
        The opcode is a write; is one of MRC.
    immediate : 1
        ImmDt is there.
    low_lane : 1
        Payload begins in lane 2 of a word; otherwise in lane 6.
    payload_ends : 1
        Payload has no byte behind those that a payload word ending in this word holds.
    length : 13
        Bytes of payload, when the lengths are right.
    not_mrc, bad_address : 1
        Findings about inner headers.
    bad_length : 1
        IPv6 and UDP lengths contradict each other, are no multiple of 4, or do not fit headers and MTU.
    short, long : 1
        The frame has fewer or more bytes than IPv6 announces. ``short`` may miss frames without BTH.
    headers_there, trim_there, stamp_there : 1
        The frame holds BTH, METH, TSETH.

    Source: protocol.md 1.2 to 1.14, profile.md 6.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "here": In(1),
                "position": In(range(LAST_POSITION + 1)),
                "data": In(8 * WORD_BYTES),
                "keep": In(WORD_BYTES),
                "end": In(1),
                "end_incomplete": In(1),
                "settings": In(records.settings(config)),
                "stamped": Out(1),
                "write": Out(1),
                "known": Out(1),
                "immediate": Out(1),
                "low_lane": Out(1),
                "payload_ends": Out(1),
                "length": Out(13),
                "not_mrc": Out(1),
                "bad_address": Out(1),
                "bad_length": Out(1),
                "short": Out(1),
                "long": Out(1),
                "headers_there": Out(1),
                "trim_there": Out(1),
                "stamp_there": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        here, keep = self.here, self.keep
        at = Signal(LAST_POSITION + 1)
        m.d.comb += at.eq(Mux(here, 1 << self.position, 0))

        def parts(first: int, count: int) -> Iterable[tuple[int, int, int]]:
            """(word, first lane, bytes) of the words that hold some bytes of the frame."""
            while count:
                word, lane = divmod(first, WORD_BYTES)
                size = min(count, WORD_BYTES - lane)
                yield word, lane, size
                first, count = first + size, count - size

        def field(base: int, described: wire.Header, name: str) -> tuple[Value, Value]:
            """A field inside one word, as it goes by: whether it does, and its value."""
            word, lane = divmod(base + described.byte_offset(name), WORD_BYTES)
            bits = described[name].bits
            if bits % 8:
                low = 8 * lane + 7 - described.offset(name) % 8 - (bits - 1)
                return at[word], self.data[low : low + bits]
            return at[word], to_network_order(self.data[8 * lane : 8 * lane + bits])

        announced = Signal(16)
        opcode = Signal(8)
        pad = Signal(2)
        for base, described, name, target in (
            (IP_OFFSET, wire.IPV6, "payload_length", announced),
            (BTH_OFFSET, wire.BTH, "opcode", opcode),
            (BTH_OFFSET, wire.BTH, "pad_count", pad),
            (BTH_OFFSET, wire.BTH, "ts", self.stamped),
        ):
            passes, value = field(base, described, name)
            with m.If(passes):
                m.d.sync += target.eq(value)
        m.d.comb += [
            self.write.eq(opcode.matches(*_WRITES)),
            self.immediate.eq(opcode.matches(*(code for code in Opcode if wire.has_immediate(code)))),
            self.low_lane.eq(self.stamped ^ self.immediate),
        ]

        # Findings about the inner headers; the next header is judged by the normaliser.
        with m.If(at[0]):
            m.d.sync += [self.not_mrc.eq(0), self.bad_address.eq(0)]
        (port_word, port_lane, _), *_ = parts(UDP_OFFSET + wire.UDP.byte_offset("destination_port"), 2)
        port = to_network_order(self.data[8 * port_lane : 8 * port_lane + 16])
        with m.If(at[port_word] & keep[port_lane + 1] & ~port.matches(*wire.UDP_PORTS)):
            m.d.sync += self.not_mrc.eq(1)
        own = self.settings.own_address
        left = wire.IPV6["destination"].bits
        for word, lane, size in parts(IP_OFFSET + wire.IPV6.byte_offset("destination"), left // 8):
            value = to_network_order(self.data[8 * lane : 8 * (lane + size)])
            wanted = own[left - 8 * size : left]
            left -= 8 * size
            with m.If(at[word] & keep[lane + size - 1] & (value != wanted)):
                m.d.sync += self.bad_address.eq(1)

        # Words of the frame that are still to come, from the announced length; below zero, too many came.
        left = Signal(16 - 3)
        over = Signal()
        next_word = Signal()  # the frame ends in the word behind
        m.d.comb += next_word.eq(announced[:3] >= _NEXT_WORD_FROM)
        passes, value = field(IP_OFFSET, wire.IPV6, "payload_length")
        with m.If(passes):
            m.d.sync += [left.eq(value[3:]), over.eq(0)]
        with m.Elif(here & ((self.position > _UDP_WORD) | ((self.position == _UDP_WORD) & ~next_word))):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 0):
                m.d.sync += over.eq(1)
        # ICRC is as long as what is missing between the two lanes in which payload may begin.
        m.d.comb += self.payload_ends.eq(~left[1:].any() & (left[0] == (~self.low_lane & next_word)))

        # Payload length: what IPv6 announces less headers, pad and ICRC.
        overhead = Signal(5)  # in units of four bytes
        with m.Switch(opcode):
            for code in Opcode:
                with m.Case(code):
                    fixed = sum(part.bytes for part in wire.headers_after_bth(code, False))
                    fixed += wire.UDP.bytes + wire.BTH.bytes + wire.ICRC.bytes
                    stamp = self.stamped if wire.is_write(code) else 0
                    m.d.sync += overhead.eq(fixed // 4 + stamp)
                    m.d.comb += self.known.eq(1)
        length = Signal(17)
        mtu_bits = (self._config.mtu - 1).bit_length()
        below, limit, above = length[:mtu_bits].any(), length[mtu_bits], length[mtu_bits + 1 : 16].any()
        unfit = Mux(self.write, above | (limit & below), above | limit | below)
        differ = Signal()
        passes, value = field(UDP_OFFSET, wire.UDP, "length")
        with m.If(passes):
            m.d.sync += differ.eq((value != announced) | announced[:2].any())
        m.d.sync += length.eq(announced - Cat(pad, overhead))
        m.d.comb += [
            self.length.eq(length),
            self.bad_length.eq(differ | (self.known & (length[-1] | unfit))),
        ]

        # The end. One more cycle, because the next frame may end in the very next word.
        reaches = [Signal(name=f"reaches{n}") for n in range(3)]
        short = Signal()
        long = Signal()
        with m.If(self.end):
            for reached, size in zip(reaches, (BODY_OFFSET, TRIMMED_BYTES, _STAMPED_BYTES), strict=True):
                m.d.sync += reached.eq(self._reaches(size))
            lanes = [*keep, 0]
            ends, goes_on = (
                Array(lanes[lane + more] for lane in _END_LANES)[announced[:3]] for more in range(2)
            )
            m.d.sync += [
                short.eq(~over & ((left != 0) | ~ends)),
                long.eq(over | ((left == 0) & goes_on)),
            ]
        m.d.sync += [
            Cat(self.headers_there, self.trim_there, self.stamp_there).eq(Cat(reaches)),
            self.short.eq(short),
            self.long.eq(long),
        ]
        return m

    def _reaches(self, size: int) -> Value:
        """Whether the frame, ending in this word, has ``size`` bytes."""
        word, lane = divmod(size - 1, WORD_BYTES)
        return ~self.end_incomplete & ((self.position > word) | ((self.position == word) & self.keep[lane]))
