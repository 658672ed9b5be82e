"""Damage to one packet of a run, and what must follow from it."""

from __future__ import annotations

from collections.abc import Callable

from mrc_host.experiment import testbed as setup
from mrc_host.fabric.links import Direction
from mrc_host.packets.peek import peek
from mrc_host.packets.trim import trim
from mrc_rtl.wire import Opcode

Damage = Callable[[bytes], list[tuple[int, bytes]]]
UPLINKS = ("p1.t0.1.u1>p1.t1.1.d1", "p1.t0.2.u1>p1.t1.1.d2")
"""Out of the T0 switches of hosts 0 and 1, and of hosts 2 and 3."""


def hit_third_data_packet(damage: Damage, uplink: str = UPLINKS[0]) -> Callable[[setup.Testbed], None]:
    """Return what lets the third data packet on an uplink be damaged."""

    def prepare(testbed: setup.Testbed) -> None:
        seen = 0

        def tap(direction: Direction, time_ps: int, frame: bytes) -> list[tuple[int, bytes]] | None:
            nonlocal seen
            info = peek(frame)
            if info is None or info.opcode != Opcode.WRITE_MIDDLE:
                return None
            seen += 1
            return damage(frame) if seen == 3 else None

        testbed.fabric.tap(uplink, tap)

    return prepare


def trimmed(frame: bytes) -> list[tuple[int, bytes]]:
    """Cut the packet as a switch does."""
    return [(0, trim(frame, 128, True, False))]


def corrupted(frame: bytes) -> list[tuple[int, bytes]]:
    """Flip a bit of the payload."""
    changed = bytearray(frame)
    changed[2000] ^= 0x10
    return [(0, bytes(changed))]


DAMAGES: dict[str, tuple[Damage, tuple[int, int, int] | None, str | None]] = {
    "trimmed": (trimmed, (1, 0, 0), "trimmed_answered"),
    "dropped": (lambda frame: [], (0, 1, 0), None),
    "duplicated": (lambda frame: [(0, frame), (3_000_000, frame)], (0, 0, 0), "duplicate"),
    "corrupted": (corrupted, None, "drop_icrc"),
}
"""Name to the damage, the retransmissions by cause (trim, loss, spurious) and the counter that shows it."""
