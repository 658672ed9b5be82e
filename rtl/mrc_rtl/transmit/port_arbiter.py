"""Spreads frames over the ports, through one FIFO per plane."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..stream import PacketStream
from .header_builder import longest_frame

__all__ = ["PlaneFifo", "PortArbiter"]

#: Frames bound to a plane at a time: one on its way out and one that waits. More would bind too early.
_FRAMES = 2


class PlaneFifo(wiring.Component):
    """Two frames of the longest kind; a frame starts to leave with its first beat.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    sink : In(PacketStream)
        Frames whose length is 2 modulo 4. Taken in every cycle: the owner lets in frames only that fit.
    source : Out(PacketStream)
    idle : Out(1)
        Empty.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "sink": In(PacketStream(config.data_width)),
                "source": Out(PacketStream(config.data_width)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self._config.data_bytes
        beats = -(-(longest_frame(self._config) + wire.ICRC.bytes) // lanes)
        address_bits = (_FRAMES * beats - 1).bit_length()
        # ``end``: fours of lanes in the last beat that are valid but for the last two lanes of its last four.
        groups = lanes // 4
        row = data.StructLayout(
            {"data": self._config.data_width, "last": 1, "end": (groups - 1).bit_length()}
        )
        m.submodules.beats = memory = Memory(shape=row, depth=1 << address_bits, init=[])
        write_port = memory.write_port()
        read_port = memory.read_port()
        written = Signal(address_bits)
        read = Signal(address_bits)
        end = Signal(row["end"].shape)
        for group in range(1, groups):
            with m.If(self.sink.tkeep[4 * group]):
                m.d.comb += end.eq(group)
        m.d.comb += [
            self.sink.tready.eq(1),
            write_port.en.eq(self.sink.tvalid),
            write_port.addr.eq(written),
            write_port.data.data.eq(self.sink.tdata),
            write_port.data.last.eq(self.sink.tlast),
            write_port.data.end.eq(end),
            read_port.addr.eq(read),
            read_port.en.eq((read != written) & (~self.source.tvalid | self.source.tready)),
            self.source.tdata.eq(read_port.data.data),
            self.source.tlast.eq(read_port.data.last),
            self.source.tkeep.eq(
                Cat(~read_port.data.last | (read_port.data.end >= (lane + 2) // 4) for lane in range(lanes))
            ),
            self.idle.eq((read == written) & ~self.source.tvalid & ~self.sink.tvalid),
        ]
        with m.If(self.sink.tvalid):
            m.d.sync += written.eq(written + 1)
        with m.If(read_port.en):
            m.d.sync += [read.eq(read + 1), self.source.tvalid.eq(1)]
        with m.Elif(self.source.tready):
            m.d.sync += self.source.tvalid.eq(0)
        return m


class PortArbiter(wiring.Component):
    """Hands each frame to the FIFO of its plane and says which planes have room for one more.

    A plane has room while fewer than two frames are bound to it, counted from the acceptance of the plan to
    the last beat on the port; the FIFO holds two of the longest kind, so that a frame never has to stop on
    its way into it.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    frame : In(PacketStream)
        Always taken.
    frame_plane : In
        Constant over a frame.
    bound, bound_plane : In
        Pulse: a frame for that plane will come.
    waiting, waiting_plane : In
        A plan for that plane is on offer; it counts already in ``room``, not in ``fits``.
    room : Out(planes)
        A further plan for the plane may be made.
    fits : Out(planes)
        The plan on offer may start if it is for this plane.
    ports : Out(PacketStream), one per plane
    idle : Out(1)
        All frames have left.

    Source: design.md 4 ("plane FIFO of at most one frame").
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        plane = records.plane_bits(config)
        super().__init__(
            {
                "frame": In(PacketStream(config.data_width)),
                "frame_plane": In(plane),
                "bound": In(1),
                "bound_plane": In(plane),
                "waiting": In(1),
                "waiting_plane": In(plane),
                "room": Out(config.planes),
                "fits": Out(config.planes),
                "ports": Out(PacketStream(config.data_width)).array(config.planes),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.frame.tready.eq(1)
        idle: list[Signal] = []
        for plane, port in enumerate(self.ports):
            fifo = PlaneFifo(self._config)
            m.submodules[f"fifo{plane}"] = fifo
            wiring.connect(m, fifo.source, wiring.flipped(port))
            m.d.comb += [
                fifo.sink.tdata.eq(self.frame.tdata),
                fifo.sink.tkeep.eq(self.frame.tkeep),
                fifo.sink.tlast.eq(self.frame.tlast),
                fifo.sink.tvalid.eq(self.frame.tvalid & (self.frame_plane == plane)),
            ]
            frames = Signal(range(_FRAMES + 1), name=f"frames{plane}")
            waits = Signal(name=f"waits{plane}")
            comes = Signal(name=f"comes{plane}")
            goes = Signal(name=f"goes{plane}")
            m.d.comb += [
                comes.eq(self.bound & (self.bound_plane == plane)),
                goes.eq(port.tvalid & port.tready & port.tlast),
                waits.eq(self.waiting & (self.waiting_plane == plane)),
                self.fits[plane].eq(frames != _FRAMES),
                self.room[plane].eq(~frames[1] & ~(frames[0] & waits)),
            ]
            m.d.sync += frames.eq(frames + comes - goes)
            idle.append(fifo.idle & (frames == 0))
        m.d.comb += self.idle.eq(Cat(idle).all())
        return m
