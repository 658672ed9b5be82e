"""Links that go down and up again and again."""

from __future__ import annotations

from typing import Annotated

from pydantic import field_validator
from pydantic_core.core_schema import ValidationInfo

from mrc_host.experiment.fields import number, refuse
from mrc_host.fabric.faults.base import MICROSECONDS, register_fault
from mrc_host.fabric.faults.outage import Outage
from mrc_host.fabric.faults.running import MICROSECOND_PS

__all__ = ["Flap"]

Microseconds = Annotated[float, number(MICROSECONDS, 0, 1e9, low_allowed=False)]


@register_fault("flap")
class Flap(Outage):
    """All links that touch the place go down for a time at the begin of every period.

    Parameters
    ----------
    period_us : float
        From one outage to the next; the first one begins at ``from_us``.
    down_us : float
        How long each lasts, less than the period.
    """

    period_us: Microseconds
    down_us: Microseconds

    @field_validator("down_us")
    @classmethod
    def _ends_within_the_period(cls, value: float, info: ValidationInfo) -> float:
        period = info.data.get("period_us")
        if period is not None and value >= period:
            raise refuse(f"below period_us = {period:g}", value)
        return value

    @property
    def _times_ps(self) -> tuple[int, int]:
        return round(self.period_us * MICROSECOND_PS), round(self.down_us * MICROSECOND_PS)

    def down_during(self, begin_ps: int, end_ps: int, first_ps: int, last_ps: int) -> bool:
        """Whether one of the outages lies between two times."""
        period, down = self._times_ps
        first, last = max(first_ps, begin_ps), min(last_ps, end_ps - 1)
        if first > last:
            return False
        into = (first - begin_ps) % period
        return into < down or into + last - first >= period

    def outages(self, begin_ps: int, end_ps: int) -> list[tuple[int, int]]:
        """Return the outages that NICs are told of."""
        return self.acting(begin_ps, end_ps) if self.signal else []

    def acting(self, begin_ps: int, end_ps: int) -> list[tuple[int, int]]:
        """Return all outages."""
        period, down = self._times_ps
        return [(time, min(time + down, end_ps)) for time in range(begin_ps, end_ps, period)]
