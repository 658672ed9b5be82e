"""Keeps the header fields of a normalised frame and judges its headers and lengths."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..layouts import to_network_order
from ..wire import Opcode
from .frame_words import WORD_BYTES
from .normaliser import COUNT_BITS, IP_OFFSET, LAST_POSITION

__all__ = ["BODY_OFFSET", "BTH_OFFSET", "TRIMMED_BYTES", "UDP_OFFSET", "HeaderParser"]

UDP_OFFSET = IP_OFFSET + wire.IPV6.bytes
BTH_OFFSET = UDP_OFFSET + wire.UDP.bytes
BODY_OFFSET = BTH_OFFSET + wire.BTH.bytes

#: A trimmed write is of use from here on: METH is there.
TRIMMED_BYTES = BODY_OFFSET + wire.METH.bytes
_STAMPED_BYTES = TRIMMED_BYTES + wire.TSETH.bytes

_WRITES = tuple(opcode for opcode in Opcode if wire.is_write(opcode))

#: Bits of a length difference: frames up to 2^17 bytes, and a sign.
_DIFFERENCE_BITS = COUNT_BITS + 5


class HeaderParser(wiring.Component):
    """Catches each field in the word that holds it, and compares the lengths.

    Nothing is multiplexed: every register is loaded by the words that hold its bytes. Findings are complete
    one cycle after a word, the payload length two cycles after the word with BTH's ``ts``, the difference of
    lengths two cycles after the last word.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    here, position, count, data, keep, last : 1, 4, 14, 64, 8, 1
        Words of the normalised frame.
    end, end_incomplete : 1
        Any frame's last word is in this cycle; it ends in an outer header.
    settings : records.settings
    opcode, psn, destination_qpn, partition_key, ack_request, retransmission, source, body, ev
        Fields of records.receive_record.
    stamped : 1
        BTH says that TSETH is there.
    write, known : 1
        The opcode is a write; is one of MRC.
    immediate : 1
        ImmDt is there.
    payload_length : signed 18
        Bytes of payload after the frame's own lengths; negative when the headers do not fit.
    not_mrc, bad_address : 1
        Findings about inner headers.
    lengths_differ : 1
        IPv6 and UDP lengths contradict each other or are no multiple of 4.
    difference : signed 19
        Bytes received minus bytes that IPv6 announces.
    headers_there, trim_there, stamp_there : 1
        The frame holds BTH, METH, TSETH; valid two cycles after the end.

    Source: protocol.md 1.2 to 1.14, profile.md 6.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "here": In(1),
                "position": In(range(LAST_POSITION + 1)),
                "count": In(COUNT_BITS),
                "data": In(8 * WORD_BYTES),
                "keep": In(WORD_BYTES),
                "end": In(1),
                "end_incomplete": In(1),
                "settings": In(records.settings(config)),
                "opcode": Out(8),
                "psn": Out(24),
                "destination_qpn": Out(24),
                "partition_key": Out(16),
                "ack_request": Out(1),
                "retransmission": Out(1),
                "stamped": Out(1),
                "source": Out(128),
                "body": Out(records.BODY_BITS),
                "ev": Out(32),
                "write": Out(1),
                "known": Out(1),
                "immediate": Out(1),
                "payload_length": Out(signed(18)),
                "not_mrc": Out(1),
                "bad_address": Out(1),
                "lengths_differ": Out(1),
                "difference": Out(signed(_DIFFERENCE_BITS)),
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

        def catch(first: int, count: int, name: str) -> Signal:
            """Register that holds some bytes of the frame as a big-endian number."""
            target = Signal(8 * count, name=name)
            left = count
            for word, lane, size in parts(first, count):
                value = to_network_order(self.data[8 * lane : 8 * (lane + size)])
                left -= size
                with m.If(at[word]):
                    m.d.sync += target[8 * left : 8 * (left + size)].eq(value)
            return target

        def header(base: int, described: wire.Header, name: str) -> Signal:
            """Register of a field of whole bytes."""
            field = described[name]
            return catch(base + described.byte_offset(name), field.bits // 8, name)

        def bit(base: int, described: wire.Header, name: str) -> tuple[int, Value]:
            """A field inside one byte, as it goes by."""
            word, lane = divmod(base + described.byte_offset(name), WORD_BYTES)
            low = 7 - described.offset(name) % 8 - (described[name].bits - 1)
            return word, self.data[8 * lane + low : 8 * lane + low + described[name].bits]

        payload_length = header(IP_OFFSET, wire.IPV6, "payload_length")
        udp_length = header(UDP_OFFSET, wire.UDP, "length")
        pad = Signal(2)
        for name, target in (
            ("pad_count", pad),
            ("ack_req", self.ack_request),
            ("rtx", self.retransmission),
            ("ts", self.stamped),
        ):
            word, value = bit(BTH_OFFSET, wire.BTH, name)
            with m.If(at[word]):
                m.d.sync += target.eq(value)
        flow = catch(IP_OFFSET + 2, 2, "flow_label")
        m.d.comb += [
            self.opcode.eq(header(BTH_OFFSET, wire.BTH, "opcode")),
            self.psn.eq(header(BTH_OFFSET, wire.BTH, "psn")),
            self.destination_qpn.eq(header(BTH_OFFSET, wire.BTH, "dest_qp")),
            self.partition_key.eq(header(BTH_OFFSET, wire.BTH, "pkey")),
            self.source.eq(header(IP_OFFSET, wire.IPV6, "source")),
            self.body.eq(catch(BODY_OFFSET, records.BODY_BITS // 8, "body")),
            self.ev.eq(Cat(flow, header(UDP_OFFSET, wire.UDP, "source_port"))),
            self.write.eq(self.opcode.matches(*_WRITES)),
            self.immediate.eq(
                self.opcode.matches(*(opcode for opcode in Opcode if wire.has_immediate(opcode)))
            ),
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

        # Payload length: what the IPv6 header announces less headers, pad and ICRC.
        overhead = Signal(7)
        with m.Switch(self.opcode):
            for opcode in Opcode:
                with m.Case(opcode):
                    fixed = sum(part.bytes for part in wire.headers_after_bth(opcode, False))
                    fixed += wire.UDP.bytes + wire.BTH.bytes + wire.ICRC.bytes
                    stamp = self.stamped if wire.is_write(opcode) else 0
                    m.d.sync += overhead.eq(fixed + 4 * stamp)
                    m.d.comb += self.known.eq(1)
        m.d.sync += [
            self.payload_length.eq(payload_length - overhead - pad),
            self.lengths_differ.eq((payload_length != udp_length) | payload_length[:2].any()),
        ]

        # The end.
        received = Signal(COUNT_BITS + 3)
        bytes_here = Signal(range(WORD_BYTES + 1))
        for n in range(WORD_BYTES):
            with m.If(keep[n]):
                m.d.comb += bytes_here.eq(n + 1)
        reaches = [Signal(name=f"reaches{n}") for n in range(3)]
        with m.If(self.end):
            m.d.sync += received.eq((self.count << 3) + bytes_here)
            for reached, size in zip(reaches, (BODY_OFFSET, TRIMMED_BYTES, _STAMPED_BYTES), strict=True):
                m.d.sync += reached.eq(self._reaches(size))
        # One more cycle, beside the difference: the next frame may end in the very next word.
        m.d.sync += [
            self.difference.eq(received - payload_length - UDP_OFFSET),
            Cat(self.headers_there, self.trim_there, self.stamp_there).eq(Cat(reaches)),
        ]
        return m

    def _reaches(self, size: int) -> Value:
        """Whether the frame, ending in this word, has ``size`` bytes."""
        word, lane = divmod(size - 1, WORD_BYTES)
        return ~self.end_incomplete & ((self.position > word) | ((self.position == word) & self.keep[lane]))
