"""The bytes of a frame's headers that are not in a QP's template, beat by beat."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
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


#: Bytes of the frame by position, each group with the condition under which it is there.
_Fields = list[tuple[Value, dict[int, Value]]]


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

        stacks = [(self._ethernet(), self.beat, Const(1)), (self._outer(m), self.beat, self.options.srv6)]
        if wire.IPV6.bytes % lanes == 0:
            # One outer header is a whole number of beats: both stacks share all that follows it.
            inner_beat = Signal.like(self.beat)
            m.d.comb += inner_beat.eq(self.beat - Mux(self.options.srv6, wire.IPV6.bytes // lanes, 0))
            stacks.append((self._inner(0), inner_beat, Const(1)))
        else:
            stacks += [
                (self._inner(0), self.beat, ~self.options.srv6),
                (self._inner(1), self.beat, self.options.srv6),
            ]
        # A sum of products with one selecting bit per beat and condition; a multiplexer by the beat's number
        # takes four times as many LUTs.
        total: Value = Const(0)
        for fields, beat, stack_gate in stacks:
            for gate, places in fields:
                beats: dict[int, dict[int, Value]] = {}
                for place, value in places.items():
                    beats.setdefault(place // lanes, {})[place % lanes] = value
                for number, values in beats.items():
                    chosen = Signal(name=f"chosen{number}")
                    m.d.comb += chosen.eq((beat == number) & stack_gate & gate)
                    whole = Cat(values.get(lane, Const(0, 8)) for lane in range(lanes))
                    total = total | whole & chosen.replicate(config.data_width)
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

    def _ethernet(self) -> _Fields:
        return [
            (
                self.plan.plane == plane,
                _header_bytes(
                    wire.ETHERNET,
                    0,
                    destination=self.settings.next_hop_mac[plane],
                    source=self.settings.mac[plane],
                ),
            )
            for plane in range(self._config.planes)
        ]

    def _network(self, at: int, length: Value) -> dict[int, Value]:
        """Fields of an IPv6 header that both levels have."""
        return _header_bytes(
            wire.IPV6,
            at,
            traffic_class=Cat(self.plan.ecn, self.plan.dscp),
            flow_label=self.plan.ev[:16],
            payload_length=length,
        )

    def _outer(self, m: Module) -> _Fields:
        length = Signal(16)
        m.d.comb += length.eq(self.datagram + wire.IPV6.bytes)
        uplink_low = wire.EV.shift("uplink")
        uplink = self.plan.ev[uplink_low : uplink_low + wire.EV["uplink"].bits]

        def usid(address: str, number: int, **fields: Value) -> dict[int, Value]:
            at = _OUTER + wire.IPV6.byte_offset(address) + wire.USID_BLOCK_BITS // 8
            return _header_bytes(wire.USID, at + number * wire.USID_BITS // 8, **fields)

        plane = self.plan.plane
        always = self._network(_OUTER, length)
        for number in range(2):  # own T0, own host
            always |= usid("source", number, plane=plane)
        fields = [(Const(1), always)]
        for number in range(wire.USID_PER_ADDRESS):
            fields.append((self.options.plane_mask[number], usid("destination", number, plane=plane)))
            fields.append((self.options.uplink_mask[number], usid("destination", number, index=uplink)))
        return fields

    def _inner(self, srv6: int) -> _Fields:
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
        fields = [(Const(1), places)]
        for number in range(records.BODY_BITS // 32):
            high = records.BODY_BITS - 32 * number
            lanes = to_network_order(plan.body[high - 32 : high])
            # What a plan holds behind its last word belongs to the payload.
            fields.append(
                (
                    plan.body_words > number,
                    {at + 4 * number + byte: lanes[8 * byte : 8 * byte + 8] for byte in range(4)},
                )
            )
        return fields
