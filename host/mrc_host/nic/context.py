"""An open device: identity, settings, and the objects that are made on it."""

from __future__ import annotations

from collections.abc import Sequence

from mrc_host.nic.async_event import AsyncEvent
from mrc_host.nic.base import Nic, RegisterRead
from mrc_host.nic.capabilities import Capabilities
from mrc_host.nic.cc_profile import CcProfile
from mrc_host.nic.completion import CompletionQueue
from mrc_host.nic.driver import Driver
from mrc_host.nic.endpoint_operations import EndpointOperations
from mrc_host.nic.ev_checks import EvEventMask
from mrc_host.nic.ev_format import EvFormat
from mrc_host.nic.ev_profile import EvProfile
from mrc_host.nic.ev_tables import EvTables
from mrc_host.nic.event_notices import EventNotices
from mrc_host.nic.identity import Identity, Settings
from mrc_host.nic.memory import Allocator, ProtectionDomain
from mrc_host.nic.notices import EvEvent, NoticeRing
from mrc_host.nic.numbers import NumberPool
from mrc_host.nic.ports import Ports
from mrc_host.nic.queue_pair import QueuePair
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import DeviceFlag, EventKind

__all__ = ["AsyncEvent", "Context", "Identity", "Settings"]

#: Notices that fit the ring when nothing else is said.
NOTICE_ENTRIES = 256
PROTECTION_DOMAINS = 256


class Context:
    """A device in use by one piece of software.

    Parameters
    ----------
    nic : Nic
        The device.
    identity : Identity
        Written into its registers.
    settings : Settings
        Likewise.

    Attributes
    ----------
    driver : Driver
        Register access; ``with context.driver.at(t):`` lets calls of the API take effect at time t.
    capabilities : Capabilities
    allocator : Allocator
        The device's host memory.

    Raises
    ------
    InfrastructureError
        What answers is not an engine of the NIC's configuration.
    VerbsError
        EINVAL when identity or settings are out of range.
    """

    def __init__(self, nic: Nic, identity: Identity, settings: Settings | None = None) -> None:
        self.nic = nic
        self.identity = identity
        self.settings = settings or Settings()
        self.driver = Driver(nic)
        self.capabilities = capabilities = Capabilities.read(self.driver)
        self.allocator = Allocator(nic.memory)
        self.queue_pairs: dict[int, QueuePair] = {}
        self.completion_queues: dict[int, CompletionQueue] = {}
        self.generations: dict[int, int] = {}
        self.regions = NumberPool("device.memory_regions", capabilities.memory_regions)
        self.queue_pair_numbers = NumberPool("device.queue_pairs", capabilities.qps)
        self.completion_queue_numbers = NumberPool("device.completion_queues", capabilities.completion_queues)
        self.protection_domains = NumberPool("device.protection_domains", PROTECTION_DOMAINS)
        self.ev_profiles: dict[int, EvProfile] = {}
        self.ev_profile_numbers = NumberPool("device.ev_profiles", capabilities.ev_profiles)
        self.cc_profile_numbers = NumberPool("device.cc_profiles", capabilities.cc_profiles)
        self.ev_tables = EvTables.of(self)
        self.ports = Ports(self)
        self._notices: NoticeRing | EventNotices | None = None
        self._pending: list[AsyncEvent] = []
        self._endpoint_operations: EndpointOperations | None = None
        self._configure()

    def _configure(self) -> None:
        driver, identity, settings = self.driver, self.identity, self.settings
        identity.check(self.capabilities.planes)
        settings.check()
        for name, macs in (("mac", identity.macs), ("next_hop_mac", identity.next_hop_macs)):
            for plane, mac in enumerate(macs):
                driver.write(f"port_{name}", mac, plane)
        driver.write("own_address", identity.address)
        driver.write("own_usid", identity.usid)
        driver.write("usid_block", identity.usid_block)
        driver.write("udp_destination_port", settings.udp_destination_port)
        driver.write_fields(
            "dscp_sent",
            dscp_no_trim=settings.dscp_no_trim,
            dscp_trimmable=settings.dscp_trimmable,
            dscp_retransmission=settings.dscp_retransmission,
            dscp_control=settings.dscp_control,
        )
        driver.write_fields(
            "dscp_trimmed",
            dscp_trimmed=settings.dscp_trimmed,
            dscp_trimmed_last_hop=settings.dscp_trimmed_last_hop,
        )
        driver.write("trimming", int(settings.trimming))
        driver.write("sack_threshold", settings.sack_threshold)
        driver.write("base_rtt", settings.base_rtt_ticks)
        driver.write("reorder_window", settings.reorder_window_ticks)
        driver.write_fields("control", enable=1)

    # -- ports -------------------------------------------------------------------------------------------

    def port_up(self, plane: int) -> bool:
        """Return whether a port has link and may be used (at once only)."""
        check_range("port", plane, 0, self.capabilities.planes - 1)
        return bool(self.ports.mask >> plane & 1)

    def set_ports(self, planes: Sequence[int]) -> None:
        """Let the engine use these ports and no others."""
        mask = 0
        for plane in planes:
            mask |= 1 << check_range("port", plane, 0, self.capabilities.planes - 1)
        self.ports.set_mask(mask)

    # -- objects -----------------------------------------------------------------------------------------

    def protection_domain(self) -> ProtectionDomain:
        """Make a protection domain.

        Raises
        ------
        VerbsError
            ENOMEM when all are in use.
        """
        return ProtectionDomain(self, self.protection_domains.take())

    def completion_queue(self, entries: int = 256) -> CompletionQueue:
        """Make a completion queue.

        Raises
        ------
        VerbsError
            EINVAL for the size, ENOMEM when all are in use.
        """
        number = self.completion_queue_numbers.take()
        try:
            queue = CompletionQueue(self, number, entries)
        except VerbsError:
            self.completion_queue_numbers.release(number)
            raise
        self.completion_queues[number] = queue
        return queue

    def ev_profile(
        self,
        planes: Sequence[Sequence[int]],
        *,
        ev_min_active: int | None = None,
        ev_event_mask: EvEventMask | None = None,
        backups: int = 0,
        oblivious: bool = False,
    ) -> EvProfile:
        """Make a profile of mode AUTO from entropy values that the caller has chosen; it is ONLINE.

        Parameters
        ----------
        planes : sequence of sequences of int
            The 32-bit values of each plane.
        ev_min_active : int, optional
            By default a quarter of the values where the device has EV states.
        ev_event_mask : EvEventMask, optional
            By default all where the device has EV events.
        backups : int
            Last values of each plane that wait to replace one that goes bad.
        oblivious : bool
            Marks, trims and losses change no state.

        Raises
        ------
        VerbsError
            EINVAL for number or size, ENOMEM when all profiles are in use, EOPNOTSUPP for what the device
            cannot do.
        """
        values = EvProfile.check(self.nic.config, planes)
        flags = self.capabilities.flags
        if ev_min_active is None:
            ev_min_active = sum(map(len, values)) // 4 if DeviceFlag.EV_STATES in flags else 0
        if ev_event_mask is None:
            everything = EvEventMask.GOOD | EvEventMask.ASSUMED_BAD
            ev_event_mask = everything if DeviceFlag.EV_EVENTS in flags else EvEventMask(0)
        profile = self.create_ev_profile()
        try:
            profile.adopt(
                values,
                ev_min_active=ev_min_active,
                ev_event_mask=ev_event_mask,
                backups=backups,
                oblivious=oblivious,
            )
        except VerbsError:
            profile.destroy()
            raise
        return profile

    def create_ev_profile(self) -> EvProfile:
        """Make an EV profile in state INIT.

        Raises
        ------
        VerbsError
            ENOMEM when all are in use.
        """
        profile = EvProfile(self, self.ev_profile_numbers.take())
        self.ev_profiles[profile.number] = profile
        return profile

    def ev_format(self) -> EvFormat:
        """Make an EV format profile in state INIT."""
        return EvFormat(self)

    def cc_profile(self) -> CcProfile:
        """Make a congestion control profile in state INIT.

        Raises
        ------
        VerbsError
            EOPNOTSUPP without congestion control, ENOMEM when all are in use.
        """
        CcProfile.require(self)
        return CcProfile(self, self.cc_profile_numbers.take())

    def queue_pair(
        self,
        domain: ProtectionDomain,
        send_queue: CompletionQueue,
        receive_queue: CompletionQueue | None = None,
    ) -> QueuePair:
        """Make a queue pair in state RESET; both kinds of completions may go to one queue.

        Raises
        ------
        VerbsError
            EINVAL when the objects belong to another device, ENOMEM when all are in use.
        """
        for name, thing, kind in (
            ("pd", domain, ProtectionDomain),
            ("send_cq", send_queue, CompletionQueue),
            ("recv_cq", receive_queue or send_queue, CompletionQueue),
        ):
            if not isinstance(thing, kind):
                raise VerbsError("EINVAL", f"qp.{name}", thing, f"of type {kind.__name__}")
            if thing.context is not self:
                raise VerbsError("EINVAL", f"qp.{name}", "an object of another device", "of this device")
        index = self.queue_pair_numbers.take()
        pair = QueuePair(self, index, domain, send_queue, receive_queue or send_queue)
        self.queue_pairs[index] = pair
        return pair

    # -- controller --------------------------------------------------------------------------------------

    def open_notices(self, entries: int = NOTICE_ENTRIES) -> NoticeRing | EventNotices:
        """Give the device the ring for EV events and finished endpoint requests, of a size of one's own.

        A device without the controller's tables tells them through its event queue; the driver keeps as many.

        Raises
        ------
        VerbsError
            EOPNOTSUPP when the device reports nothing, EBUSY when it has its ring, EINVAL for the size.
        """
        if not self.capabilities.flags & (DeviceFlag.EV_EVENTS | DeviceFlag.EP_EV_PROBE):
            self.capabilities.require(DeviceFlag.EV_EVENTS, "notices.entries", entries)
        if self._notices is not None:
            raise VerbsError("EBUSY", "notices.entries", entries, "given before the ring is first used")
        controlled = self.capabilities.controlled
        self._notices = NoticeRing(self, entries) if controlled else EventNotices(self, entries)
        return self._notices

    @property
    def notices(self) -> NoticeRing | EventNotices:
        """The ring for EV events and finished endpoint requests, made when it is first used."""
        return self._notices or self.open_notices()

    @property
    def endpoint_operations(self) -> EndpointOperations:
        """EV probes and port status updates, see :class:`EndpointOperations`.

        Raises
        ------
        VerbsError
            EOPNOTSUPP when the device has none.
        """
        if self._endpoint_operations is None:
            self.capabilities.require(DeviceFlag.EP_EV_PROBE, "endpoint_operations", "the first one")
            self._endpoint_operations = EndpointOperations(self)
        return self._endpoint_operations

    def poll_ev_events(self, limit: int = 16) -> list[EvEvent]:
        """Take up to ``limit`` EV events.

        Raises
        ------
        VerbsError
            EOPNOTSUPP when the device reports none.
        """
        self.capabilities.require(DeviceFlag.EV_EVENTS, "ev_events", limit)
        return self.notices.poll_ev_events(limit)

    # -- events ------------------------------------------------------------------------------------------

    def poll_events(self) -> list[AsyncEvent]:
        """Read all events that wait, at once; QPs that are in ERROR take note of it."""
        self.fetch_events()
        events, self._pending = self._pending, []
        return events

    def fetch_events(self) -> None:
        """Read all events that wait, at once, and keep those that :meth:`poll_events` will return."""
        while (fields := self.driver.read_fields("event"))["valid"]:
            event = self._handle_event(self.nic.time_ps, fields)
            if event is not None:
                self._pending.append(event)

    def take_reads(self, reads: Sequence[RegisterRead]) -> list[AsyncEvent]:
        """Handle the answers to ``driver.request_event``, to queries at a time, and the driver's own checks.

        Raises
        ------
        RegisterError
            A scheduled table command was refused.
        """
        answers = self.driver.take_reads(reads)
        events = [self._handle_event(time_ps, fields) for time_ps, fields in answers if fields["valid"]]
        return [event for event in events if event is not None]

    def _handle_event(self, time_ps: int, fields: dict[str, int]) -> AsyncEvent | None:
        """Take an event; None when it is not one of :class:`AsyncEvent`."""
        if fields["kind"] in (EventKind.EV_STATE, EventKind.EV_DROPPED):
            notices = self.notices
            assert isinstance(notices, EventNotices)
            notices.take(time_ps, fields)
            return None
        event = AsyncEvent.of_register(time_ps, fields)
        pair = self.queue_pairs.get(fields["qp"])
        if event.reason is not None and pair is not None:
            pair.enter_error(event.reason)
        return event
