"""EV expansion in gateware: deposit EV bits into a profile's template.

The host folds a profile's format and fields into one template and one mask over the concatenated format
fields (protocol.md 2.8 consumes EV bits in the same order, so that nothing is lost by it). The profile is run
time data in a memory; a word of ``bits_per_cycle`` template and mask bits is worked off a cycle. A serial
walk costs a few hundred LUT4 where a deposit over 128 bits at once costs thousands, and it keeps the pace of
the engine when ``width / bits_per_cycle + 2`` is not above the packet interval of profile.md 10.

Source: protocol.md 2.8 (expansion), profile.md 3 (EXPLICIT and GENERATED profiles) and 10 (interval).
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["EvExpansion"]


class EvExpansion(wiring.Component):
    """Expand entropy values by profiles held in a memory.

    Each row goes through two stages: how many EV bits the mask takes up to each bit, then the deposit and the
    shift of the EV. Results follow one another every ``width / bits_per_cycle + 2`` cycles. Rows of a profile
    are in order: row 0 holds the most significant bits. A profile shorter than ``width`` stands left-aligned
    with zeros behind it, as an address does. Bits of the template under the mask are ignored. Write a profile
    while no request uses it.

    Parameters
    ----------
    width : int
        Bits of an expanded EV.
    ev_bits : int
        Bits of an EV; more mask bits than that deposit zeros.
    bits_per_cycle : int
        Bits of the profile worked off a cycle; divides ``width``.
    profiles : int
        Profiles held, at least 1.

    Members
    -------
    profile_write : In(stream of {profile, row, template, mask})
        One row of a profile; taken every cycle.
    profile_read : In(stream of {profile, row}), profile_row : Out(stream of {template, mask})
        Read a row back; served between requests, which go first.
    request : In(stream of {profile, ev})
        EV with its first bit at the top: an EV of fewer bits stands left-aligned.
    result : Out(stream of width bits)
        Expanded EVs in the order of the requests.
    idle : Out(1)
        Nothing is held or in work.

    Raises
    ------
    ValueError
        For parameters outside their range.
    """

    def __init__(self, *, width: int = 128, ev_bits: int = 32, bits_per_cycle: int = 16, profiles: int = 4):
        if not 1 <= ev_bits <= width:
            raise ValueError(f"ev_bits must be between 1 and width {width}, got {ev_bits}")
        if not 1 <= bits_per_cycle <= width or width % bits_per_cycle:
            raise ValueError(f"bits_per_cycle must divide width {width}, got {bits_per_cycle}")
        if profiles < 1:
            raise ValueError(f"profiles must be at least 1, got {profiles}")
        self.width = width
        self.ev_bits = ev_bits
        self.bits_per_cycle = bits_per_cycle
        self.profiles = profiles
        self.rows = width // bits_per_cycle
        self.row_layout = data.StructLayout({"mask": bits_per_cycle, "template": bits_per_cycle})
        address = {"profile": range(profiles), "row": range(self.rows)}
        write_layout = data.StructLayout({**address, **self.row_layout.members})
        super().__init__(
            {
                "profile_write": In(stream.Signature(write_layout)),
                "profile_read": In(stream.Signature(data.StructLayout(address))),
                "profile_row": Out(stream.Signature(self.row_layout)),
                "request": In(
                    stream.Signature(data.StructLayout({"profile": range(profiles), "ev": ev_bits}))
                ),
                "result": Out(stream.Signature(width)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the memory, the walk over the rows, and the deposit of one row."""
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=self.row_layout.size, depth=self.profiles << (self.rows - 1).bit_length(), init=[]
        )
        write_port = memory.write_port()
        read_port = memory.read_port()
        read_row = data.View(self.row_layout, read_port.data)
        row_bits = (self.rows - 1).bit_length()

        def address(profile: Value, row: Value) -> Value:
            return Cat(row[:row_bits], profile)

        write = self.profile_write.payload
        m.d.comb += [
            self.profile_write.ready.eq(1),
            write_port.en.eq(self.profile_write.valid),
            write_port.addr.eq(address(write.profile, write.row)),
            write_port.data.eq(Cat(write.mask, write.template)),
        ]

        # The EV is kept with its first bit lowest, so that taking bits is a shift to the right.
        ev = Signal(self.ev_bits)
        profile = Signal(range(self.profiles))
        issue = Signal(range(self.rows + 1))
        issuing = Signal()
        arriving = Signal()
        depositing = Signal()
        expanded = Signal(self.width)
        answering = Signal()
        still = Signal()
        free = Signal()
        row, remaining = self._deposit(m, read_row, ev)

        m.d.comb += [
            still.eq(~issuing & ~arriving & ~depositing & ~answering),
            free.eq(still & (~self.result.valid | self.result.ready)),
            self.idle.eq(still & ~self.result.valid & ~self.profile_row.valid),
            self.request.ready.eq(free),
            self.profile_read.ready.eq(free & ~self.request.valid & ~self.profile_row.valid),
            self.result.payload.eq(expanded),
        ]
        with m.If(self.result.ready):
            m.d.sync += self.result.valid.eq(0)
        with m.If(self.profile_row.ready):
            m.d.sync += self.profile_row.valid.eq(0)

        read = self.profile_read.payload
        m.d.sync += [arriving.eq(issuing), depositing.eq(arriving)]
        with m.If(depositing):
            m.d.sync += [ev.eq(remaining), expanded.eq(Cat(row, expanded))]
            with m.If(~arriving):
                m.d.sync += self.result.valid.eq(1)
        with m.If(issuing):
            m.d.comb += [read_port.en.eq(1), read_port.addr.eq(address(profile, issue))]
            m.d.sync += issue.eq(issue + 1)
            with m.If(issue == self.rows - 1):
                m.d.sync += issuing.eq(0)
        with m.Elif(free & self.request.valid):
            request = self.request.payload
            m.d.comb += [read_port.en.eq(1), read_port.addr.eq(address(request.profile, Const(0, row_bits)))]
            m.d.sync += [
                issuing.eq(self.rows > 1),
                arriving.eq(1),
                issue.eq(1),
                profile.eq(request.profile),
                ev.eq(request.ev[::-1]),
            ]
        with m.Elif(self.profile_read.valid & self.profile_read.ready):
            m.d.comb += [read_port.en.eq(1), read_port.addr.eq(address(read.profile, read.row))]
            m.d.sync += answering.eq(1)
        with m.If(answering):
            m.d.sync += [
                answering.eq(0),
                self.profile_row.valid.eq(1),
                self.profile_row.payload.eq(read_row),
            ]
        return m

    def _deposit(self, m: Module, profile_row: data.View, ev: Signal) -> tuple[Value, Value]:
        """Return one row's expanded bits, a cycle after the row, and the EV bits that then remain."""
        size = self.bits_per_cycle
        held = Signal(self.row_layout)
        m.d.sync += held.eq(profile_row)
        row = Signal(size)
        # The deposit of bit n takes the EV bit whose number is the count of mask bits before it.
        before: Value = Const(0, 0)
        taken: Value = Const(0, 0)
        for position, bit in enumerate(reversed(range(size))):
            deposited = ev[:size].bit_select(taken, 1)
            m.d.comb += row[bit].eq(Mux(held.mask[bit], deposited, held.template[bit]))
            after = Signal(range(position + 2), name=f"after_{bit}")
            m.d.comb += after.eq(before + profile_row.mask[bit])
            taken = Signal(range(position + 2), name=f"taken_{bit}")
            m.d.sync += taken.eq(after)
            before = after
        return row, ev >> taken
