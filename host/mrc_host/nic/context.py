"""An open device: identity, settings, and the objects that are made on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrc_host.fabric.usid import UsidPlan
from mrc_host.nic.base import Nic, RegisterRead
from mrc_host.nic.capabilities import Capabilities
from mrc_host.nic.completion import CompletionQueue
from mrc_host.nic.driver import Driver
from mrc_host.nic.memory import Allocator, ProtectionDomain
from mrc_host.nic.numbers import NumberPool
from mrc_host.nic.path import EvProfile
from mrc_host.nic.queue_pair import QueuePair
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE, TICK_PS
from mrc_rtl.tables import EV_VALUES_PER_PLANE, EventKind, QpErrorReason, TableId

__all__ = ["AsyncEvent", "Context", "Identity", "Settings"]

PROTECTION_DOMAINS = 256


@dataclass(frozen=True)
class Identity:
    """Who a host is on the fabric.

    Parameters
    ----------
    address : int
        Inner IPv6 address, 128 bits.
    usid : int
        uSID of the host with plane bits zero, 16 bits.
    macs, next_hop_macs : tuple of int
        MAC address of each port, and of the switch port it is connected to.
    usid_block : int
        Locator block, 32 bits.
    """

    address: int
    usid: int
    macs: tuple[int, ...]
    next_hop_macs: tuple[int, ...]
    usid_block: int = wire.USID_BLOCK

    @classmethod
    def of_host(cls, plan: UsidPlan, host: int) -> Identity:
        """Return the identity of a host of a topology."""
        planes = range(plan.topology.planes)
        return cls(
            address=plan.inner_address(host),
            usid=plan.host_usid(host, 0),
            macs=tuple(plan.host_mac(host, plane) for plane in planes),
            next_hop_macs=tuple(plan.next_hop_mac(host, plane) for plane in planes),
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Static settings of a device; the defaults are those of profile.md.

    Parameters
    ----------
    udp_destination_port : int
    dscp_no_trim, dscp_trimmable, dscp_retransmission, dscp_control, dscp_trimmed, dscp_trimmed_last_hop : int
        Traffic classes.
    trimming : bool
        Data leaves in the classes that a fabric may trim.
    sack_threshold : int
        Bytes received between SACKs.
    base_rtt_ps : int
        Round-trip time of the empty network.
    """

    udp_destination_port: int = wire.UDP_PORT_ROCE
    dscp_no_trim: int = wire.Dscp.NO_TRIM
    dscp_trimmable: int = wire.Dscp.TRIMMABLE
    dscp_retransmission: int = wire.Dscp.RETX
    dscp_control: int = wire.Dscp.CONTROL
    dscp_trimmed: int = wire.Dscp.TRIMMED
    dscp_trimmed_last_hop: int = wire.Dscp.TRIMMED_LASTHOP
    trimming: bool = False
    sack_threshold: int = 16_384
    base_rtt_ps: int = 63 * TICK_PS


@dataclass(frozen=True)
class AsyncEvent:
    """Something that happened to a QP without being asked for.

    Parameters
    ----------
    time_ps : int
        When software read it.
    kind : EventKind
    qp_number : int
    reason : QpErrorReason or None
        For QP_ERROR: why.
    """

    time_ps: int
    kind: EventKind
    qp_number: int
    reason: QpErrorReason | None


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
        self._profiles = NumberPool("device.ev_profiles", capabilities.ev_profiles)
        self._configure()

    def _configure(self) -> None:
        driver, identity, settings = self.driver, self.identity, self.settings
        planes = self.capabilities.planes
        for name, macs in (("mac", identity.macs), ("next_hop_mac", identity.next_hop_macs)):
            if len(macs) != planes:
                raise VerbsError("EINVAL", f"identity.{name}s", len(macs), f"{planes}, one for each port")
            for plane, mac in enumerate(macs):
                driver.write(f"port_{name}", check_range(f"identity.{name}", mac, 0, (1 << 48) - 1), plane)
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
        driver.write("sack_threshold", check_range("sack_threshold", settings.sack_threshold, 1024, 65_536))
        ticks = -(-settings.base_rtt_ps // TICK_PS)
        driver.write("base_rtt", check_range("base_rtt_ps / 128 ns", ticks, 1, 0xFFFF))
        driver.write_fields("control", enable=1)

    # -- ports -------------------------------------------------------------------------------------------

    def port_up(self, plane: int) -> bool:
        """Return whether a port has link and may be used (at once only)."""
        check_range("port", plane, 0, self.capabilities.planes - 1)
        both = self.driver.read("port_status") & self.driver.read("port_administration")
        return bool(both >> plane & 1)

    def set_ports(self, planes: Sequence[int]) -> None:
        """Let the engine use these ports and no others."""
        mask = 0
        for plane in planes:
            mask |= 1 << check_range("port", plane, 0, self.capabilities.planes - 1)
        self.driver.write("port_administration", mask)

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

    def ev_profile(self, planes: Sequence[Sequence[int]]) -> EvProfile:
        """Make an array of entropy values.

        Parameters
        ----------
        planes : sequence of sequences of int
            The 32-bit values of each plane.

        Raises
        ------
        VerbsError
            EINVAL for number or size, ENOMEM when all profiles are in use.
        """
        values = EvProfile.check(self.nic.config, planes)
        profile = EvProfile(self._profiles.take(), values)
        for plane, row in enumerate(values):
            base = (profile.number * len(values) + plane) * EV_VALUES_PER_PLANE
            for number, value in enumerate(row):
                fields = {"value": value, "port": plane + 1}
                self.driver.write_table(TableId.EV_VALUE, base + number, fields)
        return profile

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
        for name, thing in (
            ("pd", domain),
            ("send_cq", send_queue),
            ("recv_cq", receive_queue or send_queue),
        ):
            if thing.context is not self:
                raise VerbsError("EINVAL", f"qp.{name}", "an object of another device", "of this device")
        index = self.queue_pair_numbers.take()
        pair = QueuePair(self, index, domain, send_queue, receive_queue or send_queue)
        self.queue_pairs[index] = pair
        return pair

    # -- events ------------------------------------------------------------------------------------------

    def poll_events(self) -> list[AsyncEvent]:
        """Read all events that wait, at once; QPs that are in ERROR take note of it."""
        events: list[AsyncEvent] = []
        while (fields := self.driver.read_fields("event"))["valid"]:
            events.append(self._handle_event(self.nic.time_ps, fields))
        return events

    def take_reads(self, reads: Sequence[RegisterRead]) -> list[AsyncEvent]:
        """Handle the answers to ``driver.request_event`` and to the driver's own checks.

        Raises
        ------
        RegisterError
            A scheduled table command was refused.
        """
        answers = self.driver.take_reads(reads)
        return [self._handle_event(time_ps, fields) for time_ps, fields in answers if fields["valid"]]

    def _handle_event(self, time_ps: int, fields: dict[str, int]) -> AsyncEvent:
        kind = EventKind(fields["kind"])
        reason = QpErrorReason(fields["reason"]) if kind is EventKind.QP_ERROR else None
        pair = self.queue_pairs.get(fields["qp"])
        if pair is not None and reason is not None:
            pair.enter_error(reason)
        return AsyncEvent(time_ps, kind, QP_NUMBER_BASE + fields["qp"], reason)
