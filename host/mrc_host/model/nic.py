"""The golden model as a NIC: behind the very interface of the verilated one.

Registers answer at once, table commands too unless packets in flight hold them back. Everything else takes
the time that ports and memory need; the engine's own pipeline is two constants
(``engine.TRANSMIT_CYCLES``, ``engine.RECEIVE_CYCLES``).
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from mrc_host.errors import InfrastructureError
from mrc_host.fabric.packet import Packet
from mrc_host.model.engine import Access, ModelEngine, RequesterFactory
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.registers import OKAY, WAIT
from mrc_host.nic.base import Nic, Outputs, RegisterError, RegisterRead, Statistics
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_rtl.config import NicConfig

__all__ = ["ModelNic"]

_SYNCHRONOUS = -2
#: Cycles after which a register access that was not answered is given up.
ACCESS_LIMIT_CYCLES = 100_000


@mypyc_attr(allow_interpreted_subclasses=True)
class ModelNic(Nic):
    """A NIC that is the specification in plain Python.

    Parameters
    ----------
    config : NicConfig
        Sizes.
    mac : MacOptions
        Line rate and transmit FIFO of the ports.
    memory : MemoryOptions
        Size, latency and jitter of the host memory.
    options : ModelOptions
        Choices where the references leave one.
    seed : int
        Of everything pseudo-random.
    make_requester : callable, optional
        The sending half; ``requester.ModelRequester`` by default.

    Raises
    ------
    ConfigError
        An option is out of range.
    """

    def __init__(
        self,
        config: NicConfig,
        mac: MacOptions | None = None,
        memory: MemoryOptions | None = None,
        *,
        options: ModelOptions | None = None,
        seed: int = 0,
        make_requester: RequesterFactory | None = None,
    ) -> None:
        if make_requester is None:
            from mrc_host.model.requester import ModelRequester

            make_requester = ModelRequester
        self.config = config
        self._engine = ModelEngine(
            config,
            mac or MacOptions(),
            memory or MemoryOptions(),
            options or ModelOptions(),
            seed,
            make_requester,
            self._take_access,
        )
        self.memory: npt.NDArray[np.uint8] = self._engine.memory.data
        self._planes: i64 = config.planes
        self._time_ps: i64 = 0
        self._delivered_ps: vec[i64] = vec[i64]([0] * config.planes)
        self._reads: list[RegisterRead] = []
        self._failed: list[RegisterError] = []
        self._wall_seconds = 0.0

    # -- clock -------------------------------------------------------------------------------------------

    @property
    def time_ps(self) -> int:
        """Time up to which the NIC has run."""
        return int(self._time_ps)

    @property
    def next_activity_ps(self) -> int:
        """Time before which nothing happens unless something is put in."""
        engine = self._engine
        planned = min(engine.agenda.next_ps, *(port.next_departure_ps for port in engine.ports))
        if engine.watches or engine.traces or engine.interrupts or self._reads:
            # Frames that register accesses let leave may be older than now.
            return min(planned, int(self._time_ps))
        return planned

    @property
    def statistics(self) -> Statistics:
        """What it cost so far; the model has no cycles."""
        memory = self._engine.memory
        return Statistics(
            wall_seconds=self._wall_seconds,
            lost_link_down=sum(port.lost_link_down for port in self._engine.ports),
            memory_reads=memory.reads,
            memory_writes=memory.writes,
            memory_outside=memory.outside,
        )

    @property
    def calls(self) -> int:
        """Events carried out so far."""
        return self._engine.agenda.calls

    def run(self, until_ps: int) -> Outputs:
        """Advance to a time and return all outputs with a time before it (and after the last call).

        Raises
        ------
        ValueError
            The time lies before ``time_ps``.
        RegisterError
            A scheduled register access was refused.
        """
        if until_ps < self._time_ps:
            raise ValueError(f"until_ps must be at least {self._time_ps}, got {until_ps}")
        self._advance(until_ps)
        if self._failed:
            raise self._failed.pop(0)
        engine = self._engine
        outputs = Outputs(
            engine.sent(until_ps), list(engine.watches), self._reads, list(engine.traces),
            list(engine.interrupts), engine.sent_packets(until_ps),
        )  # fmt: skip
        engine.watches.clear()
        engine.traces.clear()
        engine.interrupts.clear()
        self._reads = []
        return outputs

    def settle(self, limit_cycles: int = 100_000) -> None:
        """Let time go on until the NIC rests: nothing but timers is planned, and all frames have left.

        Raises
        ------
        InfrastructureError
            It is still busy after so many cycles.
        """
        engine = self._engine
        limit = self._time_ps + limit_cycles * self.config.clock_ps
        while engine.agenda.active or (free := max(port.free_ps for port in engine.ports)) > self._time_ps:
            target = engine.agenda.next_ps + 1 if engine.agenda.active else free
            if target > limit:
                raise InfrastructureError(
                    f"the model must rest within {limit_cycles} cycles, but is still busy"
                )
            self._advance(max(target, self._time_ps))

    def _advance(self, until_ps: int) -> None:
        started = time.perf_counter()
        self._engine.run(until_ps)
        self._wall_seconds += time.perf_counter() - started
        self._time_ps = until_ps

    # -- ports -------------------------------------------------------------------------------------------

    def deliver(self, port: int, time_first_bit_ps: int, frame: bytes, bad_fcs: bool = False) -> None:
        """Hand a frame (without FCS) to a port; its first bit arrives at the given time.

        Raises
        ------
        ValueError
            The port does not exist, the frame is empty, or the time lies before ``time_ps`` or before that of
            the port's previous frame.
        """
        if not frame:
            raise ValueError("frame must have at least 1 byte, got 0")
        self._check_arrival(port, time_first_bit_ps)
        self._engine.arrive(port, time_first_bit_ps, frame, bad_fcs)

    def _check_arrival(self, port: i64, time_first_bit_ps: i64) -> None:
        if not 0 <= port < self._planes:
            self._check_port(int(port))
        if time_first_bit_ps < self._time_ps:
            self._check_time("time_first_bit_ps", int(time_first_bit_ps))
        if time_first_bit_ps < self._delivered_ps[port]:
            raise ValueError(
                f"time_first_bit_ps of port {port} must be at least that of its previous frame, "
                f"got {time_first_bit_ps}"
            )
        self._delivered_ps[port] = time_first_bit_ps

    def carry_packets(self) -> bool:
        """From now on, put frames into ``Outputs.packets`` as objects."""
        self._engine.objects = True
        return True

    def deliver_packet(self, port: int, time_first_bit_ps: int, packet: Packet, macs: bytes) -> None:
        """Hand a packet of the fabric to a port; one that a model sent stays an object.

        Raises
        ------
        ValueError
            As :meth:`deliver`.
        """
        if not isinstance(packet, ModelPacket):
            self.deliver(port, time_first_bit_ps, packet.to_bytes(macs))
            return
        self._check_arrival(port, time_first_bit_ps)
        self._engine.arrive_packet(port, time_first_bit_ps, packet)

    def schedule_link(self, time_ps: int, port: int, up: bool) -> None:
        """Change the link of a port at a time; without link frames are lost in both directions."""
        self._check_port(port)
        self._check_time("time_ps", time_ps)
        self._engine.link(time_ps, port, up)

    # -- registers ---------------------------------------------------------------------------------------

    def schedule_write(self, time_ps: int, address: int, value: int) -> None:
        """Write a register at a time. Accesses of one time are carried out in the order of the calls."""
        self._check_time("time_ps", time_ps)
        self._access(time_ps, address, value, -1, True)

    def schedule_read(self, time_ps: int, address: int, tag: int) -> None:
        """Read a register at a time; the answer appears in ``Outputs.reads`` under the tag (0 or more)."""
        self._check_time("time_ps", time_ps)
        if tag < 0:
            raise ValueError(f"tag must be at least 0, got {tag}")
        self._access(time_ps, address, 0, tag, False)

    def read32(self, address: int) -> int:
        """Read a register now; time goes on until the answer is there (for set-up)."""
        return self._access_now(address, 0, False)

    def write32(self, address: int, value: int) -> None:
        """Write a register now; time goes on until it is answered (for set-up)."""
        self._access_now(address, value, True)

    def _access(self, time_ps: int, address: int, value: int, tag: int, write: bool) -> Access:
        if not 0 <= address < 1 << 16 or address % 4:
            raise ValueError(f"address must be a multiple of 4 below 0x10000, got {address:#x}")
        if not 0 <= value < 1 << 32:
            raise ValueError(f"value must fit 32 bits, got {value:#x}")
        access = Access(address, value, tag, write)
        self._engine.access(time_ps, access)
        return access

    def _access_now(self, address: int, value: int, write: bool) -> int:
        access = self._access(self._time_ps, address, value, _SYNCHRONOUS, write)
        clock = self.config.clock_ps
        limit = self._time_ps + ACCESS_LIMIT_CYCLES * clock
        self._advance(self._time_ps + clock)
        while access.response == WAIT:
            if self._time_ps >= limit:
                raise RegisterError(
                    f"register {address:#06x} must answer within {ACCESS_LIMIT_CYCLES} cycles"
                )
            self._advance(min(limit, max(self._engine.agenda.next_ps, self._time_ps) + clock))
        if access.response != OKAY:
            raise _refusal(access)
        return access.value

    def _take_access(self, access: Access) -> None:
        if access.tag == _SYNCHRONOUS:
            return
        if access.response != OKAY:
            self._failed.append(_refusal(access))
        elif not access.write:
            self._reads.append(RegisterRead(access.time_ps, access.tag, access.address, access.value))

    # -- memory ------------------------------------------------------------------------------------------

    def watch(self, tag: int, address: int, length: int) -> None:
        """Report writes into a range of memory under a tag."""
        self._engine.memory.watch(tag, address, length)

    def unwatch(self, tag: int) -> None:
        """Forget the ranges of a tag."""
        self._engine.memory.unwatch(tag)

    def fail_memory(self, address: int, length: int) -> None:
        """Answer accesses that touch a range with an error from now on; they change nothing."""
        self._engine.memory.fail(address, length)

    def clear_memory_errors(self) -> None:
        """Forget the ranges of :meth:`fail_memory`."""
        self._engine.memory.clear_failures()

    def close(self) -> None:
        """Free nothing: the model is plain Python."""

    # -- inside ------------------------------------------------------------------------------------------

    def _check_port(self, port: int) -> None:
        if not 0 <= port < self.config.planes:
            raise ValueError(f"port must be between 0 and {self.config.planes - 1}, got {port}")

    def _check_time(self, what: str, time_ps: int) -> None:
        if time_ps < self._time_ps:
            raise ValueError(f"{what} must be at least {self._time_ps}, got {time_ps}")


def _refusal(access: Access) -> RegisterError:
    verb = "written" if access.write else "read"
    return RegisterError(
        f"register {access.address:#06x} must allow to be {verb}, got AXI response {access.response}"
    )
