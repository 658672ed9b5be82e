"""A table of four 64-bit words an entry in a memory as wide as the data path."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .config import NicConfig

__all__ = ["ENTRY_WORDS", "EntryMemory"]

#: 64-bit words of an entry.
ENTRY_WORDS = 4


class EntryMemory(wiring.Component):
    """Entries of four 64-bit words, written word by word, read in rows of the data path's width, at most 256.

    Words of one row are collected and written together, so the memory has whole rows and one write port. A
    command that does not reach the end of a row writes zeros behind its last word.

    Parameters
    ----------
    config : NicConfig
    depth : int
        Entries.
    readers : int
        Read ports; each costs a copy of the memory.

    Members
    -------
    write : 1
        Take ``write_data`` as word ``write_word`` of entry ``write_entry``; ``write_last`` ends the command.
    enable, entry, row, data : arrays over the readers
        ``data`` is the row one cycle after ``enable``, and stays until the next.
    """

    def __init__(self, config: NicConfig, depth: int, readers: int) -> None:
        self.row_words = min(config.data_width // 64, ENTRY_WORDS)
        self.rows = ENTRY_WORDS // self.row_words
        self.row_bits = (self.rows - 1).bit_length()
        self.entry_bits = max(1, (depth - 1).bit_length())
        self._depth = depth
        self._readers = readers
        super().__init__(
            {
                "write": In(1),
                "write_entry": In(self.entry_bits),
                "write_word": In(2),
                "write_data": In(64),
                "write_last": In(1),
                "enable": In(1).array(readers),
                "entry": In(self.entry_bits).array(readers),
                "row": In(max(1, self.row_bits)).array(readers),
                "data": Out(64 * self.row_words).array(readers),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=64 * self.row_words, depth=self._depth << self.row_bits, init=[]
        )
        port = memory.write_port()
        place_bits = (self.row_words - 1).bit_length()
        place = self.write_word[:place_bits]
        collected = [Signal(64, name=f"collected{n}") for n in range(self.row_words - 1)]
        with m.If(self.write):
            for n, word in enumerate(collected):
                with m.If(place == n):
                    m.d.sync += word.eq(self.write_data)
        for n in range(self.row_words):
            target = port.data.word_select(n, 64)
            if n < self.row_words - 1:
                with m.If(place > n):
                    m.d.comb += target.eq(collected[n])
            if n == 0 and self.row_words == 1:
                m.d.comb += target.eq(self.write_data)
            else:
                with m.If(place == n):
                    m.d.comb += target.eq(self.write_data)
        m.d.comb += [
            port.en.eq(self.write & (self.write_last | place.all())),
            port.addr.eq(Cat(self.write_word[place_bits:], self.write_entry)),
        ]
        for n in range(self._readers):
            reader = memory.read_port()
            m.d.comb += [
                reader.en.eq(self.enable[n]),
                reader.addr.eq(Cat(self.row[n][: self.row_bits], self.entry[n])),
                self.data[n].eq(reader.data),
            ]
        return m

    def words_of_row(self, row: int) -> range:
        """Numbers of the 64-bit words that a row holds."""
        return range(row * self.row_words, (row + 1) * self.row_words)
