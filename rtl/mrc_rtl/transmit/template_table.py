"""The header templates of all QPs, as wide as the data path."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import wire
from ..config import NicConfig
from ..requester.context import ClearSequence
from ..stream import TableBus
from ..tables import TEMPLATE_WORDS

__all__ = ["TemplateTable", "template_options", "template_rows"]

_WORD_BITS = 64


def template_options(config: NicConfig) -> data.StructLayout:
    """What the builder must know before the first beat; bytes 0 to 2 of a template and where it stands.

    ``srv6`` is the Encapsulation, ``plane_mask`` and ``uplink_mask`` say which uSIDs of the outer destination
    take the plane and the uplink (bit 0: the first), ``bank`` where the rest of the template stands.
    """
    return data.StructLayout(
        {
            "srv6": 1,
            "plane_mask": wire.USID_PER_ADDRESS,
            "uplink_mask": wire.USID_PER_ADDRESS,
            "bank": range(config.qps + 1),
        }
    )


def template_rows(config: NicConfig) -> int:
    """Beats that a template covers."""
    return TEMPLATE_WORDS * _WORD_BITS // config.data_width


class TemplateTable(wiring.Component):
    """Keeps a template a QP and one place more, in which the next one is written.

    A command writes all words of an entry, at least up to the one with the last byte of the image. When it
    ends, the QP changes over to that place, and the one it had is for the next command. Reads by the host use
    cycles in which the builder does not read; :attr:`waiting` asks for one.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : In(TableBus)
        Index: QP. Refused when there is no such QP.
    look, look_qp : In
        Look up the options of a QP.
    options : Out(:func:`template_options`)
        From one cycle after ``look`` until the next one.
    read, read_bank, read_row : In
        Read one beat of a template.
    read_data : Out(data_width)
        That beat, one cycle later.
    waiting : Out(1)
        Neither ``look`` nor start a frame: the host waits for a cycle without ``read``, a template changes
        over, or reset was a moment ago.
    idle : Out(1)
        No command runs.

    Source: :data:`mrc_rtl.tables.TEMPLATE_IMAGE_OFFSET`; design.md 4, rule 12.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "table": In(TableBus()),
                "look": In(1),
                "look_qp": In(config.qp_bits),
                "options": Out(template_options(config)),
                "read": In(1),
                "read_bank": In(range(config.qps + 1)),
                "read_row": In(range(template_rows(config))),
                "read_data": Out(config.data_width),
                "waiting": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        rows = template_rows(config)
        words = config.data_width // _WORD_BITS
        word_bits = (words - 1).bit_length()
        m.submodules.images = images = Memory(shape=config.data_width, depth=(config.qps + 1) * rows, init=[])
        layout = template_options(config)
        m.submodules.choices = choices = Memory(shape=layout, depth=config.qps, init=[])
        m.submodules.sequence = sequence = ClearSequence(config.qps)
        image_read = images.read_port()
        image_write = images.write_port()
        choice_write = choices.write_port()
        # The builder does not look while a template changes over. The host's look-up is used two cycles after
        # a write at the earliest; of an image only the copy not in use is written.
        builder_look = choices.read_port()
        host_look = choices.read_port()

        table = self.table
        qp = table.index[: config.qp_bits]
        row = table.word[word_bits:]
        read = Signal()
        m.d.comb += [
            builder_look.en.eq(self.look),
            builder_look.addr.eq(self.look_qp),
            self.options.eq(builder_look.data),
            host_look.addr.eq(qp),
            image_read.en.eq(self.read | read),
            image_read.addr.eq(
                Mux(self.read, Cat(self.read_row, self.read_bank), Cat(row, host_look.data.bank))
            ),
            self.read_data.eq(image_read.data),
        ]

        # A row is complete with its last word or with the entry's; the words before it are kept.
        kept = Signal(config.data_width)
        assembled = Signal(config.data_width)
        place = Signal(range(words)) if words > 1 else None
        m.d.comb += assembled.eq(kept)
        row_complete = Signal()
        if place is None:
            m.d.comb += [assembled.eq(table.write_data), row_complete.eq(1)]
        else:
            m.d.comb += [
                place.eq(table.word),
                assembled.word_select(place, _WORD_BITS).eq(table.write_data),
                row_complete.eq((place == words - 1) | table.last),
            ]
        options = Signal(layout)
        new_options = Signal(layout)
        spare = Signal(range(config.qps + 1), init=config.qps)
        m.d.comb += new_options.eq(options)
        with m.If(table.word == 0):
            m.d.comb += [
                new_options.srv6.eq(table.write_data[0]),
                new_options.plane_mask.eq(table.write_data[8:]),
                new_options.uplink_mask.eq(table.write_data[16:]),
            ]
        m.d.comb += [
            new_options.bank.eq(spare),
            image_write.addr.eq(Cat(row, spare)),
            image_write.data.eq(assembled),
            choice_write.addr.eq(qp),
            choice_write.data.eq(new_options),
        ]

        refused = Signal()
        read_place = Signal(range(words)) if words > 1 else None
        read_word = (
            image_read.data if read_place is None else image_read.data.word_select(read_place, _WORD_BITS)
        )
        m.d.comb += table.read_data.eq(read_word)
        m.d.comb += self.idle.eq(0)
        with m.FSM():
            with m.State("RESET"):
                # Every QP gets a place; the first one once more at the end.
                m.d.comb += [
                    self.waiting.eq(1),
                    choice_write.addr.eq(sequence.row),
                    choice_write.data.bank.eq(sequence.row),
                    choice_write.en.eq(1),
                ]
                with m.If(sequence.cleared):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(~table.valid)
                m.d.sync += refused.eq(table.index[config.qp_bits :].any())
                with m.If(table.valid):
                    m.next = "ACT"
            with m.State("ACT"):
                with m.If(refused):
                    m.d.comb += table.ready.eq(1)
                    m.next = "ANSWER"
                with m.Elif(table.write):
                    m.d.comb += [
                        self.waiting.eq(table.last),
                        table.ready.eq(1),
                        image_write.en.eq(row_complete),
                        choice_write.en.eq(table.last),
                    ]
                    m.d.sync += options.eq(new_options)
                    with m.If(table.last):
                        m.d.sync += spare.eq(host_look.data.bank)
                    if place is not None:
                        m.d.sync += kept.eq(assembled)
                    m.next = "ANSWER"
                with m.Else():
                    m.d.comb += self.waiting.eq(1)
                    with m.If(~self.read):
                        m.d.comb += [table.ready.eq(1), read.eq(1)]
                        if read_place is not None:
                            m.d.sync += read_place.eq(table.word)
                        m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [table.done.eq(1), table.error.eq(refused)]
                m.next = "IDLE"
        return m
