"""Queue pairs: the walk from RESET to RTS, work requests, and what an error does to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from mrc_host.nic.completion import CompletionQueue, WorkCompletion
from mrc_host.nic.congestion import CongestionWindow
from mrc_host.nic.connection import Endpoint, RemoteRegion
from mrc_host.nic.ev_profile import EvProfile
from mrc_host.nic.memory import ProtectionDomain
from mrc_host.nic.path import Path
from mrc_host.nic.qp_attributes import LARGEST_PSN, Retry, check_attributes
from mrc_host.nic.qp_rows import option_row, receive_row, send_row
from mrc_host.nic.qp_status import QpStatus
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_host.nic.work_request import WriteOperands, WriteRequest
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.tables import (
    CompletionStatus,
    ControlTableId,
    QpErrorReason,
    QpState,
    TableId,
    WorkRequestOpcode,
)

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["QueuePair"]


@dataclass(frozen=True)
class _Posted:
    wr_id: int
    opcode: WorkRequestOpcode


class QueuePair:
    """A connection to one peer; made by ``Context.queue_pair``.

    Parameters
    ----------
    context : Context
    index : int
        Its number in the engine's tables.
    domain : ProtectionDomain
        Where local and remote keys must belong to.
    send_queue, receive_queue : CompletionQueue
        Where completions go.

    Attributes
    ----------
    state : QpState
        As far as software knows; an error of the engine is known when its event has been handled.
    error_reason : QpErrorReason or None
        Why the QP is in ERROR.
    attributes : dict
        What has been set on the way, by name (see :mod:`mrc_host.nic.qp_attributes`).
    """

    def __init__(
        self,
        context: Context,
        index: int,
        domain: ProtectionDomain,
        send_queue: CompletionQueue,
        receive_queue: CompletionQueue,
    ) -> None:
        self.context = context
        self.index = index
        self.protection_domain = domain
        self.send_queue = send_queue
        self.receive_queue = receive_queue
        self.state = QpState.RESET
        self.error_reason: QpErrorReason | None = None
        self.attributes: dict[str, Any] = {}
        self._window = CongestionWindow(context.driver, index)
        self.reset()

    @property
    def number(self) -> int:
        """QP number, what the peer calls ``dest_qp_num``."""
        return QP_NUMBER_BASE + self.index

    @property
    def sends_outstanding(self) -> int:
        """Send requests posted and not known to be completed."""
        return len(self._sends)

    @property
    def receives_outstanding(self) -> int:
        """Receive requests posted and not completed."""
        return len(self._receives)

    def endpoint(self, starting_psn: int = 0, regions: Sequence[RemoteRegion] = ()) -> Endpoint:
        """Return what the peer must know, to be carried by the application's own channel.

        Parameters
        ----------
        starting_psn : int
            First PSN this end will send, ``sq_psn``.
        regions : sequence of RemoteRegion
            Memory the peer may write (``MemoryRegion.remote``).

        Raises
        ------
        VerbsError
            EINVAL for the PSN.
        """
        check_range("qp.sq_psn", starting_psn, 0, LARGEST_PSN)
        capabilities = self.context.capabilities
        return Endpoint(
            qp_number=self.number,
            starting_psn=starting_psn,
            address=self.context.identity.address,
            mpr=capabilities.mpr,
            max_wimm=capabilities.immediates,
            dynamic_mpr=capabilities.dynamic_mpr,
            trim_nack=capabilities.trim_nack,
            svc_time=capabilities.svc_time,
            probe_answers=capabilities.probe_answers,
            endpoint_answers=capabilities.endpoint_answers,
            regions=tuple(regions),
        )

    def query(self) -> QpStatus:
        """Ask the device about the QP (at once only)."""
        status = QpStatus.read(self.context.driver, self.context.capabilities.controlled, self.index)
        return replace(status, **vars(self._window.read())) if self._window.active else status

    # -- states ------------------------------------------------------------------------------------------

    def modify(self, state: QpState, **attributes: Any) -> None:
        """Go to another state.

        Parameters
        ----------
        state : QpState
            INIT from RESET, RTR from INIT, RTS from RTR; ERROR and RESET from anywhere.
        attributes
            What the step needs and allows, see :mod:`mrc_host.nic.qp_attributes`.

        Raises
        ------
        VerbsError
            EINVAL for a step, a missing or unexpected attribute, or a value that is not allowed.
        """
        checked = check_attributes(self.context.capabilities, self.state, state, attributes)
        if state is QpState.RESET:
            self.reset()
            return
        if state is QpState.ERROR:
            self._write_send(QpState.ERROR)
            self._write_receive(QpState.ERROR)
            self.enter_error(QpErrorReason.HOST)
            return
        self._check_with_device(checked)
        self.attributes.update(checked)
        self._write_options()
        if state is QpState.RTR:
            self._write_path()
            # Feedback leaves as soon as packets arrive, so paths and profile stand before the receive side.
            self._write_send(QpState.RTR)
            self._write_receive(QpState.RTR)
        elif state is QpState.RTS:
            self._start_window()
            self._write_send(QpState.RTS)
        self.state = state

    def reset(self) -> None:
        """Any state → RESET. The engine answers when nothing of the QP is under way any more."""
        driver = self.context.driver
        driver.write_table(TableId.QP_SEND, self.index, {"state": QpState.RESET})
        self._window.end()
        driver.write_table(TableId.QP_RECEIVE, self.index, {"state": QpState.RESET})
        self.state = QpState.RESET
        self._clear()

    def to_init(self, ev_profile: EvProfile, *, partition_key: int = 0xFFFF, **attributes: Any) -> None:
        """RESET → INIT."""
        self.modify(QpState.INIT, ev_profile=ev_profile, partition_key=partition_key, **attributes)

    def to_rtr(self, path: Path, peer: Endpoint, *, path_mtu: int, dynamic_mpr: bool = False) -> None:
        """INIT → RTR (ready to receive) with what the peer said about itself.

        Raises
        ------
        VerbsError
            As :meth:`modify`; EINVAL for a dynamic MPR that the peer does not want.
        """
        if not isinstance(peer, Endpoint):
            raise VerbsError("EINVAL", "qp.peer", peer, "of type Endpoint")
        if dynamic_mpr and not peer.dynamic_mpr:
            raise VerbsError("EINVAL", "qp.dynamic_mpr", dynamic_mpr, "False unless the peer wants it too")
        self.modify(
            QpState.RTR,
            path=path,
            path_mtu=path_mtu,
            dest_qp_num=peer.qp_number,
            rq_psn=peer.starting_psn,
            mpr_dest=peer.mpr,
            max_wimm_dest=peer.max_wimm,
            dynamic_mpr=dynamic_mpr,
            trim_nack_dest_unsupported=not peer.trim_nack,
            svc_time_dest_unsupported=not peer.svc_time,
            probes_dest_unsupported=not peer.probe_answers,
            requests_dest_unsupported=not peer.endpoint_answers,
        )

    def to_rts(
        self, *, sq_psn: int = 0, timeout: int = 7, retry: Retry | None = None, **attributes: Any
    ) -> None:
        """RTR → RTS (ready to send)."""
        self.modify(QpState.RTS, sq_psn=sq_psn, timeout=timeout, retry=retry or Retry(), **attributes)

    def to_error(self) -> None:
        """Any state → ERROR; what is outstanding completes with FLUSHED."""
        self.modify(QpState.ERROR)

    def enter_error(self, reason: QpErrorReason) -> None:
        """Take note that the QP is in ERROR, and flush the receives (the engine flushes the sends)."""
        if self.state is QpState.ERROR:
            return
        self.state = QpState.ERROR
        self.error_reason = reason
        # A receive whose completion stands in the ring, not polled yet, is not flushed.
        self.receive_queue.collect()
        while self._receives:
            self._flush(self.receive_queue, self._receives.popleft())

    def destroy(self) -> None:
        """Reset the QP and give its number back; nothing of it is left in the engine."""
        self.modify(QpState.RESET)
        del self.context.queue_pairs[self.index]
        self.context.queue_pair_numbers.release(self.index)

    # -- work requests -----------------------------------------------------------------------------------

    def write(self, wr_id: int, **operands: Unpack[WriteOperands]) -> None:
        """Post an RDMA WRITE.

        Parameters
        ----------
        wr_id : int
            Comes back in the completion, 64 bits.
        operands
            ``local_address``, ``lkey``, ``length``, ``remote_address``, ``rkey``, ``signalled``, see
            :class:`~mrc_host.nic.work_request.WriteRequest`.

        Raises
        ------
        VerbsError
            EINVAL for the state or a value, ENOMEM when the send queue is full.
        """
        self.post_send(WriteRequest(wr_id=wr_id, **operands))

    def write_imm(self, wr_id: int, *, immediate: int, **operands: Unpack[WriteOperands]) -> None:
        """Post an RDMA WRITE WITH IMMEDIATE: as :meth:`write`, and the peer completes a posted receive.

        Parameters
        ----------
        immediate : int
            32 bits that appear in the peer's completion; ``length`` may be 0.

        Raises
        ------
        VerbsError
            As :meth:`write`.
        """
        check_range("wr.immediate", immediate, 0, (1 << 32) - 1)
        self.post_send(WriteRequest(wr_id=wr_id, immediate=immediate, **operands))

    def post_send(self, request: WriteRequest) -> None:
        """Post a send request; in ERROR it is flushed at once.

        Raises
        ------
        VerbsError
            As :meth:`write`.
        """
        posted = _Posted(request.wr_id, request.opcode)
        if self.state is QpState.ERROR:
            self._flush(self.send_queue, posted)
            return
        if self.state is not QpState.RTS:
            raise VerbsError("EINVAL", "qp.state", self.state.name, "RTS to post a send request")
        depth = self.context.capabilities.send_queue_depth
        if len(self._sends) >= depth:
            raise VerbsError("ENOMEM", "qp.sends_outstanding", depth + 1, f"at most {depth}")
        slot = self.index * depth + self._sends_posted % depth
        driver = self.context.driver
        driver.write_table(TableId.SEND_REQUEST, slot, request.row(), check=False)
        driver.write_fields("send_doorbell", qp=self.index, count=1)
        self._sends.append(posted)
        self._sends_posted += 1

    def post_recv(self, wr_id: int) -> None:
        """Post a receive request, which one WRITE WITH IMMEDIATE of the peer completes.

        Raises
        ------
        VerbsError
            EINVAL in RESET, ENOMEM when the receive queue is full.
        """
        check_range("wr.wr_id", wr_id, 0, (1 << 64) - 1)
        if self.state is QpState.RESET:
            raise VerbsError("EINVAL", "qp.state", self.state.name, "INIT or later to post a receive")
        posted = _Posted(wr_id, WorkRequestOpcode.RECEIVE_IMM)
        if self.state is QpState.ERROR:
            self._flush(self.receive_queue, posted)
            return
        depth = self.context.capabilities.receive_queue_depth
        if len(self._receives) >= depth:
            raise VerbsError("ENOMEM", "qp.receives_outstanding", depth + 1, f"at most {depth}")
        slot = self.index * depth + self._receives_posted % depth
        driver = self.context.driver
        driver.write_table(TableId.RECEIVE_REQUEST, slot, {"wr_id": wr_id}, check=False)
        driver.write_fields("receive_doorbell", qp=self.index, count=1)
        self._receives.append(posted)
        self._receives_posted += 1

    def account(self, completion: WorkCompletion) -> None:
        """Take note of a completion that was taken from a queue."""
        if completion.opcode is WorkRequestOpcode.RECEIVE_IMM:
            if self._receives:
                self._receives.popleft()
            return
        # Requests complete in order; those before it were not signalled and have succeeded.
        if any(posted.wr_id == completion.wr_id for posted in self._sends):
            while self._sends.popleft().wr_id != completion.wr_id:
                pass

    # -- inside ------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self.attributes = {}
        self.error_reason = None
        self._sends: deque[_Posted] = deque()
        self._receives: deque[_Posted] = deque()
        self._sends_posted = 0
        self._receives_posted = 0

    def _flush(self, queue: CompletionQueue, posted: _Posted) -> None:
        queue.add_software_completion(
            WorkCompletion(posted.wr_id, CompletionStatus.FLUSHED, posted.opcode, self.number)
        )

    def _write_path(self) -> None:
        """Write header template and EV sets."""
        attributes, context = self.attributes, self.context
        words = attributes["path"].template_words(
            destination_qpn=attributes["dest_qp_num"],
            partition_key=attributes["partition_key"],
            udp_port=context.settings.udp_destination_port,
        )
        context.driver.write_words(TableId.TEMPLATE, self.index, words)
        planes = context.capabilities.planes
        for plane in range(planes):
            words = attributes["ev_profile"].ev_words(plane)
            context.driver.write_table(TableId.EV_SET, self.index * planes + plane, words)

    def _check_with_device(self, attributes: Mapping[str, Any]) -> None:
        """Check what depends on other objects of this device."""
        for name in ("ev_profile", "cc_profile"):
            profile = attributes.get(name)
            if profile is not None and profile.context is not self.context:
                raise VerbsError("EINVAL", f"qp.{name}", "that of another device", "of this device")
        if "path" in attributes:
            self.attributes["ev_profile"].check_path(attributes["path"])
        if attributes.get("trim_nack_dest_unsupported") and self.context.settings.trimming:
            if not self.context.capabilities.controlled:
                raise VerbsError(
                    "EOPNOTSUPP", "qp.trim_nack_dest_unsupported", True,
                    "False on a device that trims for all queue pairs or none",
                )  # fmt: skip

    def _write_options(self) -> None:
        """Write what only devices with the controller's tables know."""
        if self.context.capabilities.controlled:
            row = option_row(self.attributes)
            self.context.driver.write_table(ControlTableId.QP_OPTION, self.index, row)

    def _start_window(self) -> None:
        """Give the QP its congestion window, unless the device takes it from the controller's tables."""
        profile = self.attributes.get("cc_profile")
        if profile is not None and profile.enabled and not self.context.capabilities.controlled:
            self._window.start(profile.attributes["config"].row(), self.attributes["path_mtu"])

    def _write_send(self, state: QpState) -> None:
        row = send_row(state, self.protection_domain.number, self.send_queue.number, self.attributes)
        self.context.driver.write_table(TableId.QP_SEND, self.index, row)

    def _write_receive(self, state: QpState) -> None:
        row = receive_row(state, self.protection_domain.number, self.receive_queue.number, self.attributes)
        self.context.driver.write_table(TableId.QP_RECEIVE, self.index, row)
