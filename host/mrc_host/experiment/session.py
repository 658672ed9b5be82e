"""NICs on a fabric that a script moves on by hand: for notebooks, examples and tests.

Between two calls of :meth:`Session.run` time stands still, and the script calls the device API at once. That
suits models, whose registers answer in no time; gateware needs time for every access and is run by
:class:`~mrc_host.experiment.lockstep.Lockstep`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from mrc_host.errors import ConfigError
from mrc_host.fabric.faults import FAULTS
from mrc_host.fabric.faults.running import RunningFault, RunningFaults
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.spec import config_errors
from mrc_host.nic.base import NEVER, Nic
from mrc_host.nic.context import Context

__all__ = ["Session"]

MICROSECOND_PS = 1_000_000


class Session:
    """Runs NICs and the fabric between them for as long as it is told.

    Parameters
    ----------
    nics : sequence of Nic
        NIC h is host h of the fabric; register accesses must not take time.
    fabric : Fabric
    seed : int
        Of the random numbers of faults.

    Attributes
    ----------
    time_ps : int
        How far everything has run.

    Raises
    ------
    ConfigError
        There are not as many NICs as hosts.
    """

    def __init__(self, nics: Sequence[Nic], fabric: Fabric, seed: int = 0) -> None:
        if len(nics) != fabric.topology.hosts:
            raise ConfigError("session.nics", f"{fabric.topology.hosts}, one a host", len(nics))
        self.nics = tuple(nics)
        self.fabric = fabric
        self.time_ps = max(nic.time_ps for nic in nics)
        self._seed = seed
        self._contexts: dict[int, Context] = {}

    def attach(self, context: Context) -> None:
        """Hand a device the answers to what is asked at a time (``with context.driver.at(time_ps):``).

        Raises
        ------
        ConfigError
            Its NIC is none of the session's.
        """
        for number, nic in enumerate(self.nics):
            if nic is context.nic:
                self._contexts[number] = context
                return
        raise ConfigError("session.attach", "a device of the session", context.nic)

    def run(self, microseconds: float) -> None:
        """Let time go on.

        Raises
        ------
        ConfigError
            A time below 0.
        """
        if microseconds < 0:
            raise ConfigError("session.run", "a time from 0 us on", microseconds)
        # A command that waited for packets in flight has let time go on for its NIC alone: others catch up.
        start = max(nic.time_ps for nic in self.nics)
        self._advance(start)
        self._advance(start + round(microseconds * MICROSECOND_PS))

    def _advance(self, end_ps: int) -> None:
        while self.time_ps < end_ps:
            quiet = min(self.fabric.next_arrival_bound_ps(), *(nic.next_activity_ps for nic in self.nics))
            self.time_ps = min(end_ps, max(self.time_ps + self.fabric.lookahead_ps, quiet))
            for arrival in self.fabric.advance(self.time_ps):
                nic = self.nics[arrival.nic]
                # Calls of the API took a cycle for a register: what came meanwhile is received behind them.
                nic.deliver(arrival.port, max(nic.time_ps, arrival.time_first_bit_ps), arrival.frame)
            outputs = [nic.run(max(nic.time_ps, self.time_ps)) for nic in self.nics]
            frames = [
                (frame.time_last_bit_ps, number * nic.config.planes + frame.port, frame.sequence, frame.data)
                for number, nic in enumerate(self.nics)
                for frame in outputs[number].frames
            ]
            for number, context in self._contexts.items():
                context.take_reads(outputs[number].reads)
            for time_ps, port, _, data in sorted(frames, key=lambda item: item[:3]):
                self.fabric.transmit(port, time_ps, data)

    def fault(self, **fields: Any) -> RunningFault:
        """Let something go wrong from now on.

        Parameters
        ----------
        fields
            As an entry of ``faults`` in an experiment; times count from now.

        Returns
        -------
        RunningFault
            Counts what it met and hit.

        Raises
        ------
        ConfigError
            A field that is not allowed, or a place that does not exist.
        """
        kind = fields.get("kind")
        if kind not in FAULTS:
            raise ConfigError("fault.kind", f"one of {', '.join(sorted(FAULTS))}", kind)
        try:
            spec = FAULTS[kind].model_validate(fields)
        except ValidationError as error:
            raise config_errors(error)[0] from error
        faults = RunningFaults([spec], self.fabric, self._seed)
        for change in faults.start(max(nic.time_ps for nic in self.nics), NEVER):
            self.nics[change.host].schedule_link(change.time_ps, change.plane, change.up)
        return faults.faults[0]
