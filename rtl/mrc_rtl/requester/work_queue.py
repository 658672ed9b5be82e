"""The send requests on chip."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..stream import TableBus
from ..tables import SEND_REQUEST, WorkRequestOpcode
from .records import request_info, request_layout, send_slot_bits

__all__ = ["WorkQueue"]

_WORDS = SEND_REQUEST.words


class WorkQueue(wiring.Component):
    """Memory of the send requests of all QPs, written by the host and read serially.

    Requests stay until the host overwrites them, which it does after their completion: every packet, new or
    again, is built from here. Beside the requests stands a narrow memory with what opening and completing a
    request needs, so that scheduling never waits for a serial read.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus
        SEND_REQUEST. A request is written word by word, in ascending order; the engine does not look at it
        before the doorbell. The entry's last word completes it.
    info_index, info : qp_bits + slot bits, request_info
        Look-up; ``info`` is valid one cycle after ``info_index``.
    read, read_index, read_done, request
        ``read`` (pulse, only while no read runs) loads the request into ``request``; ``read_done`` pulses
        when it is complete there.
    wr_read, wr_index, wr_done, wr_id
        ``wr_read`` stays until ``wr_done``, which comes with ``wr_id``.
    changed : 1
        A request was written in this cycle: what was read before may be old.
    idle : 1

    Source: profile.md 7.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        self.index_bits = config.qp_bits + send_slot_bits(config)
        super().__init__(
            {
                "table": In(TableBus()),
                "info_index": In(self.index_bits),
                "info": Out(request_info()),
                "read": In(1),
                "read_index": In(self.index_bits),
                "read_done": Out(1),
                "request": Out(request_layout()),
                "wr_read": In(1),
                "wr_index": In(self.index_bits),
                "wr_done": Out(1),
                "wr_id": Out(64),
                "changed": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        width = config.context_word_bits
        lanes = width // 64
        rows = -(-_WORDS // lanes)
        row_bits = (rows - 1).bit_length()
        lane_bits = (lanes - 1).bit_length()
        requests = config.qps * config.send_queue_depth
        m.submodules.words = words = Memory(shape=width, depth=requests << row_bits, init=[])
        read_port, write_port = words.read_port(), words.write_port()
        m.submodules.infos = infos = Memory(shape=request_info(), depth=requests, init=[])
        info_port, info_write = infos.read_port(), infos.write_port()
        m.d.comb += [info_port.addr.eq(self.info_index), self.info.eq(info_port.data)]

        table = self.table
        index = table.index[: self.index_bits]
        in_range = Signal()
        m.d.comb += in_range.eq((table.index < requests) & (table.word < _WORDS))
        table_wait = Signal()
        taken = Signal()
        written = Signal()  # without a look at the read port
        m.d.comb += [taken.eq(table.valid & table.ready), written.eq(table.valid & table.write & ~table_wait)]

        # Host writes: words that share a row are collected below the one that completes the row.
        below = [Signal(64, name=f"below{n}") for n in range(lanes - 1)]
        row_data = []
        for lane in range(lanes - 1):
            current = Signal(64, name=f"lane{lane}")
            m.d.comb += current.eq(below[lane])
            with m.If(table.word[:lane_bits] == lane):
                m.d.comb += current.eq(table.write_data)
                with m.If(written):
                    m.d.sync += below[lane].eq(table.write_data)
            row_data.append(current)
        row_data.append(table.write_data)
        row_end = (table.word[:lane_bits] == lanes - 1) if lanes > 1 else 1
        m.d.comb += [
            write_port.data.eq(Cat(*row_data)),
            write_port.addr.eq(Cat(table.word[lane_bits : lane_bits + row_bits], index)),
            write_port.en.eq(written & in_range & (row_end | table.last)),
            self.changed.eq(written),
        ]
        length = Signal(32)
        with m.If(written & (table.word == SEND_REQUEST.field("length").word)):
            m.d.sync += length.eq(table.write_data[:32])
        opcode = table.write_data[:8]
        immediate = opcode == WorkRequestOpcode.WRITE_WITH_IMM
        m.d.comb += [
            info_write.addr.eq(index),
            info_write.data.length.eq(length),
            info_write.data.immediate.eq(immediate),
            info_write.data.signalled.eq(table.write_data[SEND_REQUEST.field("signalled").low]),
            info_write.data.valid.eq(immediate | ((opcode == WorkRequestOpcode.WRITE) & (length != 0))),
            info_write.en.eq(written & in_range & (table.word == SEND_REQUEST.field("opcode").word)),
        ]

        # One read port: a request being loaded first, then a wr_id, then the host.
        loading = Signal()
        load_row = Signal(max(1, row_bits))
        load_index = Signal(self.index_bits)
        arriving = Signal()
        arriving_row = Signal(max(1, row_bits))
        use_load = Signal()
        use_wr = Signal()
        use_table = Signal()
        wr_wait = Signal()
        table_lane = Signal(max(1, lane_bits))
        m.d.comb += [
            use_load.eq(self.read | loading),
            use_wr.eq(self.wr_read & ~wr_wait & ~use_load),
            use_table.eq(taken & ~table.write),
            table.ready.eq(~table_wait & (table.write | ~(use_load | use_wr))),
        ]
        first_row = Mux(loading, load_row, 0)[:row_bits]
        with m.If(use_load):
            m.d.comb += read_port.addr.eq(Cat(first_row, Mux(loading, load_index, self.read_index)))
        with m.Elif(use_wr):
            m.d.comb += read_port.addr.eq(self.wr_index << row_bits)
        with m.Else():
            m.d.comb += read_port.addr.eq(Cat(table.word[lane_bits : lane_bits + row_bits], index))
        m.d.comb += read_port.en.eq(use_load | use_wr | use_table)

        with m.If(self.read & ~loading):
            m.d.sync += [
                load_index.eq(self.read_index),
                load_row.eq(1 % max(2, 1 << row_bits)),
                loading.eq(rows > 1),
            ]
        with m.Elif(loading):
            m.d.sync += load_row.eq(load_row + 1)
            with m.If(load_row == rows - 1):
                m.d.sync += loading.eq(0)
        m.d.sync += [arriving.eq(use_load), arriving_row.eq(first_row if row_bits else 0)]
        held = [Signal(min(width, 64 * _WORDS - n * width), name=f"held{n}") for n in range(rows)]
        done = Signal()
        m.d.sync += done.eq(0)
        with m.If(arriving):
            with m.Switch(arriving_row):
                for n in range(rows):
                    with m.Case(n):
                        m.d.sync += held[n].eq(read_port.data)
            m.d.sync += done.eq(arriving_row == rows - 1)
        m.d.comb += [self.read_done.eq(done), self.request.as_value().eq(Cat(*held))]

        m.d.sync += wr_wait.eq(use_wr)
        m.d.comb += [self.wr_done.eq(wr_wait), self.wr_id.eq(read_port.data[:64])]

        answer_error = Signal()
        answered = Signal()
        m.d.sync += [answered.eq(taken), answer_error.eq(~in_range)]
        m.d.sync += table_wait.eq(taken)
        if lane_bits:
            with m.If(taken):
                m.d.sync += table_lane.eq(table.word[:lane_bits])
        m.d.comb += [
            table.done.eq(answered),
            table.error.eq(answer_error),
            table.read_data.eq(read_port.data.word_select(table_lane, 64) if lane_bits else read_port.data),
            self.idle.eq(~(loading | arriving | done | table_wait | table.valid | wr_wait | self.wr_read)),
        ]
        return m
