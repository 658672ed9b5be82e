"""Bind: the last decision before the wire. Plane, entropy value and transmit time of every packet."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import (
    BODY_BITS,
    DATA_BODY_BITS,
    TraceKind,
    control_request,
    plane_bits,
    trace_record,
    transmit_plan,
)
from ..records import settings as settings_layout
from ..requester.records import ready_slot, sent_record
from ..stream import TableBus
from ..wire import IMMDT, METH, RETH, TSETH, Ecn
from .path_table import PathTable
from .spray import EvPick, EvValues, PlaneChoice
from .waiting import OrderList, RecordRows

__all__ = ["Bind", "bind_detail"]

#: Control packets that wait for room on their plane.
_CONTROLS = 4

#: Control packets in a row while data waits.
_CONTROL_CAP = 3

#: Lowest bit of TSETH.tx_timestamp in the body of a data packet.
_TIMESTAMP_LOW = DATA_BODY_BITS - METH.bits - 16


def bind_detail() -> data.StructLayout:
    """``detail`` of a BIND trace record."""
    return data.StructLayout(
        {"ev": 32, "time": 16, "opcode": 8, "retransmission": 1, "control": 1, "discard": 1, "unused": 5}
    )


class Bind(wiring.Component):
    """Decides for one waiting packet after the other, oldest first, how it leaves.

    A decision takes four cycles: *select* a packet, *plane*, and two stages of *pick*; building the plan
    overlaps with the next decision. Data wait in their slots; a packet that cannot go now (no plane of its QP has
    room) lets those behind it try. Control packets wait in a short queue for room on their own plane; they come
    first, but after three in a row data are tried, and data leave a plane to the control packet waiting for it.
    A control packet whose port is down leaves on another plane. The QP's state is looked at before the choice
    and again before the plan: data of a QP that no longer sends become a plan that only frees the slot.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    ev_set, ev_value : TableBus
        Tables EV_SET and EV_VALUE.
    ready : stream of ready_slot, in
        Always taken: there is a place for every slot.
    control : stream of control_request, in
    plan : stream of transmit_plan, out
    sent : stream of sent_record, out
        One per data packet, also for one that is discarded.
    room, port_up : planes
        The plane's transmitter can take a frame; the port is up.
    state_qp, state_sending, state_profile
        Look-up in the requester.
    settings : settings
        DSCPs and whether data may be trimmed.
    now : 48
        Ticks of 128 ns in bits 47 to 16.
    trace : stream of trace_record, out
        Only with ``config.trace``: kind BIND, ``detail`` is :func:`bind_detail`.
    idle : 1

    Source: design.md 4 rules 5, 6 and 10; profile.md 3, 5 (reverse path) and 6.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        members = {
            "ev_set": In(TableBus()),
            "ev_value": In(TableBus()),
            "ready": In(stream.Signature(ready_slot(config))),
            "control": In(stream.Signature(control_request(config))),
            "plan": Out(stream.Signature(transmit_plan(config))),
            "sent": Out(stream.Signature(sent_record(config))),
            "room": In(config.planes),
            "port_up": In(config.planes),
            "state_qp": Out(config.qp_bits),
            "state_sending": In(1),
            "state_profile": In(8),
            "settings": In(settings_layout(config)),
            "now": In(48),
            "idle": Out(1),
        }
        if config.trace:
            members["trace"] = Out(stream.Signature(trace_record(config)))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        planes = config.planes
        m.submodules.table = table = PathTable(config)
        m.submodules.values = values = EvValues(config)
        m.submodules.choice = choice = PlaneChoice(config)
        m.submodules.pick = pick = EvPick()
        wiring.connect(m, wiring.flipped(self.ev_set), table.table)
        wiring.connect(m, wiring.flipped(self.ev_value), values.table)

        # Waiting data and control packets -------------------------------------------------------------
        slot_bits = len(self.ready.payload.slot)
        data_entry = data.StructLayout({"slot": slot_bits, "qp": config.qp_bits})
        row_bits = (_CONTROLS - 1).bit_length()
        control_entry = data.StructLayout(
            {"row": row_bits, "qp": config.qp_bits, "plane": plane_bits(config)}
        )
        m.submodules.data_list = data_list = OrderList(data_entry, config.transmit_slots)
        m.submodules.control_list = control_list = OrderList(control_entry, _CONTROLS)
        m.submodules.data_rows = data_rows = RecordRows(
            self.ready.payload.descriptor.shape(), config.transmit_slots
        )
        m.submodules.control_rows = control_rows = RecordRows(control_request(config), _CONTROLS)
        used = Signal(_CONTROLS)
        free_row = Signal(row_bits)
        for row in reversed(range(_CONTROLS)):
            with m.If(~used[row]):
                m.d.comb += free_row.eq(row)
        free_control = Signal()
        take_control = Signal()
        release = Signal(_CONTROLS)
        m.d.comb += [
            self.ready.ready.eq(1),
            data_list.push.eq(self.ready.valid),
            data_list.new.slot.eq(self.ready.payload.slot),
            data_list.new.qp.eq(self.ready.payload.descriptor.qp),
            data_rows.write.eq(self.ready.valid),
            data_rows.write_row.eq(self.ready.payload.slot),
            data_rows.new.eq(self.ready.payload.descriptor),
            free_control.eq(~used.all()),
            self.control.ready.eq(free_control),
            take_control.eq(self.control.valid & free_control),
            control_list.push.eq(take_control),
            control_list.new.row.eq(free_row),
            control_list.new.qp.eq(self.control.payload.qp),
            control_list.new.plane.eq(self.control.payload.plane),
            control_rows.write.eq(take_control),
            control_rows.write_row.eq(free_row),
            control_rows.new.eq(self.control.payload),
        ]
        with m.If(take_control | release.any()):
            m.d.sync += used.eq((used | (take_control << free_row)[:_CONTROLS]) & ~release)

        # Room: the transmitter counts from the moment the plan is on offer, the packet before that stands here.
        issue_busy = Signal()
        issue_plane = Signal(plane_bits(config))
        taken = Signal(planes)
        open_planes = Signal(planes)
        room = Signal(planes)
        m.d.comb += [
            taken.eq((issue_busy << issue_plane)[:planes]),
            open_planes.eq(self.room & self.port_up),
            room.eq(open_planes & ~taken),
        ]

        # Which control packet could go, and which planes are wanted by one.
        control_can = Signal()
        control_at = Signal(range(_CONTROLS))
        control_plane = Signal(plane_bits(config))
        any_plane = Signal(plane_bits(config))
        wanted_planes = Signal(planes)
        for plane in reversed(range(planes)):
            with m.If(room[plane]):
                m.d.comb += any_plane.eq(plane)
        wants = []
        for n in reversed(range(_CONTROLS)):
            item = control_list.items[n]
            here = Signal(name=f"control_here{n}")
            up = Signal(name=f"control_up{n}")
            m.d.comb += [here.eq(n < control_list.count), up.eq(self.port_up.bit_select(item.plane, 1))]
            wants.append(((here & up) << item.plane)[:planes])
            with m.If(here & Mux(up, room.bit_select(item.plane, 1), room.any())):
                m.d.comb += [
                    control_can.eq(1),
                    control_at.eq(n),
                    control_plane.eq(Mux(up, item.plane, any_plane)),
                ]
        m.d.comb += wanted_planes.eq(reduce(or_, wants))

        # The decision ---------------------------------------------------------------------------------
        qp = Signal(config.qp_bits)
        selected_qp = Signal(config.qp_bits)
        is_control = Signal()
        row = Signal(max(slot_bits, row_bits))
        position = Signal(max(config.transmit_slots - 1, _CONTROLS - 1).bit_length())
        plane = Signal(plane_bits(config))
        picked_plane = Signal(plane_bits(config))
        profile = Signal(8)
        block = Signal.like(values.block)
        discard = Signal()
        missing = Signal()  # a control packet's plane has no EV
        restarted = Signal()
        scan = Signal(range(config.transmit_slots))
        in_row = Signal(range(_CONTROL_CAP + 1))
        data_first = Signal()
        leave = Signal()
        issue_free = Signal()
        data_waits = data_list.count != 0
        scan_end = Signal()
        m.d.comb += [
            data_first.eq((in_row == _CONTROL_CAP) & data_waits),
            scan_end.eq(scan + 1 >= data_list.count),
            choice.usable.eq(table.usable & self.port_up & ~Mux(in_row == _CONTROL_CAP, 0, wanted_planes)),
            choice.room.eq(open_planes),
            table.look_qp.eq(selected_qp),
            self.state_qp.eq(selected_qp),
            table.pick_qp.eq(qp),
            table.pick_plane.eq(picked_plane),
            picked_plane.eq(plane),
            selected_qp.eq(qp),
            pick.word.eq(table.word),
            pick.place.eq(table.place),
            table.new_skip.eq(pick.new_skip),
            table.new_place.eq(pick.new_place),
            values.base_profile.eq(profile),
            values.base_plane.eq(plane),
            data_list.position.eq(position),
            control_list.position.eq(position),
            data_list.remove.eq(leave & ~is_control),
            control_list.remove.eq(leave & is_control),
        ]

        def next_packet() -> None:
            """This data packet cannot go now: try the one behind it, unless nobody has room for any."""
            m.d.sync += scan.eq(Mux(scan_end | ~open_planes.any(), 0, scan + 1))
            with m.If(scan_end | ~open_planes.any()):
                m.d.sync += in_row.eq(0)
            m.next = "SELECT"

        with m.FSM() as states:
            with m.State("SELECT"):
                chosen = Signal(data_entry)
                with m.Switch(scan):
                    for n in range(config.transmit_slots):
                        with m.Case(n):
                            m.d.comb += chosen.eq(data_list.items[n])
                chosen_control = Signal(control_entry)
                with m.Switch(control_at):
                    for n in range(_CONTROLS):
                        with m.Case(n):
                            m.d.comb += chosen_control.eq(control_list.items[n])
                m.d.sync += [discard.eq(0), missing.eq(0), restarted.eq(0)]
                with m.If(~table.hold):
                    with m.If(control_can & ~data_first):
                        m.d.comb += selected_qp.eq(chosen_control.qp)
                        m.d.sync += [
                            is_control.eq(1),
                            row.eq(chosen_control.row),
                            position.eq(control_at),
                            plane.eq(control_plane),
                            qp.eq(chosen_control.qp),
                        ]
                        m.next = "PLANE"
                    with m.Elif(data_waits):
                        m.d.comb += selected_qp.eq(chosen.qp)
                        m.d.sync += [
                            is_control.eq(0),
                            row.eq(chosen.slot),
                            position.eq(scan),
                            qp.eq(chosen.qp),
                        ]
                        m.next = "PLANE"
            with m.State("PLANE"):
                m.d.sync += profile.eq(self.state_profile)
                m.next = "PICK"
                with m.If(is_control):
                    m.d.sync += missing.eq(~table.usable.bit_select(plane, 1))
                with m.Elif(~self.state_sending):
                    m.d.sync += discard.eq(1)
                    m.next = "PICKED"
                with m.Elif(~choice.valid):
                    next_packet()
                with m.Elif(taken.bit_select(choice.plane, 1)):
                    # Whether that plane has room for another one shows when the packet before is on offer.
                    m.next = "PLANE"
                with m.Else():
                    m.d.comb += [choice.take.eq(1), picked_plane.eq(choice.plane)]
                    m.d.sync += plane.eq(choice.plane)
            with m.State("PICK"):
                m.d.comb += pick.restart.eq(restarted)
                m.d.sync += block.eq(values.base_block)
                m.next = "PICKED"
            with m.State("PICKED"):
                with m.If(~discard & ~missing & ~pick.found):
                    # Nothing at or behind the place: once more from the start of a new rotation.
                    m.d.sync += restarted.eq(1)
                    m.next = "PICK"
                    with m.If(restarted):
                        m.d.sync += missing.eq(1)
                        with m.If(~is_control):
                            next_packet()
                with m.Elif(~discard & ~missing & pick.skip):
                    m.d.comb += [table.write.eq(1), table.write_skip.eq(1)]
                    m.d.sync += restarted.eq(0)
                    m.next = "PLANE"
                with m.Elif(issue_free):
                    m.d.comb += [leave.eq(1), table.write.eq(~discard & ~missing)]
                    m.d.sync += scan.eq(0)
                    with m.If(is_control & data_waits):
                        m.d.sync += in_row.eq(Mux(in_row == _CONTROL_CAP, in_row, in_row + 1))
                    with m.Else():
                        m.d.sync += in_row.eq(0)
                    m.next = "SELECT"
        m.d.comb += table.busy.eq(~states.ongoing("SELECT"))

        # The plan -------------------------------------------------------------------------------------
        issue_control = Signal()
        issue_row = Signal.like(row)
        issue_discard = Signal()
        issue_index = Signal(5)
        issue_block = Signal.like(block)
        issue_qp = Signal(config.qp_bits)
        fetched = Signal()
        sending = Signal()
        m.d.comb += issue_free.eq(~issue_busy)
        with m.If(leave):
            m.d.sync += [
                issue_busy.eq(1),
                fetched.eq(0),
                issue_control.eq(is_control),
                issue_row.eq(row),
                issue_discard.eq(discard),
                issue_index.eq(Mux(missing, 0, pick.index)),
                issue_block.eq(block),
                issue_plane.eq(plane),
                issue_qp.eq(qp),
            ]
        # In the cycle of ``leave`` the look-up port still shows this QP: its state is known one cycle later.
        left = Signal()
        m.d.sync += left.eq(leave)
        with m.If(left):
            m.d.sync += sending.eq(self.state_sending)
        m.d.sync += fetched.eq(issue_busy & left)
        build = Signal()
        waiting = Signal()
        with m.If(fetched):
            m.d.sync += waiting.eq(1)
        with m.If(build):
            m.d.sync += [waiting.eq(0), issue_busy.eq(0)]

        descriptor = data_rows.record
        request = control_rows.record
        plan, sent = self.plan.payload, self.sent.payload
        ticks = self.now[16:32]
        gone = Signal()
        free = Signal()
        m.d.comb += [
            values.read.eq(issue_busy),
            values.block.eq(issue_block),
            values.index.eq(issue_index),
            data_rows.read_row.eq(issue_row),
            control_rows.read_row.eq(issue_row),
            gone.eq(~issue_control & (issue_discard | ~sending)),
            free.eq((~self.plan.valid | self.plan.ready) & (~self.sent.valid | self.sent.ready)),
        ]
        if config.trace:
            trace = self.trace.payload
            m.d.comb += build.eq((fetched | waiting) & free & (~self.trace.valid | self.trace.ready))
            detail = bind_detail()(trace.detail)
            with m.If(self.trace.ready):
                m.d.sync += self.trace.valid.eq(0)
            with m.If(build):
                m.d.sync += [
                    self.trace.valid.eq(1),
                    trace.kind.eq(TraceKind.BIND),
                    trace.qp.eq(issue_qp),
                    trace.plane.eq(issue_plane),
                    trace.psn.eq(Mux(issue_control, request.psn, descriptor.psn)),
                    detail.ev.eq(values.value),
                    detail.time.eq(ticks),
                    detail.opcode.eq(Mux(issue_control, request.opcode, descriptor.opcode)),
                    detail.retransmission.eq(
                        Mux(issue_control, request.retransmission, descriptor.retransmission)
                    ),
                    detail.control.eq(issue_control),
                    detail.discard.eq(gone),
                ]
        else:
            m.d.comb += build.eq((fetched | waiting) & free)
        with m.If(build & issue_control):
            m.d.comb += release.eq(1 << issue_row[:row_bits])

        body = Signal(DATA_BODY_BITS)
        m.d.comb += [
            body.eq(descriptor.body),
            body[_TIMESTAMP_LOW : _TIMESTAMP_LOW + 16].eq(ticks),
        ]
        settings = self.settings
        data_dscp = Mux(
            settings.trimming,
            Mux(descriptor.retransmission, settings.dscp_retransmission, settings.dscp_trimmable),
            settings.dscp_no_trim,
        )
        data_words = (METH.bytes + TSETH.bytes + RETH.bytes) // 4
        with m.If(self.plan.ready):
            m.d.sync += self.plan.valid.eq(0)
        with m.If(self.sent.ready):
            m.d.sync += self.sent.valid.eq(0)
        with m.If(build):
            m.d.sync += [
                self.plan.valid.eq(1),
                plan.qp.eq(issue_qp),
                plan.plane.eq(issue_plane),
                plan.data.eq(~issue_control),
                plan.discard.eq(gone),
                plan.ev.eq(values.value),
                plan.slot.eq(issue_row),
                plan.ecn.eq(Mux(issue_control, Ecn.NOT_ECT, Ecn.ECT0)),
                self.sent.valid.eq(~issue_control),
                sent.qp.eq(issue_qp),
                sent.psn.eq(descriptor.psn),
                sent.plane.eq(issue_plane),
                sent.ev_index.eq(issue_index),
                sent.ev.eq(values.value),
                sent.send_slot.eq(descriptor.send_slot),
                sent.retransmission.eq(descriptor.retransmission),
                sent.discard.eq(gone),
                sent.time.eq(ticks),
            ]
            with m.If(issue_control):
                m.d.sync += [
                    plan.dscp.eq(settings.dscp_control),
                    plan.opcode.eq(request.opcode),
                    plan.psn.eq(request.psn),
                    plan.ack_request.eq(0),
                    plan.retransmission.eq(request.retransmission),
                    plan.timestamped.eq(0),
                    plan.body.eq(request.body),
                    plan.body_words.eq(request.body_words),
                    plan.length.eq(0),
                ]
            with m.Else():
                m.d.sync += [
                    plan.dscp.eq(data_dscp),
                    plan.opcode.eq(descriptor.opcode),
                    plan.psn.eq(descriptor.psn),
                    plan.ack_request.eq(descriptor.ack_request),
                    plan.retransmission.eq(descriptor.retransmission),
                    plan.timestamped.eq(1),
                    plan.body.eq(Cat(Const(0, BODY_BITS - DATA_BODY_BITS), body)),
                    plan.body_words.eq(Mux(descriptor.immediate, data_words + IMMDT.bytes // 4, data_words)),
                    plan.length.eq(descriptor.length),
                ]
        m.d.comb += self.idle.eq(
            states.ongoing("SELECT")
            & ~data_waits
            & (control_list.count == 0)
            & ~self.ready.valid
            & ~self.control.valid
            & ~issue_busy
            & ~self.plan.valid
            & ~self.sent.valid
            & table.idle
            & values.idle
            & (~self.trace.valid if config.trace else 1)
        )
        return m
