"""Builds frames: header template, fields of the plan, body, payload."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..frame_image import HEADER_BYTES, image_beats, image_words
from ..paths.images import image_word_bits
from ..stream import PacketStream, TableBus
from .beat_join import BeatJoin, payload_lanes
from .header_fields import HeaderFields, header_beats, length_bits, payload_places
from .payload_fetch import slot_bits, slot_record
from .template_table import TemplateTable, template_rows

__all__ = ["HeaderBuilder", "longest_frame"]

_UDP_BTH_ICRC = wire.UDP.bytes + wire.BTH.bytes + wire.ICRC.bytes
_BEFORE_DATAGRAM = HEADER_BYTES[0] - wire.BTH.bytes - wire.UDP.bytes  # without outer header


def longest_frame(config: NicConfig) -> int:
    """Bytes of the longest frame without ICRC and FCS."""
    return HEADER_BYTES[1] + records.DATA_BODY_BITS // 8 + config.mtu


class HeaderBuilder(wiring.Component):
    """Turns plans into frames without ICRC, one beat per cycle, back to back.

    Three stages: *issue* counts beats, addresses the template, the image and the slot and combines the
    plan's fields; *data* has what was addressed and puts it into its lanes; *output* is the frame's beat, the
    sum of it all. Once a frame has begun it does not stop: what follows has room for it. After a frame whose
    ICRC needs a beat of its own one cycle stays empty.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    plan : In(stream of :func:`mrc_rtl.records.transmit_plan`)
    allow : In(1)
        The frame of the plan on offer may start (its plane has room); not looked at for a discarded one.
    table : In(TableBus)
        Templates.
    settings : In(:func:`mrc_rtl.records.settings`)
    image_read, image_row, image_word : Out
        Read a word of the packet's image (:mod:`mrc_rtl.frame_image`); what stands behind the body's last
        word is ignored.
    image_data : In(data_width)
        That word, one cycle later.
    image_done, image_done_row : Out
        Pulse: this frame is built.
    read_slot, read_beat : Out
        Address of a payload beat.
    read_data : In(data_width)
        That beat, one cycle later.
    free : Out(stream of slot_record)
        The slot's last beat was read, or its packet discarded.
    frame : Out(PacketStream)
        Frames whose length is 2 modulo 4; ``tready`` must be high while a frame is on its way.
    frame_srv6, frame_plane : Out
        Encapsulation and plane of that frame, constant over it.
    idle : Out(1)
        No frame is on its way and no plan waits.

    Source: profile.md 2, 3 and 6; protocol.md 1.1 to 1.4; :mod:`mrc_rtl.tables` for the template.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "plan": In(stream.Signature(records.transmit_plan(config))),
                "allow": In(1),
                "table": In(TableBus()),
                "settings": In(records.settings(config)),
                "image_read": Out(1),
                "image_row": Out(records.image_row_bits(config)),
                "image_word": Out(image_word_bits(config)),
                "image_data": In(config.data_width),
                "image_done": Out(1),
                "image_done_row": Out(records.image_row_bits(config)),
                "read_slot": Out(slot_bits(config)),
                "read_beat": Out(range(config.mtu // config.data_bytes)),
                "read_data": In(config.data_width),
                "free": Out(stream.Signature(slot_record(config))),
                "frame": Out(PacketStream(config.data_width)),
                "frame_srv6": Out(1),
                "frame_plane": Out(records.plane_bits(config)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        lanes = config.data_bytes
        lane_bits = (lanes - 1).bit_length()
        m.submodules.templates = templates = TemplateTable(config)
        m.submodules.fields = fields = HeaderFields(config)
        wiring.connect(m, wiring.flipped(self.table), templates.table)

        # Start: a plan is taken while the frame before it issues its last beat.
        plan = Signal(records.transmit_plan(config))
        offered = self.plan.payload
        active = Signal()
        finish = Signal()
        start = Signal()
        longest_beats = -(-longest_frame(config) // lanes)
        beat = Signal(range(longest_beats + 1))
        at = Signal(header_beats(config))  # one bit per beat of the headers
        datagram = Signal(length_bits(config))
        free_clear = Signal()
        m.d.comb += [
            free_clear.eq(~self.free.valid | self.free.ready),
            self.plan.ready.eq(
                (~active | finish) & free_clear & ~templates.waiting & (offered.discard | self.allow)
            ),
            start.eq(self.plan.valid & self.plan.ready),
            templates.look.eq(start),
            templates.look_qp.eq(offered.qp),
        ]
        with m.If(self.free.ready):
            m.d.sync += self.free.valid.eq(0)
        with m.If(finish):
            m.d.sync += active.eq(0)
        with m.If(start):
            m.d.sync += [
                plan.eq(offered),
                active.eq(1),
                datagram.eq(_datagram(offered)),
            ]

        # Issue.
        options = templates.options
        issuing = Signal()
        gap = Signal()
        last_beat = Signal.like(beat)
        last_groups = Signal(range(lanes // 4))
        last = Signal()
        split = Signal()
        first_length = Signal.like(datagram)
        end = Signal.like(datagram)  # position of the frame's last byte, the ICRC not counted
        m.d.comb += [
            first_length.eq(datagram + Mux(options.srv6, wire.IPV6.bytes, 0)),
            end.eq(first_length + (_BEFORE_DATAGRAM - 1 - wire.ICRC.bytes)),
            issuing.eq(active & ~plan.discard & ~gap),
            last.eq(issuing & (beat != 0) & (beat == last_beat)),
            split.eq(last_groups == lanes // 4 - 1),
            finish.eq(active & (plan.discard | gap | last & ~split) & free_clear),
        ]
        m.d.sync += [
            last_beat.eq(end >> lane_bits),
            last_groups.eq(end[2:lane_bits]),
            gap.eq((last | gap) & ~finish),
        ]
        with m.If(start):
            m.d.sync += [beat.eq(0), at.eq(1)]
        with m.Elif(issuing):
            m.d.sync += [beat.eq(beat + 1), at.eq(at << 1)]
        with m.If(finish & (plan.data | plan.discard)):
            m.d.sync += [self.free.valid.eq(1), self.free.payload.slot.eq(plan.row)]
        m.d.comb += [
            fields.plan.eq(plan),
            fields.options.eq(options),
            fields.datagram.eq(datagram),
            fields.settings.eq(self.settings),
            fields.first_length.eq(first_length),
            fields.at.eq(at),
            fields.start.eq(start),
            fields.step.eq(issuing),
            templates.read.eq(issuing & (beat < template_rows(config))),
            templates.read_bank.eq(options.bank),
            templates.read_row.eq(beat),
        ]
        places = payload_places(config)
        place = Signal(2)
        shifts = payload_lanes(config)
        shift = Signal(range(max(2, len(shifts))))
        first_payload = Signal()
        paying = Signal()
        payload = Signal()
        payload_beat = Signal.like(self.read_beat)
        m.d.comb += [
            place.eq(Cat(plan.body_words[0], options.srv6)),
            payload.eq(plan.data & (paying | first_payload)),
            self.read_slot.eq(plan.row),
            self.read_beat.eq(payload_beat),
        ]
        with m.Switch(place):
            for number, (first, lane) in enumerate(places):
                with m.Case(number):
                    m.d.comb += [first_payload.eq(at[first]), shift.eq(shifts.index(lane))]
        with m.If(start):
            m.d.sync += [paying.eq(0), payload_beat.eq(0)]
        with m.Elif(issuing & payload):
            m.d.sync += [paying.eq(1), payload_beat.eq(payload_beat + 1)]

        # The image: words are counted from the beat in which it begins. Of its first word what stands before
        # BTH is left out, of the last word of a write without immediate the immediate.
        imaging = Signal()
        imaged = Signal()
        image_word = Signal.like(self.image_word)
        image_last = Signal()
        plain_beat, srv6_beat = image_beats(config)
        data_words, control_words = (image_words(config, control=control) for control in (False, True))
        m.d.comb += [
            imaging.eq(imaged | Mux(options.srv6, at[srv6_beat], at[plain_beat])),
            image_last.eq(image_word == Mux(plan.data, data_words - 1, control_words - 1)),
            self.image_read.eq(issuing & imaging),
            self.image_row.eq(plan.row),
            self.image_word.eq(image_word),
        ]
        with m.If(start):
            m.d.sync += [imaged.eq(0), image_word.eq(0)]
        with m.Elif(self.image_read):
            m.d.sync += [imaged.eq(~image_last), image_word.eq(image_word + 1)]
        m.d.sync += [self.image_done.eq(finish), self.image_done_row.eq(plan.row)]

        # Data.
        there = Signal()
        data_last = Signal()
        data_groups = Signal.like(last_groups)
        data_fields = Signal(config.data_width)
        data_image = Signal(lanes)
        data_payload = Signal()
        data_shift = Signal.like(shift)
        data_srv6 = Signal()
        data_plane = Signal.like(self.frame_plane)
        m.d.sync += there.eq(issuing)
        with m.If(issuing):
            m.d.sync += [
                data_last.eq(last),
                data_groups.eq(last_groups),
                data_fields.eq(fields.fields),
                data_image.eq(fields.image),
                data_payload.eq(payload),
                data_shift.eq(shift),
                data_srv6.eq(options.srv6),
                data_plane.eq(plan.plane),
            ]
        image_there = Signal()
        image_first = Signal()
        image_short = Signal()
        m.d.sync += [
            image_there.eq(self.image_read),
            image_first.eq(image_word == 0),
            image_short.eq(image_last & plan.data & ~plan.body_words[0]),
        ]
        m.submodules.join = join = BeatJoin(config)
        m.d.comb += [
            join.template.eq(templates.read_data),
            join.template_lanes.eq(data_image),
            join.fields.eq(data_fields),
            join.image.eq(self.image_data),
            join.image_there.eq(image_there),
            join.image_first.eq(image_first),
            join.image_short.eq(image_short),
            join.srv6.eq(data_srv6),
            join.payload.eq(self.read_data),
            join.payload_there.eq(data_payload),
            join.shift.eq(data_shift),
            join.last.eq(data_last),
        ]

        # Output.
        frame = self.frame
        m.d.sync += frame.tvalid.eq(there)
        with m.If(there):
            m.d.sync += [
                frame.tlast.eq(data_last),
                frame.tkeep.eq(
                    # Two bytes of the last group of four.
                    Cat(~data_last | (data_groups >= (lane + 2) // 4) for lane in range(lanes))
                ),
                self.frame_srv6.eq(data_srv6),
                self.frame_plane.eq(data_plane),
            ]
        m.d.comb += frame.tdata.eq(join.beat)
        m.d.comb += self.idle.eq(
            ~(active | there | frame.tvalid | self.plan.valid | self.free.valid) & templates.idle
        )
        return m


def _datagram(plan: Value) -> Value:
    """Bytes of the UDP datagram with the ICRC. It is words of four bytes; the pad is the adder's carry."""
    words = plan.body_words + _UDP_BTH_ICRC // 4
    total = Cat(Const(1, 1), plan.length[2:]) + Cat(plan.length[:2].any(), words)
    return Cat(Const(0, 2), total[1:])
