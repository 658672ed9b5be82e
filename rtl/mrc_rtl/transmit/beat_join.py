"""Joins template, fields, image and payload into the beats of a frame."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import wire
from ..config import NicConfig
from ..frame_image import image_lane, image_rotation, image_words
from .header_fields import DATA_BODY_WORDS, payload_places

__all__ = ["BeatJoin", "payload_lanes"]


def payload_lanes(config: NicConfig) -> list[int]:
    """Lanes in which the first payload byte of a frame can stand, ascending."""
    return sorted({lane for _, lane in payload_places(config)})


class BeatJoin(wiring.Component):
    """Adds up what a beat consists of: each part has its lanes, and is zero in all others.

    The parts stand in registers of their own, whose resets keep the lanes apart and cost nothing; a
    multiplexer would take several LUTs a bit. Payload is shifted to its first lane; what a beat has no room
    for comes with the next one. So do images behind an outer header, where it is no multiple of a beat.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    template, template_lanes : In(data_width), In(data_width / 8)
        Beat of the template, and which lanes count.
    fields : In(data_width)
        Bytes of the plan, zero elsewhere.
    image, image_there, image_first, image_short : In
        Word of the packet's image, whether it is there, is the first one (in which other things stand before
        BTH), and is the last one of a write without immediate (whose lanes hold anything).
    srv6 : In(1)
        The frame has an outer header.
    payload, payload_there, shift : In
        Beat of the slot, whether it is there, and the number of its lane in :func:`payload_lanes`.
    last : In(1)
        Last beat of a frame. The beats of a frame come in successive cycles.
    beat : Out(data_width)
        The sum, one cycle later.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        width = config.data_width
        super().__init__(
            {
                "template": In(width),
                "template_lanes": In(config.data_bytes),
                "fields": In(width),
                "image": In(width),
                "image_there": In(1),
                "image_first": In(1),
                "image_short": In(1),
                "srv6": In(1),
                "payload": In(width),
                "payload_there": In(1),
                "shift": In(range(max(2, len(payload_lanes(config))))),
                "last": In(1),
                "beat": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        width = config.data_width
        lanes = config.data_bytes
        of_template, of_fields, of_image, now, late = (
            Signal(width, name=name, reset_less=True)
            for name in ("of_template", "of_fields", "of_image", "now", "late")
        )
        m.d.sync += of_fields.eq(self.fields)
        for lane in range(lanes):
            _gate(m, of_template, lane, self.template, self.template_lanes[lane])

        # Payload: lanes from its first one on are of this beat, those below of the one before.
        shifted = Signal(width)
        held = Signal(width, reset_less=True)
        held_there = Signal()
        starts = payload_lanes(config)
        with m.Switch(self.shift):
            for number, start in enumerate(starts):
                with m.Case(number):
                    m.d.comb += shifted.eq(self.payload.rotate_left(8 * start))
        m.d.sync += [held.eq(shifted), held_there.eq(self.payload_there & ~self.last)]
        for lane in range(lanes):
            below = Cat(self.shift == number for number, start in enumerate(starts) if lane < start).any()
            _gate(m, now, lane, shifted, self.payload_there & ~below)
            _gate(m, late, lane, held, held_there & below)

        self._image(m, of_image)
        m.d.comb += self.beat.eq(of_template | of_fields | of_image | now | late)
        return m

    def _image(self, m: Module, of_image: Signal) -> None:
        config = self._config
        lanes = config.data_bytes
        start = image_lane(config)
        # Lanes of an immediate, all in the last word of a data packet.
        behind = start + wire.BTH.bytes + 4 * DATA_BODY_WORDS[0]
        immediate = range(behind, behind + wire.IMMDT.bytes)
        last = image_words(config, control=False) - 1
        assert all(lane // lanes == last for lane in immediate)
        there: list[Value] = []
        for lane in range(lanes):
            lets: Value = self.image_there
            if lane < start:
                lets = lets & ~self.image_first
            if last * lanes + lane in immediate:
                lets = lets & ~self.image_short
            there.append(lets)
        rotation = image_rotation(config)
        if not rotation:
            for lane, lets in enumerate(there):
                _gate(m, of_image, lane, self.image, lets)
            return
        word = Signal(config.data_width)
        rest = Signal(8 * rotation)
        turned = word.rotate_left(8 * rotation)
        m.d.comb += word.eq(self.image & Cat(lets.replicate(8) for lets in there))
        m.d.sync += [
            of_image.eq(Mux(self.srv6, Cat(rest, turned[8 * rotation :]), word)),
            rest.eq(Mux(self.last, 0, turned)),
        ]


def _gate(m: Module, target: Signal, lane: int, value: Value, lets: Value) -> None:
    """Let the lane's byte of a part be the value's, or zero by the register's reset."""
    place = slice(8 * lane, 8 * lane + 8)
    with m.If(lets):
        m.d.sync += target[place].eq(value[place])
    with m.Else():
        m.d.sync += target[place].eq(0)
