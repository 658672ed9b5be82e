"""The reverse EV set: on which EVs the control packets of a receiving QP leave.

Per QP and plane one EV that is known to reach the peer: from feedback for the QP's own data, or, while it
sends none, from endpoint probes with a random EV, one per round trip in which it receives.

Source: protocol.md 2.6, profile.md 5.
"""

from __future__ import annotations

from mypy_extensions import i64

from mrc_host.fabric.events import component_key, random_bits

__all__ = ["ReverseEvs"]

_OUTSTANDING = 256
_COMPONENT = component_key("reverse EV probe")


class ReverseEvs:
    """Reverse EVs of all QPs.

    Parameters
    ----------
    qps, planes : int
    seed : int
        Of the random EVs.
    """

    __slots__ = ("_confirmed_ps", "_draws", "_due_ps", "_plane", "_planes", "_seed", "_sent", "_values")

    def __init__(self, qps: int, planes: int, seed: int) -> None:
        self._planes = planes
        self._seed = seed
        self._values: list[int] = [-1] * (qps * planes)
        self._confirmed_ps: list[int] = [-1] * (qps * planes)
        self._due_ps: list[int] = [0] * qps
        self._plane: list[int] = [0] * qps
        self._draws: int = 0
        self._sent: dict[int, tuple[int, int, int]] = {}

    def start(self, qp: int) -> None:
        """Forget what is known of a QP."""
        first = qp * self._planes
        self._values[first : first + self._planes] = [-1] * self._planes
        self._confirmed_ps[first : first + self._planes] = [-1] * self._planes
        self._due_ps[qp] = 0
        self._sent = {number: item for number, item in self._sent.items() if item[0] != qp}

    def value(self, qp: int, plane: int) -> int:
        """The EV of a QP on a plane, −1 while none is known."""
        return self._values[qp * self._planes + plane]

    def confirm(self, qp: int, plane: int, ev: int, now_ps: int) -> None:
        """An EV has been proved to reach the peer."""
        self._values[qp * self._planes + plane] = ev
        self._confirmed_ps[qp * self._planes + plane] = now_ps

    def plane(self, qp: int, wanted: int, patience_ps: int) -> int:
        """Plane to answer on: the wanted one, unless others have been confirmed so much later."""
        first = qp * self._planes
        confirmed = self._confirmed_ps
        newest = wanted
        for plane in range(self._planes):
            if confirmed[first + plane] > confirmed[first + newest]:
                newest = plane
        late = confirmed[first + newest] - confirmed[first + wanted] > patience_ps
        return newest if late and confirmed[first + newest] > patience_ps else wanted

    def due(self, qp: i64, now_ps: i64, interval_ps: i64) -> bool:
        """Whether the QP may probe now; then not again before an interval has passed."""
        if now_ps < self._due_ps[qp]:
            return False
        self._due_ps[qp] = now_ps + interval_ps
        return True

    def next_plane(self, qp: int) -> int:
        """Planes take turns."""
        plane = self._plane[qp]
        self._plane[qp] = plane + 1 if plane + 1 < self._planes else 0
        return plane

    def probe(self, qp: int, plane: int, choices: list[int]) -> tuple[int, int]:
        """Draw an EV for a probe; returns the probe's number, 0 to 32767, and the EV."""
        number = self._draws & 0x7FFF
        ev = choices[random_bits(self._seed, _COMPONENT, self._draws) % len(choices)]
        self._draws += 1
        self._sent[number] = (qp, plane, ev)
        if len(self._sent) > _OUTSTANDING:
            del self._sent[next(iter(self._sent))]
        return number, ev

    def answered(self, number: int, now_ps: int) -> bool:
        """The answer to a probe arrived; False when none is open under that number."""
        item = self._sent.pop(number, None)
        if item is None:
            return False
        self.confirm(item[0], item[1], item[2], now_ps)
        return True
