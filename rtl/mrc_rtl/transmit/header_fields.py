"""The bytes of a frame's headers that are not in a QP's template, beat by beat."""


from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..layouts import to_network_order
from ..tables import TEMPLATE_IMAGE_OFFSET, TEMPLATE_WORDS
from .template_table import TemplateOptions

__all__ = ["DATA_BODY_WORDS", "HEADER_BYTES", "HeaderFields", "header_beats", "payload_places"]

_OUTER = wire.ETHERNET.bytes

#: Bytes of a frame up to the end of its BTH, plain and SRv6.
HEADER_BYTES = tuple(
    wire.ETHERNET.bytes + outer + wire.IPV6.bytes + wire.UDP.bytes + wire.BTH.bytes
    for outer in (0, wire.IPV6.bytes)
)

#: 4-byte words behind the BTH of a write, without and with an immediate.
DATA_BODY_WORDS = (
    (records.DATA_BODY_BITS - wire.IMMDT.bits) // 32,
    records.DATA_BODY_BITS // 32,
)


def header_beats(config: NicConfig) -> int:
    """Beats that the longest header stack touches."""
    return -(-(HEADER_BYTES[1] + records.BODY_BITS // 8) // config.data_bytes)


def payload_places(config: NicConfig) -> list[tuple[int, int]]:
    """Beat and lane of the first payload byte; index: immediate + 2 x SRv6."""
    return [
        divmod(HEADER_BYTES[srv6] + 4 * words, config.data_bytes)
        for srv6 in (0, 1)
        for words in DATA_BODY_WORDS
    ]


def _header_bytes(header: wire.Header, at: int, **fields: Value) -> dict[int, Value]:
    """Bytes of the frame, by position, that hold the given fields of a header which starts at ``at``."""
    bits: list[Value] = [Const(0, 1)] * header.bits
    touched: set[int] = set()
    for name, value in fields.items():
        field = header[name]
        low = header.shift(name)
        assert len(value) <= field.bits, f"{name} has {field.bits} bits"
        for n in range(len(value)):
            bits[low + n] = value[n]
            touched.add((header.bits - 1 - low - n) // 8)
    return {
        at + byte: Cat(bits[header.bits - 8 * byte - 8 : header.bits - 8 * byte]) for byte in sorted(touched)
    }


class HeaderFields(wiring.Component):
    """Combines a plan's fields into one beat of the header, zero where the template or the payload stands.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    plan : In(:func:`mrc_rtl.records.transmit_plan`)
    options : In(:class:`TemplateOptions`)
    datagram : In(14)
        Length of the UDP datagram with the ICRC, in bytes.
    settings : In(:func:`mrc_rtl.records.settings`)
    beat : In
        Number of the beat in the frame, :func:`header_beats` from there on.
    fields : Out(data_width)
        The plan's bytes of that beat.
    image : Out(data_width / 8)
        Lanes whose bytes come from the template.

    Source: profile.md 2 and 3; protocol.md 1.1 to 1.4; :mod:`mrc_rtl.wire`.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "plan": In(records.transmit_plan(config)),
                "options": In(TemplateOptions),
                "datagram": In(14),
                "settings": In(records.settings(config)),
                "beat": In(range(header_beats(config) + 1)),
                "fields": Out(config.data_width),
                "image": Out(config.data_bytes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        lanes = config.data_bytes

        parts = [(self._ethernet(m), self.beat, Const(1)), (self._outer(m), self.beat, self.options.srv6)]
        if wire.IPV6.bytes % lanes == 0:
            # One outer header is a whole number of beats: both stacks share all that follows it.
            inner_beat = Signal.like(self.beat)
            m.d.comb += inner_beat.eq(self.beat - Mux(self.options.srv6, wire.IPV6.bytes // lanes, 0))
            parts.append((self._inner(0), inner_beat, Const(1)))
        else:
            parts += [
                (self._inner(0), self.beat, ~self.options.srv6),
                (self._inner(1), self.beat, self.options.srv6),
            ]
        terms = []
        for number, (places, beat, gate) in enumerate(parts):
            part = Signal(config.data_width, name=f"part{number}")
            beats = {}
            for place, value in places.items():
                beats.setdefault(place // lanes, {})[place % lanes] = value
            with m.If(gate), m.Switch(beat):
                for index, values in beats.items():
                    with m.Case(index):
                        m.d.comb += part.eq(Cat(values.get(lane, Const(0, 8)) for lane in range(lanes)))
            terms.append(part)
        total = terms[0]
        for term in terms[1:]:
            total = total | term
        m.d.comb += self.fields.eq(total)

        for srv6, end in enumerate(HEADER_BYTES):
            with m.If(self.options.srv6 == srv6), m.Switch(self.beat):
                for beat in range(TEMPLATE_WORDS * 8 // lanes):
                    image = sum(
                        1 << lane
                        for lane in range(lanes)
                        if TEMPLATE_IMAGE_OFFSET <= beat * lanes + lane < end
                    )
                    with m.Case(beat):
                        m.d.comb += self.image.eq(image)
        return m

    def _ethernet(self, m: Module) -> dict[int, Value]:
        macs = data.StructLayout({"source": 48, "destination": 48})
        chosen = Signal(macs)
        with m.Switch(self.plan.plane):
            for plane in range(self._config.planes):
                with m.Case(plane):
                    m.d.comb += [
                        chosen.source.eq(self.settings.mac[plane]),
                        chosen.destination.eq(self.settings.next_hop_mac[plane]),
                    ]
        return _header_bytes(wire.ETHERNET, 0, destination=chosen.destination, source=chosen.source)

    def _network(self, at: int, length: Value) -> dict[int, Value]:
        """Fields of an IPv6 header that both levels have."""
        return _header_bytes(
            wire.IPV6,
            at,
            traffic_class=Cat(self.plan.ecn, self.plan.dscp),
            flow_label=self.plan.ev[:16],
            payload_length=length,
        )

    def _outer(self, m: Module) -> dict[int, Value]:
        length = Signal(16)
        m.d.comb += length.eq(self.datagram + wire.IPV6.bytes)
        plane = Signal(3)
        m.d.comb += plane.eq(self.plan.plane)
        ev = wire.EV
        uplink_bits = ev["uplink"].bits
        uplink = self.plan.ev[ev.shift("uplink") : ev.shift("uplink") + uplink_bits]
        places = self._network(_OUTER, length)

        def add(address: str, number: int, with_plane: Value, with_uplink: Value) -> None:
            at = _OUTER + wire.IPV6.byte_offset(address) + wire.USID_BLOCK_BITS // 8
            at += number * wire.USID_BITS // 8
            places.update(
                _header_bytes(
                    wire.USID,
                    at,
                    plane=plane & with_plane.replicate(3),
                    index=uplink & with_uplink.replicate(uplink_bits),
                )
            )

        for number in range(2):  # own T0, own host
            add("source", number, Const(1), Const(0))
        for number in range(wire.USID_PER_ADDRESS):
            add("destination", number, self.options.plane_mask[number], self.options.uplink_mask[number])
        return places

    def _inner(self, srv6: int) -> dict[int, Value]:
        plan = self.plan
        at = HEADER_BYTES[srv6]
        bth = at - wire.BTH.bytes
        udp = bth - wire.UDP.bytes
        pad = (-plan.length)[:2]
        places = self._network(udp - wire.IPV6.bytes, self.datagram)
        places |= _header_bytes(wire.UDP, udp, source_port=plan.ev[16:], length=self.datagram)
        places |= _header_bytes(
            wire.BTH,
            bth,
            opcode=plan.opcode,
            pad_count=pad & plan.data.replicate(2),
            ack_req=plan.ack_request,
            rtx=plan.retransmission,
            ts=plan.timestamped,
            psn=plan.psn,
        )
        words = [
            plan.body[records.BODY_BITS - 32 * n - 32 : records.BODY_BITS - 32 * n]
            for n in range(records.BODY_BITS // 32)
        ]
        for number, word in enumerate(words):
            # What a plan holds behind its last word belongs to the payload.
            there = word & (plan.body_words > number).replicate(32)
            lanes = to_network_order(there)
            for byte in range(4):
                places[at + 4 * number + byte] = lanes[8 * byte : 8 * byte + 8]
        return places
