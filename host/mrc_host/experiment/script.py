"""What controllers do during a run: timed actions on NICs, each kind one class that registers itself.

An action begins and may end; ending undoes it. It takes effect the host's latency after its time, as
everything that software does.

Source: protocol.md 2.2, 2.8 and 3.7.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, field_validator
from pydantic_core.core_schema import ValidationInfo

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import Section, check_kind, number, refuse, register_kind, whole
from mrc_host.fabric.faults.base import Numbers
from mrc_host.nic.device import Context, DeviceFlag, EvKey, EvProfile, EvState, EvStateChange
from mrc_rtl.wire import EV

if TYPE_CHECKING:
    from mrc_host.experiment.application import Host

__all__ = ["ACTIONS", "Action", "DenyEvs", "DisablePort", "RunningScript", "check_action", "register_action"]

MICROSECOND_PS = 1_000_000
MICROSECONDS = "microseconds"


class Action(Section):
    """What all kinds have in common.

    Parameters
    ----------
    do : str
        Name of the kind.
    host : int
        Host whose NIC it is about.
    from_us, to_us : float
        When it begins and when it is undone, after the start of the run; without ``to_us`` it stays.
    """

    do: str
    host: Annotated[int, whole(0, (1 << 16) - 1)]
    from_us: Annotated[float, number(MICROSECONDS, 0, 1e9)] = 0.0
    to_us: Annotated[float, number(MICROSECONDS, 0, 1e9, low_allowed=False)] | None = Field(
        default=None, validate_default=True
    )

    @field_validator("to_us")
    @classmethod
    def _ends_after_it_begins(cls, value: float | None, info: ValidationInfo) -> float | None:
        begin = info.data.get("from_us")
        if value is not None and begin is not None and value <= begin:
            raise refuse(f"above from_us = {begin:g}", value)
        return value

    def check(self, hosts: int, planes: int, evs: Sequence[int]) -> None:
        """Check the action against the NICs it is meant for.

        Parameters
        ----------
        hosts, planes : int
            Of the fabric.
        evs : sequence of int
            Entropy values of every queue pair.

        Raises
        ------
        ConfigError
            It does not fit; the path is the key within the action.
        """
        if self.host >= hosts:
            raise ConfigError("host", f"a host between 0 and {hosts - 1}", self.host)

    def require(self, context: Context) -> None:
        """Check that a NIC can do it.

        Raises
        ------
        VerbsError
            EOPNOTSUPP when it cannot.
        """

    @abstractmethod
    def begin(self, context: Context, profile: EvProfile) -> None:
        """Carry it out on a NIC and the profile its queue pairs use."""

    @abstractmethod
    def end(self, context: Context, profile: EvProfile) -> None:
        """Undo it."""


ACTIONS: dict[str, type[Action]] = {}
"""Kinds of action by name."""

Kind = TypeVar("Kind", bound=type[Action])


def register_action(name: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that makes a kind of action known under a name."""
    return register_kind(ACTIONS, name, "an action")


def check_action(value: Any) -> Any:
    """Validate one action of a file by its kind, for a field of a schema."""
    return check_kind(value, Action, ACTIONS, "an action with do")


@register_action("deny_evs")
class DenyEvs(Action):
    """MODIFY_EV_STATE: entropy values become DENIED, and GOOD again at the end.

    Parameters
    ----------
    ev : int or list of int
        Entropy values of 32 bits.
    """

    ev: Numbers

    def check(self, hosts: int, planes: int, evs: Sequence[int]) -> None:
        """Check that queue pairs have the values."""
        super().check(hosts, planes, evs)
        for ev in self.ev:
            if ev not in evs:
                raise ConfigError("ev", f"one of a queue pair's {len(evs)} EVs, such as {evs[0]:#x}", hex(ev))

    def require(self, context: Context) -> None:
        """Check that the NIC has states of EVs."""
        context.capabilities.require(DeviceFlag.EV_STATES, "script.do", "deny_evs")

    def begin(self, context: Context, profile: EvProfile) -> None:
        """Deny them."""
        self._change(context, profile, EvState.DENIED)

    def end(self, context: Context, profile: EvProfile) -> None:
        """Allow them again."""
        self._change(context, profile, EvState.GOOD)

    def _change(self, context: Context, profile: EvProfile, state: EvState) -> None:
        most = context.capabilities.ev_op_max_entries
        changes = [EvStateChange(EvKey(ev, EV.unpack(ev)["plane"] + 1), state) for ev in self.ev]
        for first in range(0, len(changes), most):
            profile.modify_ev_state(changes[first : first + most])


@register_action("disable_port")
class DisablePort(Action):
    """A port is taken out of use, and into use again at the end.

    Parameters
    ----------
    plane : int
        Plane of the port, from 0.
    """

    plane: Annotated[int, whole(0, 7)]

    def check(self, hosts: int, planes: int, evs: Sequence[int]) -> None:
        """Check that there is such a port."""
        super().check(hosts, planes, evs)
        if self.plane >= planes:
            raise ConfigError("plane", f"between 0 and {planes - 1}", self.plane)

    def begin(self, context: Context, profile: EvProfile) -> None:
        """Take it out of use."""
        context.ports.modify(self.plane + 1, enabled=False)

    def end(self, context: Context, profile: EvProfile) -> None:
        """Take it into use."""
        context.ports.modify(self.plane + 1, enabled=True)


class RunningScript:
    """The actions of a run.

    Parameters
    ----------
    actions : sequence of Action
        In the order of the experiment.
    """

    def __init__(self, actions: Sequence[Action]) -> None:
        self.actions = list(actions)
        self.begun = [False] * len(self.actions)

    def require(self, contexts: Sequence[Context]) -> None:
        """Check that the NICs can do what is asked of them.

        Raises
        ------
        VerbsError
            EOPNOTSUPP for the first that cannot.
        """
        for action in self.actions:
            action.require(contexts[action.host])

    def start(self, start_ps: int, hosts: Sequence[Host]) -> None:
        """Put all actions on the agendas of their hosts; what ends at a time ends before what begins then."""
        calls: list[tuple[int, bool, int]] = []
        for place, action in enumerate(self.actions):
            calls.append((round(action.from_us * MICROSECOND_PS), True, place))
            if action.to_us is not None:
                calls.append((round(action.to_us * MICROSECOND_PS), False, place))
        for after_ps, begins, place in sorted(calls):
            host = hosts[self.actions[place].host]
            host.schedule(start_ps + after_ps, partial(self._begin if begins else self._end, place, host))

    def check_begun(self, simulated_us: float) -> None:
        """Refuse a run that ended before an action began.

        Parameters
        ----------
        simulated_us : float
            How long the run was.

        Raises
        ------
        ConfigError
            For the first such action.
        """
        for place, (action, begun) in enumerate(zip(self.actions, self.begun, strict=True)):
            if not begun:
                raise ConfigError(
                    f"script.{place}.from_us", f"within the run (of {simulated_us:g} µs)", action.from_us
                )

    def _begin(self, place: int, host: Host, time_ps: int) -> None:
        self.begun[place] = True
        self.actions[place].begin(host.context, _profile(host.context))

    def _end(self, place: int, host: Host, time_ps: int) -> None:
        self.actions[place].end(host.context, _profile(host.context))


def _profile(context: Context) -> EvProfile:
    """Return the one profile that a run's queue pairs of a NIC share."""
    return next(iter(context.ev_profiles.values()))
