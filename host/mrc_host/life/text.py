"""A packet's life as text and as JSON."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict

from mrc_host.life.story import Life
from mrc_rtl.wire import Opcode

__all__ = ["life_json", "life_text"]

WIDTH = 110
TIME, PLACE = 13, 15


def life_text(life: Life) -> str:
    """Return the life as lines of at most 110 columns: time, place, what happened."""
    target = life.found.target
    title = (
        f"{Opcode(life.found.opcode).name} with PSN {target.psn:#08x} of QP {target.source_qp:#x}, "
        f"h{target.source} → h{target.target}: {life.summary}."
    )
    lines = textwrap.wrap(title, WIDTH)
    if not life.complete:
        lines += ["From what was recorded: queues and decisions were not looked at."]
    if not life.repeated:
        lines += [
            "The run, carried out again, took another course: its sources were others. Queues may differ."
        ]
    lines += ["", f"{'time (µs)':>{TIME}}  {'where':<{PLACE}}what"]
    gap = " " * (TIME + 2 + PLACE)
    for step in life.steps:
        first, *more = textwrap.wrap(step.text, WIDTH - len(gap))
        lines.append(f"{step.time_ps / 1e6:>{TIME}.6f}  {step.place:<{PLACE}}{first}")
        lines += [gap + line for line in more]
    return "\n".join(lines)


def life_json(life: Life) -> str:
    """Return the life as JSON; times in picoseconds after the start of the run."""
    document = {
        "packet": life.found.target._asdict(),
        "summary": life.summary,
        "complete": life.complete,
        "repeated": life.repeated,
        "delivered_ps": life.delivered_ps,
        "steps": [asdict(step) for step in life.steps],
        "copies": [asdict(copy) for copy in life.copies],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)
