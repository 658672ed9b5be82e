"""Watches a packet stream in every bench: the rules of the handshake, and what went by.

Sampling is done at the falling clock edge, where every signal has settled in every simulator and no
agent drives: what is valid and ready there is transferred at the next rising edge.
"""

from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.simtime import get_sim_time
from cocotb.triggers import FallingEdge, RisingEdge

__all__ = ["Frame", "StreamMonitor", "StreamRuleBroken"]


class StreamRuleBroken(AssertionError):
    """A stream broke a rule of the handshake; the message names stream, cycle and rule."""


@dataclass(frozen=True)
class Frame:
    """One frame that went by.

    Parameters
    ----------
    data:
        Its bytes.
    error:
        Value of tuser on the last beat.
    first_cycle, last_cycle:
        Clock cycles, counted from time 0, in which the first and the last beat were transferred.
    """

    data: bytes
    error: bool
    first_cycle: int
    last_cycle: int


class StreamMonitor:
    """Checks one packet stream of a design and records its frames.

    Rules: while valid waits for ready, it is not dropped and tdata, tkeep, tlast and tuser do not
    change; tkeep is all ones except on the last beat, where it is ones from lane 0 upwards and not
    zero; valid, ready and a valid payload are never undefined; between two frames there are at least
    `minimum_gap` cycles without a beat. A broken rule fails the running test at once.

    Parameters
    ----------
    design:
        The top level handle.
    prefix:
        Name of the stream; its signals are `{prefix}__tvalid` and so on.
    clock, reset:
        Signal names. A reset discards a frame in progress.
    minimum_gap:
        Cycles.
    period_ps:
        Clock period in ps.

    Members
    -------
    frames : list of Frame
        Complete frames in order.
    """

    def __init__(
        self,
        design: Any,
        prefix: str,
        *,
        clock: str = "clk",
        reset: str = "rst",
        minimum_gap: int = 0,
        period_ps: int = 16_000,
    ) -> None:
        self.prefix = prefix
        self.frames: list[Frame] = []
        self.minimum_gap = minimum_gap
        self._period_ps = period_ps
        self._clock = getattr(design, clock)
        self._reset = getattr(design, reset, None)
        self._signals = {
            name: getattr(design, f"{prefix}__{name}", None)
            for name in ("tvalid", "tready", "tdata", "tkeep", "tlast", "tuser")
        }
        if self._signals["tvalid"] is None or self._signals["tdata"] is None:
            raise ValueError(f"the design must have {prefix}__tvalid and {prefix}__tdata, but has not")
        self._lanes = len(self._signals["tdata"]) // 8
        self._full = (1 << self._lanes) - 1
        self._partial: bytearray | None = None
        self._first_cycle = 0
        self._waiting: tuple[int, ...] | None = None
        self._task = cocotb.start_soon(self._watch())

    @property
    def idle(self) -> bool:
        """True when no frame is in progress and no beat waits."""
        return self._partial is None and self._waiting is None

    def stop(self) -> None:
        """Stop watching, for tests that break the rules on purpose."""
        self._task.cancel()

    def _fail(self, rule: str) -> None:
        raise StreamRuleBroken(f"stream {self.prefix}, cycle {self._cycle()}: {rule}")

    def _cycle(self) -> int:
        return int(get_sim_time("ps")) // self._period_ps

    def _read(self, name: str, default: int) -> int:
        signal = self._signals[name]
        if signal is None:
            return default
        try:
            return int(signal.value)
        except ValueError:
            self._fail(f"{name} must be defined, is {signal.value}")
            raise

    async def _watch(self) -> None:
        falling = FallingEdge(self._clock)
        valid = RisingEdge(self._signals["tvalid"])
        while True:
            await falling
            if self._reset is not None and int(self._reset.value):
                self._partial = None
                self._waiting = None
                continue
            if self._read("tvalid", 0):
                self._beat()
                continue
            if self._waiting is not None:
                self._fail("tvalid must stay high until tready, but was dropped")
            if self._partial is None:
                # Nothing can happen before valid rises: spares a wake-up of Python in each idle cycle.
                await valid

    def _data(self, keep: int) -> int:
        """Return tdata; lanes that tkeep leaves out may be undefined and count as zero."""
        value = str(self._signals["tdata"].value)
        result = 0
        for lane in range(keep.bit_length()):
            bits = value[len(value) - 8 * lane - 8 : len(value) - 8 * lane]
            if bits.strip("01"):
                self._fail(f"tdata lane {lane} must be defined, is {bits}")
            result |= int(bits, 2) << 8 * lane
        return result

    def _beat(self) -> None:
        keep = self._read("tkeep", self._full)
        payload = (
            self._data(keep) if not self._signals["tdata"].value.is_resolvable else self._read("tdata", 0),
            keep,
            self._read("tlast", 1),
            self._read("tuser", 0),
        )
        if self._waiting is None:
            self._check_beat(*payload)
        elif payload != self._waiting:
            names = ("tdata", "tkeep", "tlast", "tuser")
            changed = [n for n, old, new in zip(names, self._waiting, payload, strict=True) if old != new]
            self._fail(f"{' and '.join(changed)} must not change while tvalid waits for tready, but did")
        if not self._read("tready", 1):
            self._waiting = payload
            return
        self._waiting = None
        self._take(*payload)

    def _check_beat(self, data: int, keep: int, last: int, user: int) -> None:
        if last:
            if keep == 0 or keep & (keep + 1):
                self._fail(f"tkeep of the last beat must be ones from lane 0 upwards, is {keep:#b}")
        elif keep != self._full:
            self._fail(f"tkeep must be all ones before the last beat, is {keep:#b}")
        if self._partial is None and self.frames:
            gap = self._cycle() - self.frames[-1].last_cycle - 1
            if gap < self.minimum_gap:
                self._fail(f"at least {self.minimum_gap} cycles must lie between two frames, were {gap}")

    def _take(self, data: int, keep: int, last: int, user: int) -> None:
        if self._partial is None:
            self._partial = bytearray()
            self._first_cycle = self._cycle()
        self._partial += data.to_bytes(self._lanes, "little")[: keep.bit_length()]
        if last:
            frame = Frame(bytes(self._partial), bool(user), self._first_cycle, self._cycle())
            self.frames.append(frame)
            self._partial = None
