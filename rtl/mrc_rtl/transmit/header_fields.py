"""The bytes of a frame's headers that are not in a QP's template, beat by beat."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..frame_image import HEADER_BYTES, header_bytes
from ..tables import TEMPLATE_IMAGE_OFFSET
from .template_table import template_options

__all__ = ["DATA_BODY_WORDS", "HeaderFields", "header_beats", "length_bits", "payload_places"]

_OUTER = wire.ETHERNET.bytes

#: 4-byte words behind the BTH of a write, without and with an immediate.
DATA_BODY_WORDS = (
    (records.DATA_BODY_BITS - wire.IMMDT.bits) // 32,
    records.DATA_BODY_BITS // 32,
)


def header_beats(config: NicConfig) -> int:
    """Beats that the longest header stack touches."""
    return -(-(HEADER_BYTES[1] + records.BODY_BITS // 8) // config.data_bytes)


def length_bits(config: NicConfig) -> int:
    """Bits of the length of the longest frame, and so of all lengths in it."""
    return (HEADER_BYTES[1] + records.BODY_BITS // 8 + config.mtu + wire.ICRC.bytes).bit_length()


def payload_places(config: NicConfig) -> list[tuple[int, int]]:
    """Beat and lane of the first payload byte; index: immediate + 2 x SRv6."""
    return [
        divmod(HEADER_BYTES[srv6] + 4 * words, config.data_bytes)
        for srv6 in (0, 1)
        for words in DATA_BODY_WORDS
    ]


class _SumOfProducts:
    """One beat as a sum of bytes, each with the bit that selects it.

    A multiplexer by the beat's number takes four times as many LUTs. A value that stands in the same lane of
    several beats is one term; lanes with the same selection share its bit, which is made one beat ahead where
    the first beat of the frame has no part in it.

    Parameters
    ----------
    at : Signal
        The beat's number, one bit per number.
    start, step : Value
        ``at`` becomes the first beat, or moves on by one.
    srv6 : Value
        The frame has an outer header; known from the first beat on.
    lanes : int
    """

    def __init__(self, at: Signal, start: Value, step: Value, srv6: Value, lanes: int) -> None:
        self._at, self._start, self._step, self._srv6, self._lanes = at, start, step, srv6, lanes
        self._terms: dict[tuple[int, int], tuple[Value, set[tuple[int, int | None, int]]]] = {}
        self._gates: dict[int, Value] = {}

    def add(self, position: int, value: Value, srv6: int | None = None, gate: Value | None = None) -> None:
        """Let a byte of the frame be a value, in frames of one encapsulation only and under a condition."""
        beat, lane = divmod(position, self._lanes)
        if gate is not None:
            self._gates[id(gate)] = gate
        _, places = self._terms.setdefault((lane, id(value)), (value, set()))
        places.add((beat, srv6, 0 if gate is None else id(gate)))

    def total(self, m: Module) -> Value:
        """The beat."""
        selects: dict[frozenset[tuple[int, int | None, int]], Signal] = {}
        sums: list[Value] = [Const(0, 8)] * self._lanes
        for (lane, _), (value, places) in self._terms.items():
            key = frozenset(places)
            if key not in selects:
                selects[key] = chosen = Signal(name=f"chosen{len(selects)}")
                ahead = all(beat for beat, _, _ in places)
                some: Value = Const(0)
                for beat, srv6, gate in sorted(places, key=lambda place: (place[0], place[1] or 0)):
                    one: Value = self._at[beat - ahead]
                    if srv6 is not None:
                        one = one & (self._srv6 == srv6)
                    some = some | (one & self._gates[gate] if gate else one)
                if ahead:
                    with m.If(self._start):
                        m.d.sync += chosen.eq(0)
                    with m.Elif(self._step):
                        m.d.sync += chosen.eq(some)
                else:
                    m.d.comb += chosen.eq(some)
            sums[lane] = sums[lane] | value & selects[key].replicate(8)
        return Cat(sums)


class HeaderFields(wiring.Component):
    """Combines a plan's fields into one beat of the header, zero where template, image or payload stand.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    plan : In(:func:`mrc_rtl.records.transmit_plan`)
    options : In(:func:`template_options`)
    datagram : In(:func:`length_bits`)
        Length of the UDP datagram with the ICRC, in bytes.
    settings : In(:func:`mrc_rtl.records.settings`)
    first_length : In(:func:`length_bits`)
        Payload length of the first IPv6 header of the frame, the outer one if there is one.
    at : In
        Number of the beat in the frame, one bit per number below :func:`header_beats`.
    start, step : In(1)
        In the next cycle ``at`` is the first beat, or the next one; ``plan`` and ``options`` stay the same
        from then on.
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
                "options": In(template_options(config)),
                "datagram": In(length_bits(config)),
                "first_length": In(length_bits(config)),
                "settings": In(records.settings(config)),
                "at": In(header_beats(config)),
                "start": In(1),
                "step": In(1),
                "fields": Out(config.data_width),
                "image": Out(config.data_bytes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self._config.data_bytes
        beat = _SumOfProducts(self.at, self.start, self.step, self.options.srv6, lanes)
        self._ethernet(beat)
        datagram = dict(enumerate((Cat(self.datagram[8:], Const(0, 8))[:8], self.datagram[:8])))
        self._networks(beat, datagram)
        self._usids(beat)
        self._transport(beat, datagram)
        m.d.comb += self.fields.eq(beat.total(m))

        # The template's bytes end behind BTH. Its QP number is not that of an endpoint response.
        inside = _SumOfProducts(self.at, self.start, self.step, self.options.srv6, lanes)
        ones = Const(0xFF, 8)
        to_qp = Signal()
        m.d.comb += to_qp.eq(~self.plan.endpoint)
        number = wire.BTH.byte_offset("dest_qp")
        of_qp = [
            range(start + number, start + number + wire.BTH["dest_qp"].bits // 8)
            for start in (end - wire.BTH.bytes for end in HEADER_BYTES)
        ]
        for position in range(TEMPLATE_IMAGE_OFFSET, HEADER_BYTES[1]):
            plain = position < HEADER_BYTES[0]
            if plain and not any(position in place for place in of_qp):
                inside.add(position, ones)
            else:
                for srv6 in range(not plain, 2):
                    inside.add(position, ones, srv6, to_qp if position in of_qp[srv6] else None)
        image = Signal(self._config.data_width)
        m.d.comb += [image.eq(inside.total(m)), self.image.eq(Cat(image[8 * lane] for lane in range(lanes)))]
        return m

    def _ethernet(self, beat: _SumOfProducts) -> None:
        for plane in range(self._config.planes):
            gate = self.plan.plane == plane
            fields = header_bytes(
                wire.ETHERNET,
                destination=self.settings.next_hop_mac[plane],
                source=self.settings.mac[plane],
            )
            for position, value in fields.items():
                beat.add(position, value, gate=gate)

    def _networks(self, beat: _SumOfProducts, datagram: dict[int, Value]) -> None:
        """Fields that both IPv6 headers have."""
        same = header_bytes(
            wire.IPV6, traffic_class=Cat(self.plan.ecn, self.plan.dscp), flow_label=self.plan.ev[:16]
        )
        first = header_bytes(wire.IPV6, payload_length=self.first_length)
        for position, value in (same | first).items():
            beat.add(_OUTER + position, value)
        second = _OUTER + wire.IPV6.bytes
        for position, value in same.items():
            beat.add(second + position, value, srv6=1)
        for byte, value in datagram.items():
            beat.add(second + wire.IPV6.byte_offset("payload_length") + byte, value, srv6=1)

    def _usids(self, beat: _SumOfProducts) -> None:
        """Plane and uplink in the outer addresses."""
        uplink_low = wire.EV.shift("uplink")
        uplink = self.plan.ev[uplink_low : uplink_low + wire.EV["uplink"].bits]
        plane_bytes = header_bytes(wire.USID, plane=self.plan.plane)
        uplink_bytes = header_bytes(wire.USID, index=uplink)

        def add(address: str, number: int, values: dict[int, Value], gate: Value | None = None) -> None:
            at = _OUTER + wire.IPV6.byte_offset(address) + wire.USID_BLOCK_BITS // 8
            for byte, value in values.items():
                beat.add(at + number * wire.USID_BITS // 8 + byte, value, srv6=1, gate=gate)

        for number in range(2):  # own T0, own host
            add("source", number, plane_bytes)
        for number in range(wire.USID_PER_ADDRESS):
            add("destination", number, plane_bytes, self.options.plane_mask[number])
            add("destination", number, uplink_bytes, self.options.uplink_mask[number])

    def _transport(self, beat: _SumOfProducts, datagram: dict[int, Value]) -> None:
        """UDP behind one or two IPv6 headers, and the time in TSETH; all else behind it is the image."""
        udp = header_bytes(wire.UDP, source_port=self.plan.ev[16:])
        udp |= {wire.UDP.byte_offset("length") + byte: value for byte, value in datagram.items()}
        time = header_bytes(wire.TSETH, tx_timestamp=self.plan.time)
        for srv6, end in enumerate(HEADER_BYTES):
            for position, value in udp.items():
                beat.add(end - wire.BTH.bytes - wire.UDP.bytes + position, value, srv6)
            for position, value in time.items():
                beat.add(end + wire.METH.bytes + position, value, srv6, self.plan.data)
