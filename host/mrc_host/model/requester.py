"""The requester of the golden model: sends, chooses paths, takes feedback, for all QPs of a NIC.

The parts: :mod:`~mrc_host.model.binder` decides what leaves where, :mod:`~mrc_host.model.feedback` applies
what comes back, :mod:`~mrc_host.model.prober` asks about paths and tails, :mod:`~mrc_host.model.endpoints`
speaks with hosts as a whole. This module owns the tables and puts them together.

Source: profile.md 3, 4, 7, 8 and 9; protocol.md 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mypy_extensions import i64

from mrc_host.errors import ConfigError
from mrc_host.model.binder import Binder
from mrc_host.model.endpoints import Endpoints
from mrc_host.model.ev_set import PathState
from mrc_host.model.feedback import Feedback
from mrc_host.model.nscc import UNLIMITED, congestion_names, create_congestion_control
from mrc_host.model.nscc_fixed import FixedNscc
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.prober import Prober
from mrc_host.model.send_qp import SendQp, SendRequest
from mrc_host.model.send_side import RequesterStatistics, SendSide
from mrc_host.model.send_tracker import SendTracker
from mrc_host.model.shell import Requester, Shell
from mrc_host.model.timers import LARGEST_EXPONENT
from mrc_rtl.config import TICK_PS
from mrc_rtl.tables import (
    EV_VALUES_PER_PLANE,
    ControlTableId,
    EvState,
    QpState,
    TableId,
)

__all__ = ["BUILT_IN", "ModelRequester"]

_PSN_MASK: Final = 0xFF_FFFF
_SEED_MASK: Final = 0x3FF
_MTU_LOG2_MIN: Final = 8

BUILT_IN: Final = (FixedNscc,)
"""Plug-ins that this import registers beside those of :mod:`~mrc_host.model.nscc`."""


class ModelRequester(Requester):
    """See the module's text and :class:`~mrc_host.model.shell.Requester`.

    Parameters
    ----------
    shell : Shell
    options : ModelOptions

    Raises
    ------
    ConfigError
        ``spray_policy`` or ``congestion`` names no plug-in.
    """

    def __init__(self, shell: Shell, options: ModelOptions) -> None:
        if options.congestion not in congestion_names():
            names = ", ".join(congestion_names())
            raise ConfigError("model.congestion", f"one of {names}", options.congestion)
        self._shell = shell
        self._options = options
        self._config = shell.config
        self.side: SendSide = SendSide(shell, options)
        self._binder: Binder = Binder(self.side, self._watch, self._request_sent)
        self._prober: Prober = Prober(self.side, self._binder)
        self._feedback: Feedback = Feedback(self.side, self._prober)
        self.endpoints: Endpoints = Endpoints(self.side, self._binder, self._prober)

    @property
    def statistics(self) -> RequesterStatistics:
        """What it did so far."""
        return self.side.statistics

    def _watch(self, qp: SendQp) -> None:
        self._feedback.watch(qp)

    def _request_sent(self, packet: ModelPacket) -> None:
        self.endpoints.sent(packet)

    # -- tables ------------------------------------------------------------------------------------------

    def write_row(self, table: int, index: int, fields: dict[str, int]) -> bool:
        """Apply a table command; False refuses it."""
        profiles = self.side.profiles
        if table == TableId.QP_SEND:
            return index < self._config.qps and self._write_send(self.side.qps[index], fields)
        if table == TableId.EV_SET:
            return self._write_ev_set(index, fields)
        if table == TableId.EV_VALUE:
            return profiles.write_value(index, fields)
        if table == ControlTableId.QP_OPTION:
            return index < self._config.qps and self._write_option(self.side.qps[index], fields)
        if table == ControlTableId.EV_PROFILE:
            return self._write_profile(index, fields)
        if table == ControlTableId.EV_ENTRY:
            return self._write_entry(index, fields)
        if table == ControlTableId.CC_PROFILE:
            return self.side.congestion.write(index, fields)
        if table == ControlTableId.ENDPOINT_OPERATION:
            return self.endpoints.begin(index, fields)
        return False

    def read_row(self, table: int, index: int) -> dict[str, int] | None:
        """All fields of a row; None when there is no such row."""
        side = self.side
        if table == TableId.QP_SEND:
            return self._read_send(side.qps[index]) if index < self._config.qps else None
        if table == TableId.EV_SET:
            qp, plane = divmod(index, side.planes)
            if qp >= self._config.qps:
                return None
            words = side.qps[qp].evs.planes[plane]
            return {"good": int(words.good), "skip": int(words.skip), "bad": int(words.bad)}
        if table == TableId.EV_VALUE:
            return side.profiles.read_value(index)
        if table == ControlTableId.QP_OPTION:
            return self._read_option(side.qps[index]) if index < self._config.qps else None
        if table == ControlTableId.EV_PROFILE:
            users = sum(qp.profile == index and qp.state != QpState.RESET for qp in side.qps)
            return side.profiles.read_profile(index, users)
        if table == ControlTableId.EV_ENTRY:
            return side.profiles.read_entry(index, self._bad_qps(index))
        if table == ControlTableId.CC_PROFILE:
            return side.congestion.read(index)
        if table == ControlTableId.ENDPOINT_OPERATION:
            return self.endpoints.table.read(index)
        return None

    def _write_send(self, qp: SendQp, fields: dict[str, int]) -> bool:
        new, old = fields["state"], qp.state
        if new == QpState.RESET:
            self._reset(qp)
            return True
        largest = self._config.mtu.bit_length() - 1
        if (
            not _MTU_LOG2_MIN <= fields["mtu_log2"] <= largest
            or fields["timeout"] > LARGEST_EXPONENT
            or new > QpState.ERROR
            or (old == QpState.ERROR and new != QpState.ERROR)
            or (old == QpState.RTS and new < QpState.RTS)
            or fields["ev_profile"] >= self._config.ev_profiles
        ):
            return False
        if new == QpState.RTS and old != QpState.RTS and not self._start(qp, fields):
            return False
        qp.row = dict(fields)
        qp.domain = fields["protection_domain"]
        qp.profile = fields["ev_profile"]
        qp.mtu = 1 << fields["mtu_log2"]
        qp.window = min(fields["mpr_psns"], qp.ring)
        qp.max_immediates = fields["max_immediates"]
        qp.timer.configure(fields["timeout"], fields["linear_count"], fields["exponential_count"])
        qp.edge = max(qp.edge, qp.tracker.unacked + qp.window)
        qp.evs.minimum_active = self.side.profiles.minimum_active[qp.profile]
        qp.evs.oblivious = self.side.profiles.oblivious[qp.profile]
        if new == QpState.ERROR:
            self.side.flush(qp)
        else:
            qp.state = new
        self._deny(qp)
        self.side.refresh(qp)
        return True

    def _start(self, qp: SendQp, fields: dict[str, int]) -> bool:
        """The QP goes to RTS: everything begins at its first PSN. False when its CC profile is unusable."""
        shell, options = self._shell, self._options
        settings = shell.settings
        base_ps = settings.base_rtt * TICK_PS
        target_ps = base_ps * 3 // 4 if settings.trimming else base_ps
        congestion = None
        if qp.option.get("cc_enabled", 0) and options.congestion != "none":
            parameters = self.side.congestion.parameters(
                qp.option["cc_profile"], 1 << fields["mtu_log2"], options.base_rtt_min_ns
            )
            if parameters is None:
                return False
            base_ps = round(parameters.base_rtt * 1000)
            target_ps = round(parameters.target_delay * 1000)
            congestion = create_congestion_control(options.congestion, parameters, shell.now_ps // TICK_PS)
        qp.goes_back = fields["go_back_n"] == 1
        if qp.goes_back:
            options = replace(options, loss_rule="none")
        qp.clear()
        window_ps = options.reorder_window_ns * 1000
        if window_ps < 0:
            window_ps = settings.reorder_window * TICK_PS or base_ps // 2
        qp.tracker = SendTracker(qp.planes, qp.evs.stride, qp.ring, options, window_ps)
        first = fields["initial_psn"]
        qp.tracker.start(first)
        qp.next_ack = first
        qp.edge = first
        qp.congestion = congestion
        qp.base_rtt_ps, qp.target_delay_ps = base_ps, target_ps
        qp.least_rtt = 0
        qp.last_sent_ps = -1
        qp.timer.attempt = 0
        qp.timer.stop()
        return True

    def _reset(self, qp: SendQp) -> None:
        qp.clear()
        qp.state = int(QpState.RESET)
        qp.row = {}
        qp.option = {}
        qp.never_trimmed = False
        qp.congestion = None
        qp.peer_ports = -1
        qp.timer.stop()
        qp.tracker.start(0)
        qp.last_sent_ps = -1
        for plane in range(self.side.planes):
            qp.evs.write(plane, 0, 0, 0)
            qp.evs.planes[plane].denied = 0
        qp.evs.changes.clear()
        self._binder.forget(qp.index)
        self.side.refresh(qp)

    def _read_send(self, qp: SendQp) -> dict[str, int]:
        return {
            **qp.row,
            "state": qp.state,
            "next_psn": qp.tracker.next & _PSN_MASK,
            "unacked_psn": qp.tracker.unacked & _PSN_MASK,
            "attempt": qp.timer.attempt,
        }

    def _write_option(self, qp: SendQp, fields: dict[str, int]) -> bool:
        qp.option = dict(fields)
        qp.never_trimmed = fields.get("trim_nack_dest_unsupported", 0) == 1
        return True

    def _read_option(self, qp: SendQp) -> dict[str, int]:
        ports = (1 << self.side.planes) - 1
        congestion = qp.congestion
        return {
            **qp.option,
            "mpr_psns": min(qp.window, 0x1FFF),
            "base_rtt": min(qp.least_rtt or qp.base_rtt_ps // TICK_PS, 0xFFFF),
            "peer_ports": qp.peer_ports & ports,
            "window": UNLIMITED if congestion is None else congestion.window,
            "in_flight": 0 if congestion is None else congestion.in_flight,
        }

    # -- entropy values ----------------------------------------------------------------------------------

    def _write_ev_set(self, index: int, fields: dict[str, int]) -> bool:
        number, plane = divmod(index, self.side.planes)
        if number >= self._config.qps:
            return False
        qp = self.side.qps[number]
        good, skip = fields["good"], fields["skip"]
        held = min(self._options.backups_per_plane, max(0, good.bit_count() - 1))
        if skip == 0:
            # The last EVs of the plane wait as backups.
            for _ in range(held):
                highest = 1 << good.bit_length() - 1
                good ^= highest
                skip |= highest
        seed = (index ^ self._shell.settings.own_address >> 64) & _SEED_MASK
        qp.evs.write(plane, good, skip, seed)
        if qp.state != QpState.RESET:
            self._deny(qp)
        self.side.refresh(qp)
        return True

    def _deny(self, qp: SendQp) -> None:
        """Apply what the controller denies in the QP's profile."""
        profiles = self.side.profiles
        first = profiles.row(qp.profile, 0, 0)
        count = self.side.planes * EV_VALUES_PER_PLANE
        if 1 in profiles.denied[first : first + count]:
            for row in range(first, first + count):
                if profiles.denied[row]:
                    qp.evs.deny(self._index_of(qp, row))
            self.side.report_changes(qp, noticed=False)

    def _index_of(self, qp: SendQp, row: int) -> int:
        _, plane, place = self.side.profiles.place_of(row)
        return plane * qp.evs.stride + place

    def _users(self, profile: int) -> list[SendQp]:
        return [qp for qp in self.side.qps if qp.profile == profile and qp.state != QpState.RESET]

    def _bad_qps(self, row: int) -> int:
        if row >= len(self.side.profiles.value):
            return 0
        profile = self.side.profiles.place_of(row)[0]
        return sum(
            qp.evs.state(self._index_of(qp, row)) is PathState.ASSUMED_BAD for qp in self._users(profile)
        )

    def _write_profile(self, index: int, fields: dict[str, int]) -> bool:
        if not self.side.profiles.write_profile(index, fields):
            return False
        for qp in self._users(index):
            qp.evs.minimum_active = fields["min_active"]
            qp.evs.oblivious = self.side.profiles.oblivious[index]
            self.side.refresh(qp)
        return True

    def _write_entry(self, row: int, fields: dict[str, int]) -> bool:
        profiles = self.side.profiles
        if row >= len(profiles.value):
            return False
        replaced = (
            profiles.value[row] != fields["value"]
            or profiles.port[row] != fields["port"]
            or not profiles.populated[row]
        )
        if not profiles.write_entry(row, fields):
            return False
        state = fields["state"]
        for qp in self._users(profiles.place_of(row)[0]):
            index = self._index_of(qp, row)
            before = qp.evs.state(index)
            if state == EvState.DENIED:
                qp.evs.deny(index)
            elif state == EvState.UNPOPULATED:
                qp.evs.remove(index)
            elif replaced or before in (PathState.DENIED, PathState.ASSUMED_BAD):
                qp.evs.allow(index)
            self.side.report_changes(qp, noticed=False)
        return True

    # -- work and feedback -------------------------------------------------------------------------------

    def post(self, qp: int, request: dict[str, int]) -> None:
        """A send request whose doorbell rang."""
        half = self.side.qps[qp]
        if half.state == QpState.ERROR:
            self.side.flush_one(half, SendRequest(request))
        elif half.state == QpState.RTS:
            half.posted.append(SendRequest(request))
            self.side.wake(half)

    def on_sack(self, qp: int, packet: ModelPacket) -> None:
        """A SACK of the QP's peer."""
        self._feedback.on_sack(self.side.qps[qp], packet)

    def on_ack(self, qp: int, packet: ModelPacket) -> None:
        """A transport ACK or NAK."""
        self._feedback.on_ack(self.side.qps[qp], packet)

    def on_nack(self, qp: int, packet: ModelPacket) -> None:
        """A Reliability NACK."""
        self._feedback.on_nack(self.side.qps[qp], packet)

    def on_endpoint_response(self, packet: ModelPacket) -> None:
        """The answer to an endpoint request of the requester."""
        self.endpoints.on_response(packet)

    def on_peer_ports(self, source: int, port_mask: int) -> None:
        """A PORT_STATUS_UPDATE of a host."""
        self.endpoints.on_peer_ports(source, port_mask)

    def on_error(self, qp: int) -> None:
        """The QP went to ERROR."""
        self.side.flush(self.side.qps[qp])

    def port_changed(self, plane: int, up: bool) -> None:
        """A port's link or administrative state changed."""
        self.endpoints.port_changed(plane, up)

    def enqueue_control(self, packet: ModelPacket, qp: int, plane: int) -> None:
        """Queue a control packet ahead of all data."""
        packet.qp = qp
        packet.plane = plane
        self._binder.control.append(packet)

    def data_sent_ps(self, qp: i64) -> i64:
        """Time the QP last sent a data packet; −1 for never."""
        return self.side.qps[qp].last_sent_ps

    def good_evs(self, qp: int, plane: int) -> list[int]:
        """Values of the QP's EVs on a plane that may be used now; none when nobody answers probes of them."""
        half, profiles = self.side.qps[qp], self.side.profiles
        if half.option.get("requests_dest_unsupported", 0):
            return []
        good = int(half.evs.planes[plane].good)
        return [
            profiles.value[profiles.row(half.profile, plane, place)]
            for place in range(good.bit_length())
            if good >> place & 1
        ]

    def pump(self) -> None:
        """Send while planes have room."""
        self._binder.pump()
