"""Waiting packets as images of their frames, in one memory as wide as the data path."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..frame_image import header_bytes, image_head, image_lane, image_words
from ..layouts import PETH as PETH_LAYOUT
from ..layouts import to_network_order
from ..records import BODY_BITS, CONTROL_IMAGES, control_request, image_row_bits, path_probe
from ..requester.records import slot_packet
from ..wire import BTH, ENDPOINT_QPN, METH, PETH, RETH, TSETH, Opcode

__all__ = ["PacketImages", "image_word_bits"]

#: 4-byte words of a data packet's body without immediate.
_DATA_WORDS = (METH.bytes + TSETH.bytes + RETH.bytes) // 4


def image_word_bits(config: NicConfig) -> int:
    """Bits of the number of a word in an image."""
    return max(1, (image_words(config, control=True) - 1).bit_length())


class PacketImages(wiring.Component):
    """Writes packets down as images, a word a cycle; bind reads their heads, the transmitter their words.

    Data and control packets take turns when both wait, and probes use the turns that control packets leave.
    A data packet has the image of its slot, a control packet or probe any that is free. Where a packet takes
    its time both readers share one port, at which the transmitter comes first; else each has its own.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    packet : In(stream of :func:`mrc_rtl.requester.records.slot_packet`)
    control : In(stream of :func:`mrc_rtl.records.control_request`)
        Taken with the last word, a cycle before that is in the memory; ready does not depend on valid.
    probe : In(stream of :func:`mrc_rtl.records.path_probe`)
        Likewise.
    now : In(16)
        Ticks: the time of a probe.
    hold_control : In(1)
        Begin with no control packet or probe.
    control_taken, probe_taken, image : Out
        In this cycle the control packet or the probe is taken; the number of its image.
    done, done_row : In
        Pulse: the image is not read any more.
    ask, ask_row : In
        Pulse: read the head of a packet. The row stays until the answer.
    answer : Out(1)
        In this cycle ``head`` and ``opcode`` are the packet's.
    head : Out(:func:`mrc_rtl.frame_image.image_head`)
    opcode : Out(8)
    read, read_row, read_word : In
        Read a word of an image.
    read_data : Out(data_width)
        That word, one cycle later.
    idle : Out(1)
        Nothing is being written or asked for, and no image of a control packet is in use.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        row = image_row_bits(config)
        super().__init__(
            {
                "packet": In(stream.Signature(slot_packet(config))),
                "control": In(stream.Signature(control_request(config))),
                "probe": In(stream.Signature(path_probe(config))),
                "now": In(16),
                "hold_control": In(1),
                "control_taken": Out(1),
                "probe_taken": Out(1),
                "image": Out(range(CONTROL_IMAGES)),
                "done": In(1),
                "done_row": In(row),
                "ask": In(1),
                "ask_row": In(row),
                "answer": Out(1),
                "head": Out(image_head(config)),
                "opcode": Out(8),
                "read": In(1),
                "read_row": In(row),
                "read_word": In(image_word_bits(config)),
                "read_data": Out(config.data_width),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        width = config.data_width
        word_bits = image_word_bits(config)
        m.submodules.memory = memory = Memory(
            shape=width, depth=1 << image_row_bits(config) + word_bits, init=[]
        )
        write_port = memory.write_port()
        read_port = memory.read_port()

        # Which word of which kind of packet is written: a number, and one bit for each.
        is_control, is_probe = Signal(), Signal()
        word = Signal(word_bits)
        data_at = Signal(image_words(config, control=False), init=1)
        control_at = Signal(image_words(config, control=True))
        probe_at = Signal(image_words(config, control=True))
        write = Signal()
        last = Signal()
        next_control, next_probe = Signal(), Signal()
        used = Signal(CONTROL_IMAGES)
        may = Signal()
        m.d.comb += [
            write.eq(Mux(is_control, self.control.valid, Mux(is_probe, self.probe.valid, self.packet.valid))),
            last.eq(data_at[-1] | control_at[-1] | probe_at[-1]),
            may.eq(~is_control & ~is_probe & ~self.hold_control & ~used.all()),
            next_control.eq(may & self.control.valid),
            next_probe.eq(may & ~self.control.valid & self.probe.valid),
            self.packet.ready.eq(data_at[-1]),
            self.control.ready.eq(control_at[-1]),
            self.probe.ready.eq(probe_at[-1]),
        ]
        with m.If(last | ~write):
            m.d.sync += [
                is_control.eq(next_control),
                is_probe.eq(next_probe),
                word.eq(0),
                data_at.eq(~(next_control | next_probe)),
                control_at.eq(next_control),
                probe_at.eq(next_probe),
            ]
        with m.Else():
            m.d.sync += [word.eq(word + 1)]
            m.d.sync += [at.eq(at << 1) for at in (data_at, control_at, probe_at)]
        # Each word of each kind has a register that is zero unless it is its turn: a flip-flop's reset
        # costs nothing, and a sum takes half the LUTs of a multiplexer. The memory is written a cycle later.
        written: list[Value] = [Const(0, 1)] * width
        images = {"data": self._data_image, "control": self._control_image, "probe": self._probe_image}
        for at, (kind, drawn) in zip((data_at, control_at, probe_at), images.items(), strict=True):
            image = drawn(m)
            for number in range(len(at)):
                bits = image[number * width : (number + 1) * width]
                used_bits = [n for n, bit in enumerate(bits) if bit is not None]
                part = Signal(len(used_bits), name=f"{kind}{number}", reset_less=True)
                with m.If(at[number]):
                    m.d.sync += part.eq(Cat(bits[n] for n in used_bits))
                with m.Else():
                    m.d.sync += part.eq(0)
                for place, n in enumerate(used_bits):
                    written[n] = written[n] | part[place]
        written_row = Signal.like(self.read_row)
        written_word = Signal.like(word)
        writing = Signal()
        m.d.sync += [
            writing.eq(write),
            written_word.eq(word),
            written_row.eq(Mux(is_control | is_probe, self.image, self.packet.payload.slot)),
            written_row[-1].eq(is_control | is_probe),
        ]
        m.d.comb += [
            write_port.en.eq(writing),
            write_port.addr.eq(Cat(written_word, written_row)),
            write_port.data.eq(Cat(written)),
        ]

        # Images of control packets; one is chosen before its write begins.
        free = Signal.like(self.image)
        for image in reversed(range(CONTROL_IMAGES)):
            with m.If(~used[image]):
                m.d.comb += free.eq(image)
        with m.If(~is_control & ~is_probe):
            m.d.sync += self.image.eq(free)
        done = self.done & self.done_row[-1]
        taken = self.control_taken | self.probe_taken
        come = (taken << self.image)[:CONTROL_IMAGES]
        gone = (done << self.done_row[:-1])[:CONTROL_IMAGES]
        m.d.comb += [
            self.control_taken.eq(self.control.valid & self.control.ready),
            self.probe_taken.eq(self.probe.valid & self.probe.ready),
        ]
        with m.If(taken | done):
            m.d.sync += used.eq((used | come) & ~gone)

        # Read.
        wanted = Signal()
        granted = Signal()
        word_address = Cat(self.read_word, self.read_row)
        head_address = Cat(Const(0, word_bits), self.ask_row)
        if config.packet_interval > 4:
            head_port = read_port
            m.d.comb += [
                granted.eq((self.ask | wanted) & ~self.read),
                read_port.addr.eq(Mux(self.read, word_address, head_address)),
            ]
        else:
            head_port = memory.read_port()
            m.d.comb += [
                granted.eq(self.ask),
                head_port.addr.eq(head_address),
                read_port.addr.eq(word_address),
            ]
        m.d.sync += [wanted.eq((self.ask | wanted) & ~granted), self.answer.eq(granted)]
        lane = image_lane(config)
        m.d.comb += [
            self.read_data.eq(read_port.data),
            self.head.eq(head_port.data),
            self.opcode.eq(head_port.data[8 * lane : 8 * lane + 8]),
            self.idle.eq(
                ~(
                    self.packet.valid
                    | self.control.valid
                    | self.probe.valid
                    | writing
                    | self.ask
                    | wanted
                    | self.answer
                    | used.any()
                )
            ),
        ]
        return m

    def _image(self, head: Value, bth: dict[int, Value], body: Value) -> list[Value | None]:
        """The bits of a whole image; None is a bit that is always 0."""
        lane = image_lane(self.config)
        image: list[Value | None] = [None] * (image_words(self.config, control=True) * self.config.data_width)

        def place(byte: int, value: Value) -> None:
            image[8 * byte : 8 * byte + len(value)] = list(value)

        assert len(head) <= 8 * lane
        place(0, head)
        for position, value in bth.items():
            place(lane + position, value)
        place(lane + BTH.bytes, to_network_order(body))
        return image

    def _data_image(self, m: Module) -> list[Value | None]:
        packet = self.packet.payload.descriptor
        head = Signal(image_head(self.config), name="data_head")
        m.d.comb += [
            head.psn.eq(packet.psn),
            head.retransmission.eq(packet.retransmission),
            head.body_words.eq(_DATA_WORDS + packet.immediate),
            head.length.eq(packet.length),
        ]
        bth = header_bytes(
            BTH,
            opcode=packet.opcode,
            pad_count=(-packet.length)[:2],
            ack_req=packet.ack_request,
            rtx=packet.retransmission,
            ts=Const(1, 1),
            psn=packet.psn,
        )
        return self._image(head.as_value(), bth, packet.body)

    def _control_image(self, m: Module) -> list[Value | None]:
        packet = self.control.payload
        head = Signal(image_head(self.config), name="control_head")
        m.d.comb += [
            head.psn.eq(packet.psn),
            head.retransmission.eq(packet.retransmission),
            head.body_words.eq(packet.body_words),
        ]
        endpoint = packet.opcode == Opcode.ENDPOINT_RESPONSE
        bth = header_bytes(
            BTH,
            opcode=packet.opcode,
            dest_qp=Mux(endpoint, ENDPOINT_QPN, 0),
            rtx=packet.retransmission,
            psn=packet.psn,
        )
        return self._image(head.as_value(), bth, packet.body)

    def _probe_image(self, m: Module) -> list[Value | None]:
        head = Signal(image_head(self.config), name="probe_head")
        peth = Signal(PETH_LAYOUT)
        stamp = TSETH["ftype"].default
        m.d.comb += [
            head.body_words.eq(PETH.bytes // 4),
            peth.probe_id.eq(self.probe.payload.number),
            peth.tx_timestamp.eq(self.now),
            peth.ftype.eq(stamp),
        ]
        body = Cat(Const(0, BODY_BITS - PETH.bits), peth)
        bth = header_bytes(BTH, opcode=Const(Opcode.PROBE, 8))
        return self._image(head.as_value(), bth, body)
