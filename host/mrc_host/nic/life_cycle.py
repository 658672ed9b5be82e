"""The life cycle that EV formats, EV profiles and congestion control profiles share.

| step | what it needs |
|---|---|
| INIT → OFFLINE | the attributes that say what the profile is |
| OFFLINE → ONLINE | the attributes that make it complete; from then on QPs may use it |
| ONLINE → OFFLINE | nobody uses it |
| OFFLINE → INIT | nothing; all attributes are forgotten |

Attributes may be given with a step or before it, in INIT and OFFLINE; few may change while ONLINE.

Source: protocol.md 2.8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from mrc_host.nic.verbs_error import VerbsError
from mrc_rtl.tables import EvProfileState

__all__ = ["LifeCycle", "ProfileState"]

ProfileState = EvProfileState

_INIT, _OFFLINE, _ONLINE = ProfileState.INIT, ProfileState.OFFLINE, ProfileState.ONLINE
_NEXT: dict[ProfileState, tuple[ProfileState, ...]] = {
    _INIT: (_OFFLINE,),
    _OFFLINE: (_ONLINE, _INIT),
    _ONLINE: (_OFFLINE,),
}


class LifeCycle(ABC):
    """A profile that is edited offline and used online.

    Attributes
    ----------
    state : ProfileState
    attributes : dict
        What has been set, by name.
    destroyed : bool
        It has been given back.
    """

    #: What it is called in messages.
    kind: ClassVar[str]
    #: All attributes, with the default where the API has one; a name without default must be set.
    defaults: ClassVar[Mapping[str, Any]] = {}
    names: ClassVar[tuple[str, ...]]
    #: Attributes that must be set to go OFFLINE and ONLINE.
    needed: ClassVar[Mapping[ProfileState, tuple[str, ...]]]
    #: Attributes that may change while ONLINE.
    editable_online: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.state = ProfileState.INIT
        self.attributes: dict[str, Any] = dict(self.defaults)
        self.destroyed = False

    def modify(self, state: ProfileState | None = None, **attributes: Any) -> None:
        """Change attributes, and then go to another state.

        Parameters
        ----------
        state : ProfileState, optional
            The next or the one before; None stays.
        attributes
            See the class.

        Raises
        ------
        VerbsError
            EINVAL for an attribute or a step that is not allowed, or one that is missing; EBUSY for a step
            back while something uses the profile; EOPNOTSUPP for what the device cannot do. Nothing has
            changed then.
        """
        self._check_alive()
        for name in attributes:
            self._check_editable(name, attributes[name])
        complete = {**self.attributes, **attributes}
        after = self.state if state is None else state
        if state is not None:
            self._check_step(after, complete)
        checked = self._checked(complete, frozenset(attributes), after)
        before, self.state, old = self.state, after, self.attributes
        self.attributes = dict(self.defaults) if after is _INIT and before is not _INIT else checked
        try:
            self._apply(before, frozenset(attributes))
        except BaseException:
            self.state, self.attributes = before, old
            raise

    def destroy(self) -> None:
        """Give the profile back; it cannot be used any more.

        Raises
        ------
        VerbsError
            EBUSY while something uses it, EINVAL when it is destroyed already.
        """
        self._check_alive()
        self._check_unused()
        if self.state is _ONLINE:
            self.modify(_OFFLINE)
        self.destroyed = True
        self._release()

    def require_online(self, attribute: str) -> None:
        """Check that it may be used.

        Raises
        ------
        VerbsError
            EINVAL when it is not ONLINE.
        """
        self._check_alive()
        if self.state is not _ONLINE:
            raise VerbsError("EINVAL", f"{attribute}.state", self.state.name, "ONLINE")

    # -- for the kinds of profiles -----------------------------------------------------------------------

    @abstractmethod
    def _checked(
        self, attributes: dict[str, Any], changed: frozenset[str], after: ProfileState
    ) -> dict[str, Any]:
        """Return all attributes when they may be together in a state; raise VerbsError otherwise."""

    @abstractmethod
    def _apply(self, before: ProfileState, changed: frozenset[str]) -> None:
        """Carry out a change; ``state`` and ``attributes`` are the new ones."""

    @abstractmethod
    def _users(self) -> int:
        """Return how many objects use it."""

    @abstractmethod
    def _release(self) -> None:
        """Give back what it holds."""

    def _may_edit_online(self, name: str, value: object) -> None:
        """Raise VerbsError when the device cannot change an attribute of ``editable_online``."""
        raise VerbsError("EOPNOTSUPP", f"{self.kind}.{name}", value, "left as it is while ONLINE")

    # -- inside ------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self.destroyed:
            raise VerbsError("EINVAL", self.kind, "a destroyed one", "one that exists")

    def _check_unused(self) -> None:
        users = self._users()
        if users:
            raise VerbsError("EBUSY", f"{self.kind}.users", users, "0")

    def _check_editable(self, name: str, value: object) -> None:
        if name not in self.names:
            raise VerbsError("EINVAL", f"{self.kind}.attribute", name, f"one of {', '.join(self.names)}")
        if self.state is not _ONLINE:
            return
        if name not in self.editable_online:
            raise VerbsError("EINVAL", f"{self.kind}.{name}", value, "changed while OFFLINE only")
        self._may_edit_online(name, value)

    def _check_step(self, after: ProfileState, attributes: Mapping[str, Any]) -> None:
        if not isinstance(after, ProfileState):
            raise VerbsError("EINVAL", f"{self.kind}.state", after, "of type ProfileState")
        allowed = _NEXT[self.state]
        if after not in allowed:
            names = " or ".join(item.name for item in allowed)
            raise VerbsError("EINVAL", f"{self.kind}.state", after.name, f"{names} after {self.state.name}")
        if self.state is _ONLINE:
            self._check_unused()
        elif after is not _INIT:
            for name in self.needed[after]:
                if name not in attributes:
                    raise VerbsError("EINVAL", f"{self.kind}.{name}", None, f"given to go {after.name}")
