"""What the parts of the model see of each other: shell, requester and responder.

The shell owns time, ports, registers, tables, regions, memory and completion rings. The requester sends and
takes feedback, the responder takes writes and makes feedback; both reach the world through the shell only.
QPs are named by their index in the engine's tables everywhere. Times are picoseconds, ticks are 128 ns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.model.packet import ModelPacket
from mrc_rtl.config import TICK_PS, NicConfig

__all__ = [
    "CC_PROFILES",
    "ENDPOINT_SLOTS",
    "RESPONDER_REQUESTS",
    "Requester",
    "Responder",
    "Settings",
    "Shell",
]

ENDPOINT_SLOTS: Final = 64
"""Rows of ENDPOINT_OPERATION."""
CC_PROFILES: Final = 16
"""Rows of CC_PROFILE."""

RESPONDER_REQUESTS: Final = 0x8000
"""Ids of endpoint requests from here on belong to the responder (reverse EV probes), those below to the
requester."""


class Settings:
    """The static registers, by the names of ``mrc_rtl/registers.rdl``; the shell keeps them up to date."""

    __slots__ = (
        "base_rtt",
        "dscp_control",
        "dscp_no_trim",
        "dscp_retransmission",
        "dscp_trimmable",
        "dscp_trimmed",
        "dscp_trimmed_last_hop",
        "enable",
        "mac",
        "next_hop_mac",
        "own_address",
        "own_usid",
        "port_administration",
        "probe_doublings",
        "probe_interval",
        "probe_spacing",
        "probe_successes",
        "reorder_window",
        "sack_threshold",
        "trimming",
        "udp_destination_port",
        "usid_block",
    )

    def __init__(self, planes: int) -> None:
        self.enable: bool = False
        self.port_administration: int = 0xFF
        self.own_usid: int = 0
        self.usid_block: int = 0x5F000000
        self.udp_destination_port: int = 4791
        self.dscp_no_trim: int = 4
        self.dscp_trimmable: int = 8
        self.dscp_retransmission: int = 10
        self.dscp_control: int = 46
        self.dscp_trimmed: int = 12
        self.dscp_trimmed_last_hop: int = 16
        self.trimming: bool = False
        self.sack_threshold: int = 16384
        self.probe_interval: int = 500
        self.probe_doublings: int = 7
        self.probe_successes: int = 3
        self.probe_spacing: int = 66
        self.base_rtt: int = 63
        """Ticks."""
        self.reorder_window: int = 0
        """Ticks; 0: half of base_rtt."""
        self.own_address: int = 0
        self.mac: list[int] = [0] * planes
        self.next_hop_mac: list[int] = [0] * planes


@mypyc_attr(allow_interpreted_subclasses=True)
class Shell(ABC):
    """What requester and responder use of the NIC around them.

    Attributes
    ----------
    now_ps : int
        Simulated time.
    config : NicConfig
    settings : Settings
    seed : int
        Random numbers are hashes of this and a counter of the component.
    read_failure : int
        Why the last :meth:`read_memory` gave nothing: QpErrorReason LOCAL_PROTECTION or LOCAL_READ.
    """

    now_ps: i64
    config: NicConfig
    settings: Settings
    seed: int
    read_failure: int

    @property
    def tick(self) -> int:
        """Whole ticks of 128 ns since time 0; headers carry the low 16 bits."""
        return int(self.now_ps // TICK_PS)

    # -- ports -------------------------------------------------------------------------------------------

    @abstractmethod
    def room(self, plane: i64) -> bool:
        """Whether the transmit FIFO of a plane takes one more frame of any size."""

    def start_ps(self, plane: i64) -> i64:
        """When the first bit of a frame would leave that is put into the transmit FIFO of a plane now."""
        return self.now_ps

    def rooms(self) -> i64:
        """Bit p: plane p has room."""
        return sum(self.room(plane) << plane for plane in range(self.config.planes))

    @abstractmethod
    def port_up(self, plane: i64) -> bool:
        """Whether a port has link and is administratively up."""

    @abstractmethod
    def transmit(self, plane: i64, packet: ModelPacket) -> None:
        """Put a packet into the transmit FIFO of a plane; there must be room.

        The packet's ``qp`` names the template (addresses, QPN, P_Key, UDP port), ``ev`` is set and
        ``traffic_class`` too. What a SACK or transport ACK says of the QP's receive state is filled in here,
        so that it is that of the moment of sending. The packet must not be changed or used again by the
        sender.
        """

    # -- time --------------------------------------------------------------------------------------------

    @abstractmethod
    def schedule(self, time_ps: i64, callback: Callable[[int], None], argument: int) -> None:
        """Call ``callback(argument)`` once at a time (not before now); the callee checks its state again.

        Calls of the same time come in the order in which they were scheduled.
        """

    # -- memory and completions --------------------------------------------------------------------------

    @abstractmethod
    def read_memory(self, protection_domain: i64, local_key: i64, address: int, length: i64) -> bytes | None:
        """Payload of a packet to send; None when key, domain or bounds forbid it, or the memory answers with
        an error (``read_failure`` tells which).
        """

    @abstractmethod
    def complete(
        self,
        queue: int,
        qp: int,
        wr_id: int,
        opcode: int,
        status: int,
        length: int,
        immediate: int,
        message_number: int,
    ) -> None:
        """Write a completion (``mrc_rtl.tables.CQE``) to a ring; completions of a ring keep their order."""

    @abstractmethod
    def enter_error(self, qp: int, reason: int) -> None:
        """Put a QP into ERROR (QpErrorReason): both sides' ``on_error`` are called, an event is raised.

        Nothing happens when the QP is in ERROR or RESET already.
        """

    # -- observation -------------------------------------------------------------------------------------

    @abstractmethod
    def count(self, counter: i64, amount: int = 1) -> None:
        """Increment a global counter (``mrc_rtl.records.GlobalCounter``)."""

    @abstractmethod
    def count_port(self, plane: i64, counter: i64) -> None:
        """Increment a counter of a port (``mrc_rtl.records.PortCounter``)."""

    @abstractmethod
    def event(self, kind: int, qp: int, reason: int) -> None:
        """Append to the event queue behind the event register (EventKind)."""

    @abstractmethod
    def trace(self, kind: int, qp: int, plane: int, psn: int, detail: int) -> None:
        """Report a decision (``mrc_rtl.records.TraceKind``) in the NIC's outputs; the frequent kinds only
        when tracing is on.
        """

    @abstractmethod
    def notice(self, fields: dict[str, int]) -> None:
        """Append to the notice ring (fields of ``mrc_rtl.tables.NOTICE`` without ``dropped``, ``time`` and
        ``phase``); what finds the ring full or not enabled is counted in DEVICE ``notice_dropped``.
        """

    @abstractmethod
    def peer_address(self, qp: int) -> int:
        """Inner IPv6 address of a QP's peer (QP_RECEIVE); 0 while there is none."""

    @abstractmethod
    def byte_time_ps(self, plane: int) -> int:
        """Picoseconds of a byte on a plane's line, rounded; congestion control and probe budget go by it."""

    # -- between requester and responder -----------------------------------------------------------------

    @abstractmethod
    def reverse_ev(self, qp: int, plane: int) -> int:
        """EV of the reverse EV set for control packets of a QP on a plane; −1 while none is known."""

    @abstractmethod
    def confirm_ev(self, qp: int, plane: int, ev: int) -> None:
        """The requester tells that feedback proved an EV of this QP to reach the peer (protocol.md 2.6)."""

    @abstractmethod
    def data_sent_ps(self, qp: i64) -> i64:
        """Time the QP's requester last sent a data packet; −1 for never."""

    @abstractmethod
    def outer_source(self, plane: int) -> int:
        """This host's outer address on a plane, from any QP's template; 0 while none has one."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Requester(ABC):
    """The sending half of all QPs, with the binder that chooses plane and EV of every packet.

    The shell calls :meth:`pump` after every change (room, feedback, post, timer, port); everything else only
    changes state. SACK_RECEIVED, NACK_RECEIVED and ACK_RECEIVED are counted before feedback is handed over.
    A QP_SEND row with state RESET also drops the QP's control packets that wait.
    """

    @abstractmethod
    def write_row(self, table: int, index: int, fields: dict[str, int]) -> bool:
        """Apply a table command of a table it owns: QP_SEND, EV_SET, EV_VALUE, and of the controller's
        QP_OPTION, EV_PROFILE, EV_ENTRY, CC_PROFILE and ENDPOINT_OPERATION (``mrc_rtl.tables``); DEVICE is the
        shell's, and ``own_mpr_psns`` and ``own_max_immediates`` of QP_OPTION are the responder's to obey.
        False refuses the command.
        """

    @abstractmethod
    def read_row(self, table: int, index: int) -> dict[str, int] | None:
        """All fields of a row it owns; None when there is no such row."""

    @abstractmethod
    def post(self, qp: int, request: dict[str, int]) -> None:
        """A send request (fields of SEND_REQUEST) whose doorbell rang; at most send_queue_depth at a time."""

    @abstractmethod
    def on_sack(self, qp: int, packet: ModelPacket) -> None:
        """A SACK of the QP's peer; ``packet.probe`` when it answers a reliability probe."""

    @abstractmethod
    def on_ack(self, qp: int, packet: ModelPacket) -> None:
        """A transport ACK or NAK (``packet.syndrome``)."""

    @abstractmethod
    def on_nack(self, qp: int, packet: ModelPacket) -> None:
        """A Reliability NACK."""

    @abstractmethod
    def on_endpoint_response(self, packet: ModelPacket) -> None:
        """The answer to an endpoint request of the requester (id ``packet.psn``)."""

    @abstractmethod
    def on_peer_ports(self, source: int, port_mask: int) -> None:
        """A PORT_STATUS_UPDATE of the host with that inner address (bit = port − 1, 1 = reachable)."""

    @abstractmethod
    def on_error(self, qp: int) -> None:
        """The QP went to ERROR: flush what is outstanding, send no data any more. Control packets that wait
        leave all the same: a NAK may be among them.
        """

    @abstractmethod
    def port_changed(self, plane: int, up: bool) -> None:
        """A port's link or administrative state changed."""

    @abstractmethod
    def enqueue_control(self, packet: ModelPacket, qp: int, plane: int) -> None:
        """Queue a SACK, NACK, ACK or endpoint operation ahead of all data.

        ``plane`` is the wanted plane or ``UNBOUND`` for any. Where that plane is down another one is taken.
        The binder sets ``ev`` (unless it is set), from ``Shell.reverse_ev`` or by turns from the QP's EVs of
        the plane, and ``traffic_class``.
        """

    @abstractmethod
    def data_sent_ps(self, qp: i64) -> i64:
        """Time the QP last sent a data packet; −1 for never."""

    @abstractmethod
    def good_evs(self, qp: int, plane: int) -> list[int]:
        """Values of the QP's EVs on a plane that may be used now; the responder probes them (2.6).

        Empty when the peer does not answer endpoint requests.
        """

    @abstractmethod
    def pump(self) -> None:
        """Send while planes have room: control packets first, then data of QPs that may send."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Responder(ABC):
    """The receiving half of all QPs."""

    @abstractmethod
    def on_packet(self, packet: ModelPacket) -> None:
        """A frame that passed the port's checks (addresses, lengths, ICRC unless trimmed)."""

    @abstractmethod
    def fill(self, packet: ModelPacket) -> None:
        """Fill the receive state into a SACK or transport ACK of the responder that is sent now."""

    @abstractmethod
    def on_error(self, qp: int) -> None:
        """The QP went to ERROR: accept nothing more; receives that wait are flushed by software."""
