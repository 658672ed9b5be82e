"""The stream matrix: what every part that passes frames on is put through.

Sizes around every multiple of the width, bursts of single-byte frames, a source and a sink that
never or randomly pause, the error flag, and a reset in the middle of a frame. The list is curated:
each case is there for one kind of mistake, and there is no full product.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from agents import idle_inputs, random_pauses, reset, start, stream_frame, stream_sink, stream_source
from stream_monitor import StreamMonitor

__all__ = ["Frames", "StreamCase", "frame_sizes", "run_stream_case", "stream_cases"]

Frames = list[tuple[bytes, bool]]
"""Frames as (bytes, error flag)."""

PAUSE_PROBABILITY = 0.5
CYCLES_PER_BEAT_ALLOWED = 16
CYCLES_SPARE = 400


@dataclass(frozen=True)
class StreamCase:
    """One row of the matrix.

    Parameters
    ----------
    name:
        Shown in the test's name.
    sizes:
        Bytes of the frames, in order.
    idle:
        The source pauses at random.
    pressure:
        The sink pauses at random.
    errors:
        A third of the frames carries the error flag.
    reset:
        The design is reset in the middle of a frame before the frames are sent.
    """

    name: str
    sizes: tuple[int, ...]
    idle: bool = False
    pressure: bool = False
    errors: bool = False
    reset: bool = False


def frame_sizes(width: int, multiples: int = 4) -> tuple[int, ...]:
    """Return 1 and the sizes one below, at and one above each multiple of the width.

    Parameters
    ----------
    width:
        Data width of the stream in bits.
    multiples:
        Beats of the longest of these frames.
    """
    lanes = width // 8
    sizes = {1}
    for beats in range(1, multiples + 1):
        sizes |= {beats * lanes - 1, beats * lanes, beats * lanes + 1}
    return tuple(sorted(sizes - {0}))


def stream_cases(width: int, *, longest: int = 513) -> list[cocotb.Param]:
    """Return the matrix for a stream, for `@cocotb.parametrize(case=stream_cases(width))`.

    Parameters
    ----------
    width:
        Data width in bits.
    longest:
        Bytes of the long frame; a part that stores whole frames may hold less than the usual one.
    """
    edges = frame_sizes(width)
    mixed = tuple(size for pair in zip(edges, reversed(edges), strict=True) for size in pair) + (longest,)
    cases = [
        StreamCase("flowing", edges + (longest,)),
        StreamCase("source_pauses", mixed, idle=True),
        StreamCase("sink_pauses", mixed, pressure=True),
        StreamCase("both_pause", mixed, idle=True, pressure=True),
        StreamCase("single_bytes", (1,) * 64),
        StreamCase("single_bytes_under_pressure", (1,) * 64, pressure=True),
        StreamCase("error_flag", mixed, errors=True, pressure=True),
        StreamCase("reset_inside_a_frame", edges, reset=True),
    ]
    return [cocotb.Param(case, name=case.name) for case in cases]


async def run_stream_case(
    design: Any,
    case: StreamCase,
    *,
    source: str,
    sink: str,
    expect: Callable[[Frames], Frames] = lambda frames: frames,
) -> StreamMonitor:
    """Drive one row of the matrix through a part and check what comes out.

    Parameters
    ----------
    design:
        The top level handle. Its clock must not run yet.
    case:
        The row.
    source:
        Name of the design's stream input.
    sink:
        Name of the design's stream output.
    expect:
        Returns the frames that must come out, given those sent.

    Returns
    -------
    StreamMonitor
        The monitor of the output, for further checks of its timing.

    Raises
    ------
    AssertionError
        Other frames came out than expected, or not in the time allowed, or a stream broke a rule.
    """
    idle_inputs(design)
    sender = stream_source(design, source)
    receiver = stream_sink(design, sink)
    monitors = [StreamMonitor(design, source), StreamMonitor(design, sink)]
    await start(design)
    if case.reset:
        await _reset_inside_a_frame(design, sender, receiver, lanes=len(sender.bus.tkeep))
        for monitor in monitors:
            monitor.frames.clear()
    if case.idle:
        sender.set_pause_generator(random_pauses(PAUSE_PROBABILITY))
    if case.pressure:
        receiver.set_pause_generator(random_pauses(PAUSE_PROBABILITY))
    sent: Frames = [
        (random.randbytes(size), case.errors and index % 3 == 1) for index, size in enumerate(case.sizes)
    ]
    for data, error in sent:
        sender.send_nowait(stream_frame(data, error=error))
    expected = expect(sent)
    beats = sum(-(-len(data) // len(sender.bus.tkeep)) for data, _ in sent)
    limit = beats * CYCLES_PER_BEAT_ALLOWED + CYCLES_SPARE
    output = monitors[1]
    for _ in range(0, limit, 16):
        await ClockCycles(design.clk, 16)
        if len(output.frames) >= len(expected) and sender.idle():
            break
    # What must not come out gets a chance to.
    await ClockCycles(design.clk, 32)
    received = [(frame.data, frame.error) for frame in output.frames]
    assert [len(data) for data, _ in received] == [len(data) for data, _ in expected], (
        f"frames of other sizes came out within {limit} cycles"
    )
    assert received == expected, "a frame came out with other bytes or another error flag"
    assert output.idle, "the output still shows a beat after the last frame"
    sender.clear_pause_generator()
    receiver.clear_pause_generator()
    return output


async def _reset_inside_a_frame(design: Any, sender: Any, receiver: Any, lanes: int) -> None:
    """Reset while a frame is on its way in and another waits at a paused output."""
    receiver.pause = True
    for size in (3 * lanes, 64 * lanes):
        sender.send_nowait(stream_frame(random.randbytes(size)))
    await ClockCycles(design.clk, 11)
    assert not sender.idle(), "the reset must come in the middle of a frame"
    sender.clear()
    receiver.clear()
    await reset(design)
    receiver.pause = False
