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
from ..requester.records import ready_slot, send_slot_bits, sent_record, slot_packet
from ..stream import TableBus
from ..wire import METH, RETH, TSETH, Ecn
from .path_table import PathTable
from .spray import EvPick, EvValues, PlaneChoice
from .waiting import OrderList, RecordRows

__all__ = ["Bind", "bind_detail"]

#: Control packets that wait for room on their plane.
_CONTROLS = 4

#: Control packets in a row while data waits.
_CONTROL_CAP = 3

#: Lowest bit of TSETH.tx_timestamp in the body.
_TIMESTAMP_LOW = BODY_BITS - METH.bits - 16

#: 4-byte words of a data packet's body without immediate.
_DATA_WORDS = (METH.bytes + TSETH.bytes + RETH.bytes) // 4

#: What a waiting packet keeps of a control request, and of a data packet's descriptor.
_CONTROL_FIELDS = ("opcode", "psn", "retransmission", "body", "body_words")
_DATA_FIELDS = ("opcode", "psn", "retransmission", "ack_request", "length", "send_slot")


def bind_detail() -> data.StructLayout:
    """``detail`` of a BIND trace record."""
    return data.StructLayout(
        {"ev": 32, "time": 16, "opcode": 8, "retransmission": 1, "control": 1, "discard": 1, "unused": 5}
    )


def _waiting_packet(config: NicConfig) -> data.StructLayout:
    """A data or control packet in the memory of waiting packets."""
    return data.StructLayout(
        {
            "body": BODY_BITS,
            "body_words": 4,
            "opcode": 8,
            "psn": 24,
            "ack_request": 1,
            "retransmission": 1,
            "length": 13,
            "send_slot": send_slot_bits(config),
        }
    )


class Bind(wiring.Component):
    """Decides for one waiting packet after the other, oldest first, how it leaves.

    A decision takes four cycles: *select* a packet, *plane*, and two stages of *pick* (three at 64 and 128
    bit); reading the packet, word by word (six at 64 bit), overlaps with the next decision. Data wait in
    their slots; a packet that cannot go now (no plane of its QP has room) lets those behind it try. Control
    packets wait in a short queue for room on their own plane; they come first, but after three in a row data
    are tried, and data leave a plane to the control packet waiting for it. A control packet whose port is
    down leaves on another plane. The QP's state is looked at before the choice and again before the plan:
    data of a QP that no longer sends become a plan that only frees the slot.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    ev_set, ev_value : TableBus
        Tables EV_SET and EV_VALUE.
    packet : stream of slot_packet, in
        Taken while it is written into its row, of which there is one for every slot.
    ready : stream of ready_slot, in
        The packet written there last may leave. Taken in every cycle.
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
            "packet": In(stream.Signature(slot_packet(config))),
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
        # Where a packet takes longer than four cycles anyway, the pick may take one more.
        pick_registered = config.packet_interval > 4
        m.submodules.table = table = PathTable(config)
        m.submodules.values = values = EvValues(config)
        m.submodules.choice = choice = PlaneChoice(config)
        m.submodules.pick = pick = EvPick(registered=pick_registered)
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
        layout = _waiting_packet(config)
        # Rows of control packets stand behind those of the slots.
        first_control = max(config.transmit_slots, _CONTROLS)
        m.submodules.rows = rows = RecordRows(
            layout.size, first_control + _CONTROLS, config.context_word_bits
        )
        used = Signal(_CONTROLS)
        free_row = Signal(row_bits)
        for row in reversed(range(_CONTROLS)):
            with m.If(~used[row]):
                m.d.comb += free_row.eq(row)
        take_data = Signal()
        take_control = Signal()
        release = Signal(_CONTROLS)
        storing_control = Signal()  # the record being written is a control packet
        new_row = Signal(row_bits)
        new = Signal(layout)
        waiting_data, waiting_control = self.packet.payload.descriptor, self.control.payload
        m.d.comb += [
            take_data.eq(rows.written & ~storing_control),
            take_control.eq(rows.written & storing_control),
            self.packet.ready.eq(take_data),
            self.ready.ready.eq(1),
            self.control.ready.eq(take_control),
            data_list.push.eq(self.ready.valid),
            data_list.new.slot.eq(self.ready.payload.slot),
            data_list.new.qp.eq(self.ready.payload.qp),
            control_list.push.eq(take_control),
            control_list.new.row.eq(new_row),
            control_list.new.qp.eq(waiting_control.qp),
            control_list.new.plane.eq(waiting_control.plane),
            rows.write.eq(Mux(storing_control, self.control.valid, self.packet.valid)),
            rows.write_row.eq(Mux(storing_control, first_control + new_row, self.packet.payload.slot)),
            rows.new.eq(new),
        ]
        with m.If(storing_control):
            m.d.comb += [new[name].eq(waiting_control[name]) for name in _CONTROL_FIELDS]
        with m.Else():
            m.d.comb += [new[name].eq(waiting_data[name]) for name in _DATA_FIELDS]
            m.d.comb += [
                new.body.eq(Cat(Const(0, BODY_BITS - DATA_BODY_BITS), waiting_data.body)),
                new.body_words.eq(_DATA_WORDS + waiting_data.immediate),
            ]
        # Data and control packets take turns at the memory when both wait. The row of a control packet is
        # chosen before its write begins.
        with m.If(rows.written | ~rows.write):
            m.d.sync += storing_control.eq(~storing_control & self.control.valid & ~used.all())
        with m.If(~storing_control):
            m.d.sync += new_row.eq(free_row)
        with m.If(take_control | release.any()):
            m.d.sync += used.eq((used | (take_control << new_row)[:_CONTROLS]) & ~release)

        # Room: the transmitter counts from the moment the plan is on offer, the packet before that stands
        # here.
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
            choice.usable.eq(table.usable & self.port_up),
            choice.room.eq(open_planes & ~Mux(in_row == _CONTROL_CAP, 0, wanted_planes)),
            choice.tick.eq(self.now[16:32]),
            choice.patience.eq(self.settings.base_rtt >> 1),
            table.look_qp.eq(selected_qp),
            self.state_qp.eq(selected_qp),
            table.pick_qp.eq(qp),
            table.pick_plane.eq(picked_plane),
            table.pick_control.eq(is_control),
            table.seed.eq(self.settings.own_address[64:74]),
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
                    m.d.comb += choice.ask.eq(1)
                    next_packet()
                with m.Elif(taken.bit_select(choice.plane, 1)):
                    # Whether that plane has room for another one shows when the packet before is on offer.
                    m.next = "PLANE"
                with m.Else():
                    m.d.comb += [choice.ask.eq(1), choice.take.eq(1), picked_plane.eq(choice.plane)]
                    m.d.sync += plane.eq(choice.plane)
            with m.State("PICK"):
                m.d.comb += pick.restart.eq(restarted)
                m.d.sync += block.eq(values.base_block)
                m.next = "PICKING" if pick_registered else "PICKED"
            if pick_registered:
                with m.State("PICKING"):
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
        left = Signal()
        sending = Signal()
        value = Signal(32)
        sent_at = Signal(16)
        with m.If(leave):
            m.d.sync += [
                issue_busy.eq(1),
                issue_control.eq(is_control),
                issue_row.eq(row),
                issue_discard.eq(discard),
                issue_index.eq(Mux(missing, 0, pick.index)),
                issue_block.eq(block),
                issue_plane.eq(plane),
                issue_qp.eq(qp),
            ]
        # In the cycle of ``leave`` the look-up port still shows this QP: its state is known one cycle later.
        m.d.sync += left.eq(leave)
        with m.If(left):
            m.d.sync += sending.eq(self.state_sending)
        packet = layout(rows.record)
        plan, sent = self.plan.payload, self.sent.payload
        ticks = self.now[16:32]
        gone = Signal()
        taken_all = Signal()
        m.d.comb += [
            values.read.eq(left),
            values.block.eq(issue_block),
            values.index.eq(issue_index),
            rows.read.eq(left),
            rows.read_row.eq(Mux(issue_control, first_control + issue_row[:row_bits], issue_row)),
            gone.eq(~issue_control & (issue_discard | ~sending)),
            taken_all.eq((~self.plan.valid | self.plan.ready) & (~self.sent.valid | self.sent.ready)),
            issue_free.eq(~issue_busy & taken_all),
        ]
        left_before = Signal()
        m.d.sync += left_before.eq(left)
        with m.If(left_before):
            m.d.sync += value.eq(values.value)
        with m.If(self.plan.ready):
            m.d.sync += self.plan.valid.eq(0)
        with m.If(self.sent.ready):
            m.d.sync += self.sent.valid.eq(0)
        with m.If(rows.done):
            m.d.sync += [
                issue_busy.eq(0),
                sent_at.eq(ticks),
                self.plan.valid.eq(1),
                self.sent.valid.eq(~issue_control),
            ]
            m.d.comb += release.eq(issue_control << issue_row[:row_bits])

        settings = self.settings
        data_dscp = Mux(
            settings.trimming,
            Mux(packet.retransmission, settings.dscp_retransmission, settings.dscp_trimmable),
            settings.dscp_no_trim,
        )
        m.d.comb += [
            plan.qp.eq(issue_qp),
            plan.plane.eq(issue_plane),
            plan.data.eq(~issue_control),
            plan.discard.eq(gone),
            plan.ev.eq(value),
            plan.dscp.eq(Mux(issue_control, settings.dscp_control, data_dscp)),
            plan.ecn.eq(Mux(issue_control, Ecn.NOT_ECT, Ecn.ECT0)),
            plan.opcode.eq(packet.opcode),
            plan.psn.eq(packet.psn),
            plan.ack_request.eq(packet.ack_request),
            plan.retransmission.eq(packet.retransmission),
            plan.timestamped.eq(~issue_control),
            plan.body.eq(packet.body),
            plan.body_words.eq(packet.body_words),
            plan.slot.eq(issue_row),
            plan.length.eq(packet.length),
            sent.qp.eq(issue_qp),
            sent.psn.eq(packet.psn),
            sent.plane.eq(issue_plane),
            sent.ev_index.eq(issue_index),
            sent.ev.eq(value),
            sent.send_slot.eq(packet.send_slot),
            sent.retransmission.eq(packet.retransmission),
            sent.discard.eq(gone),
            sent.time.eq(sent_at),
        ]
        with m.If(~issue_control):
            m.d.comb += plan.body[_TIMESTAMP_LOW : _TIMESTAMP_LOW + 16].eq(sent_at)
        if config.trace:
            trace = self.trace.payload
            detail = bind_detail()(trace.detail)
            # One record per plan, held until it is taken; the next plan takes longer than the trace.
            traced = Signal()
            m.d.sync += traced.eq(rows.done)
            with m.If(self.trace.ready):
                m.d.sync += self.trace.valid.eq(0)
            with m.If(traced):
                m.d.sync += [
                    self.trace.valid.eq(1),
                    trace.kind.eq(TraceKind.BIND),
                    trace.qp.eq(issue_qp),
                    trace.plane.eq(issue_plane),
                    trace.psn.eq(packet.psn),
                    detail.ev.eq(value),
                    detail.time.eq(sent_at),
                    detail.opcode.eq(packet.opcode),
                    detail.retransmission.eq(packet.retransmission),
                    detail.control.eq(issue_control),
                    detail.discard.eq(gone),
                ]
        m.d.comb += self.idle.eq(
            states.ongoing("SELECT")
            & ~data_waits
            & (control_list.count == 0)
            & ~self.packet.valid
            & ~self.ready.valid
            & ~self.control.valid
            & ~issue_busy
            & ~self.plan.valid
            & ~self.sent.valid
            & rows.idle
            & table.idle
            & values.idle
            & (~self.trace.valid if config.trace else 1)
        )
        return m
