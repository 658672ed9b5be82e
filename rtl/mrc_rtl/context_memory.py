"""A table of wide entries in a narrow memory, read and written serially."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["ContextMemory"]


class ContextMemory(wiring.Component):
    """Entries wider than a memory word, in ``ceil(bits / word_bits)`` consecutive rows of one memory.

    A read fills a parallel register word by word, so that the reader sees the whole entry; one read or one
    write runs at a time and a write has priority. Rows per entry are rounded up to a power of two.

    Parameters
    ----------
    bits : int
        Width of an entry.
    depth : int
        Number of entries.
    word_bits : int
        Width of the memory; at most max(72, data width + 8) by the design's rule for memories.

    Members
    -------
    read, read_index
        Pulse: start a read. Taken when ``ready``.
    read_done, read_data
        ``read_done`` pulses ``ceil(bits / word_bits) + 1`` cycles after ``read``; ``read_data`` is stable
        from then on until the next read begins.
    write, write_index, write_data
        Pulse: write a whole entry, taken when ``ready``; the data must stay until ``write_done``.
    write_done
        Pulses with the last word.
    ready
        Neither a read nor a write runs.

    Raises
    ------
    ValueError
        A size is not positive.
    """

    def __init__(self, *, bits: int, depth: int, word_bits: int) -> None:
        if bits < 1 or depth < 1 or word_bits < 1:
            raise ValueError(f"bits, depth and word_bits must be positive, got {bits}, {depth}, {word_bits}")
        self.bits = bits
        self.depth = depth
        self.word_bits = min(word_bits, bits)
        self.words = -(-bits // self.word_bits)
        self.row_bits = (self.words - 1).bit_length()
        index_bits = max(1, (depth - 1).bit_length())
        super().__init__(
            {
                "read": In(1),
                "read_index": In(index_bits),
                "read_done": Out(1),
                "read_data": Out(bits),
                "write": In(1),
                "write_index": In(index_bits),
                "write_data": In(bits),
                "write_done": Out(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=self.word_bits, depth=self.depth << self.row_bits, init=[]
        )
        read_port = memory.read_port()
        write_port = memory.write_port()

        count_bits = max(1, self.row_bits)
        # Reading: the address of word n is issued while word n - 1 arrives.
        reading = Signal()
        issue = Signal(count_bits)
        arriving = Signal(range(self.words + 1))
        arrived = Signal()
        index = Signal.like(self.read_index)
        writing = Signal()
        write_word = Signal(count_bits)

        m.d.comb += self.ready.eq(~reading & ~writing)
        start_read = Signal()
        start_write = Signal()
        m.d.comb += [
            start_write.eq(self.write & self.ready),
            start_read.eq(self.read & self.ready & ~self.write),
        ]

        def row(entry: Value, word: Value) -> Value:
            return Cat(word[: self.row_bits], entry) if self.row_bits else entry

        words = [Signal(self.word_bits, name=f"word{n}") for n in range(self.words)]
        m.d.comb += self.read_data.eq(Cat(*words))
        m.d.comb += [
            read_port.en.eq(start_read | reading),
            read_port.addr.eq(row(Mux(reading, index, self.read_index), Mux(reading, issue, 0))),
        ]
        m.d.sync += arrived.eq(0)
        with m.If(start_read):
            m.d.sync += [
                reading.eq(1),
                index.eq(self.read_index),
                issue.eq(1 % (1 << count_bits)),
                arriving.eq(0),
            ]
        with m.If(reading):
            with m.Switch(arriving):
                for n in range(self.words):
                    with m.Case(n):
                        m.d.sync += words[n].eq(read_port.data)
            m.d.sync += [issue.eq(issue + 1), arriving.eq(arriving + 1)]
            with m.If(arriving == self.words - 1):
                m.d.sync += [reading.eq(0), arrived.eq(1)]
        m.d.comb += self.read_done.eq(arrived)

        # Writing: one word a cycle, the first one at once.
        with m.If(start_write & (self.words > 1)):
            m.d.sync += [writing.eq(1), write_word.eq(1 % (1 << count_bits))]
        with m.If(writing):
            m.d.sync += write_word.eq(write_word + 1)
            with m.If(write_word == self.words - 1):
                m.d.sync += writing.eq(0)
        current = Signal(count_bits)
        m.d.comb += current.eq(Mux(writing, write_word, 0))
        m.d.comb += [
            write_port.en.eq(start_write | writing),
            write_port.addr.eq(row(self.write_index, current)),
            self.write_done.eq(
                (start_write & (self.words == 1)) | (writing & (write_word == self.words - 1))
            ),
        ]
        padded = Cat(self.write_data, Signal(self.words * self.word_bits - self.bits + 1))
        with m.Switch(current):
            for n in range(self.words):
                with m.Case(n):
                    m.d.comb += write_port.data.eq(padded[n * self.word_bits : (n + 1) * self.word_bits])
        return m
