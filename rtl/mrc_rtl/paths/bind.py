"""Bind: the last decision before the wire. Plane, entropy value and transmit time of every packet."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import (
    CONTROL_IMAGES,
    control_request,
    event_record,
    image_row_bits,
    path_operation,
    path_probe,
    peer_update,
    plane_bits,
    receive_init,
    trace_record,
    transmit_plan,
)
from ..records import settings as settings_layout
from ..requester.records import ready_slot, sent_record, slot_packet
from ..stream import TableBus
from .images import PacketImages, image_word_bits
from .issue import Issue, bind_detail
from .path_table import PathTable
from .peer_planes import PeerPlanes
from .spray import EvPick, EvValues, PlaneChoice, pick_stages
from .waiting import OrderList

__all__ = ["Bind", "bind_detail"]

#: Control packets that wait for room on their plane.
_CONTROLS = 4

#: Control packets in a row while data waits.
_CONTROL_CAP = 3


class Bind(wiring.Component):
    """Decides for one waiting packet after the other, oldest first, how it leaves.

    A decision takes four cycles: *select* a packet, *plane*, and two stages of *pick*; at 128 bit five, and
    at 64 bit, where the clock is high for the technology, eight. Collecting what the plan needs overlaps with
    the next decision. Data wait in their slots; a packet that cannot go now (no plane of its QP has room)
    lets those behind it try. Control packets wait in a short queue for room on their own plane; they come
    first, but after three in a row data are tried, and data leave a plane to the control packet waiting for
    it. A control packet whose port is down leaves on another plane (a probe, too: its port fell meanwhile,
    and one answer alone makes no EV GOOD). A probe leaves on the EV that it asks. Other control packets pass
    over SKIP EVs, up to the end of their rotation, and leave them as they are. The QP's state is looked at
    before the choice and again before the plan: data of a QP that no longer sends become a plan that only
    frees the slot. So do data of a QP without an EV on any plane that is up, because in the end they would
    keep all slots from the other QPs: to the requester they were sent, and its timer finds them missing.
    While no port is up all wait. Whether the port is still up is looked at in the last cycle, and the
    decision is taken anew when it is not.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    ev_set, ev_value : TableBus
        Tables EV_SET and EV_VALUE.
    operation, event, scanned, bad, went_bad, changed_qp, changed_plane, changed_index
        See :class:`PathTable`.
    packet : stream of slot_packet, in
        Taken when it is written down, in an image of which there is one for every slot.
    ready : stream of ready_slot, in
        The packet written there last may leave. Taken in every cycle.
    control : stream of control_request, in
    probe : stream of path_probe, in
    plan : stream of transmit_plan, out
    image_read, image_row, image_word, image_data
        Read port of the images for the transmitter; data follow one cycle later.
    image_done, image_done_row
        Pulse: the frame of this plan is built, its image is not read any more.
    sent : stream of sent_record, out
        One per data packet, also for one that is discarded.
    room, port_up : planes
        The plane's transmitter can take a frame; the port is up.
    peer_init, peer_update, peer_updates
        See :class:`PeerPlanes`.
    path_qp, path_there : qp_bits, 1
        Question of the requester: the QP has an EV on a plane that is up, or no port is up; one cycle later.
    state_qp, state_sending, state_profile
        Look-up in the requester.
    settings : settings
        DSCPs and whether data may be trimmed.
    now : 48
        Ticks of 128 ns in bits 47 to 16.
    trace : stream of trace_record, out
        Only with ``config.trace``: kind BIND, ``detail`` is :func:`bind_detail`.
    change_trace : stream of trace_record, out
        Likewise, kind EV_CHANGE, see :class:`PathTable`.
    idle : 1

    Source: design.md 4 rules 5, 6 and 10; profile.md 3, 5 (reverse path), 6 and 9.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        members = {
            "ev_set": In(TableBus()),
            "ev_value": In(TableBus()),
            "operation": In(stream.Signature(path_operation(config))),
            "event": Out(stream.Signature(event_record(config))),
            "scanned": Out(1),
            "bad": Out(32),
            "went_bad": Out(1),
            "changed_qp": Out(config.qp_bits),
            "changed_plane": Out(plane_bits(config)),
            "changed_index": Out(5),
            "packet": In(stream.Signature(slot_packet(config))),
            "ready": In(stream.Signature(ready_slot(config))),
            "control": In(stream.Signature(control_request(config))),
            "probe": In(stream.Signature(path_probe(config))),
            "plan": Out(stream.Signature(transmit_plan(config))),
            "image_read": In(1),
            "image_row": In(image_row_bits(config)),
            "image_word": In(image_word_bits(config)),
            "image_data": Out(config.data_width),
            "image_done": In(1),
            "image_done_row": In(image_row_bits(config)),
            "sent": Out(stream.Signature(sent_record(config))),
            "room": In(config.planes),
            "port_up": In(config.planes),
            "peer_init": In(stream.Signature(receive_init(config))),
            "peer_update": In(peer_update(config)),
            "peer_updates": In(1),
            "path_qp": In(config.qp_bits),
            "path_there": Out(1),
            "state_qp": Out(config.qp_bits),
            "state_sending": In(1),
            "state_profile": In(8),
            "settings": In(settings_layout(config)),
            "now": In(48),
            "idle": Out(1),
        }
        if config.trace:
            members["trace"] = Out(stream.Signature(trace_record(config)))
            members["change_trace"] = Out(stream.Signature(trace_record(config)))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        planes = config.planes
        # Decisions may take as many cycles as the interval between packets leaves them.
        relaxed = config.packet_interval >= 16
        m.submodules.table = table = PathTable(config)
        m.submodules.peers = peers = PeerPlanes(config)
        m.submodules.values = values = EvValues(config)
        m.submodules.choice = choice = PlaneChoice(config)
        m.submodules.pick = pick = EvPick(stages=pick_stages(config))
        m.submodules.issue = issue = Issue(config)
        wiring.connect(m, wiring.flipped(self.ev_set), table.table)
        wiring.connect(m, wiring.flipped(self.ev_value), values.table)
        wiring.connect(m, wiring.flipped(self.operation), table.operation)
        wiring.connect(m, table.event, wiring.flipped(self.event))
        wiring.connect(m, wiring.flipped(self.peer_init), peers.init)
        wiring.connect(m, issue.plan, wiring.flipped(self.plan))
        wiring.connect(m, issue.sent, wiring.flipped(self.sent))
        if config.trace:
            wiring.connect(m, issue.trace, wiring.flipped(self.trace))
            wiring.connect(m, table.trace, wiring.flipped(self.change_trace))

        # Waiting data and control packets -------------------------------------------------------------
        slot_bits = len(self.ready.payload.slot)
        data_entry = data.StructLayout({"slot": slot_bits, "qp": config.qp_bits})
        control_entry = data.StructLayout(
            {"image": image_row_bits(config) - 1, "qp": config.qp_bits, "plane": plane_bits(config)}
        )
        m.submodules.data_list = data_list = OrderList(data_entry, config.transmit_slots)
        m.submodules.control_list = control_list = OrderList(control_entry, _CONTROLS)
        m.submodules.images = images = PacketImages(config)
        wiring.connect(m, wiring.flipped(self.packet), images.packet)
        wiring.connect(m, wiring.flipped(self.control), images.control)
        wiring.connect(m, wiring.flipped(self.probe), images.probe)
        asked, controlled = self.probe.payload, self.control.payload
        # Beside the images of control packets: which of them are probes, and on what EV.
        m.submodules.asks = asks = Memory(
            shape=data.StructLayout({"asks": 1, "ev_index": 5}), depth=CONTROL_IMAGES, init=[]
        )
        ask_write, ask_read = asks.write_port(), asks.read_port(domain="comb")
        m.d.comb += [
            images.hold_control.eq(control_list.full),
            images.done.eq(self.image_done),
            images.done_row.eq(self.image_done_row),
            images.now.eq(self.now[16:]),
            control_list.push.eq(images.control_taken | images.probe_taken),
            control_list.new.image.eq(images.image),
            control_list.new.qp.eq(Mux(images.probe_taken, asked.qp, controlled.qp)),
            control_list.new.plane.eq(Mux(images.probe_taken, asked.plane, controlled.plane)),
            ask_write.en.eq(control_list.push),
            ask_write.addr.eq(images.image),
            ask_write.data.asks.eq(images.probe_taken),
            # Zero: the EV of a control packet whose plane has none.
            ask_write.data.ev_index.eq(asked.ev_index & images.probe_taken.replicate(5)),
            self.ready.ready.eq(1),
            data_list.push.eq(self.ready.valid),
            data_list.new.slot.eq(self.ready.payload.slot),
            data_list.new.qp.eq(self.ready.payload.qp),
            images.read.eq(self.image_read),
            images.read_row.eq(self.image_row),
            images.read_word.eq(self.image_word),
            self.image_data.eq(images.read_data),
            images.ask.eq(issue.ask),
            images.ask_row.eq(issue.ask_row),
            issue.answer.eq(images.answer),
            issue.head.eq(images.head),
            issue.opcode.eq(images.opcode),
            issue.slot_write.eq(self.packet.valid & self.packet.ready),
            issue.slot_row.eq(self.packet.payload.slot),
            issue.send_slot.eq(self.packet.payload.descriptor.send_slot),
        ]

        # Room, one cycle old: the transmitter counts from the moment the plan is on offer, until then it
        # stands in the issue.
        taken = Signal(planes)
        open_planes = Signal(planes)
        room = Signal(planes)
        m.d.sync += open_planes.eq(self.room & self.port_up)
        m.d.comb += [
            taken.eq((issue.busy << issue.plane)[:planes]),
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
        m.d.sync += wanted_planes.eq(reduce(or_, wants))

        # The decision ---------------------------------------------------------------------------------
        made = issue.decision
        qp = Signal(config.qp_bits)
        selected_qp = Signal(config.qp_bits)
        is_control = Signal()
        row = Signal(image_row_bits(config) - 1)
        position = Signal(max(config.transmit_slots - 1, _CONTROLS - 1).bit_length())
        plane = Signal(plane_bits(config))
        picked_plane = Signal(plane_bits(config))
        profile = Signal(8)
        stranded = Signal()  # no plane that is up has an EV of the QP
        block = Signal.like(values.block)
        discard = Signal()
        missing = Signal()  # a control packet's plane has no EV, or it is a probe
        given = Signal(5)  # its EV then
        restarted = Signal()
        takes_skip = Signal()  # a control packet has passed over the last EV of a rotation
        scan = Signal(range(config.transmit_slots))
        in_row = Signal(range(_CONTROL_CAP + 1))
        data_first = Signal()
        data_waits = data_list.count != 0
        scan_end = Signal()
        leave = issue.leave
        m.d.comb += [
            data_first.eq((in_row == _CONTROL_CAP) & data_waits),
            scan_end.eq(scan + 1 >= data_list.count),
            peers.update.eq(self.peer_update),
            peers.updates.eq(self.peer_updates),
            peers.look_qp.eq(selected_qp),
            peers.usable.eq(table.usable & self.port_up),
            choice.usable.eq(peers.choice),
            choice.room.eq(open_planes & ~Mux(in_row == _CONTROL_CAP, 0, wanted_planes)),
            choice.tick.eq(self.now[16:32]),
            choice.patience.eq(self.settings.base_rtt >> 1),
            table.look_qp.eq(selected_qp),
            table.path_qp.eq(self.path_qp),
            self.path_there.eq((table.path_planes & self.port_up).any() | ~self.port_up.any()),
            self.state_qp.eq(Mux(table.working, table.state_qp, selected_qp)),
            table.profile.eq(self.state_profile),
            table.pick_qp.eq(qp),
            table.pick_plane.eq(picked_plane),
            table.pick_control.eq(is_control),
            table.seed.eq(self.settings.own_address[64:74]),
            picked_plane.eq(plane),
            selected_qp.eq(qp),
            pick.word.eq(table.word),
            pick.place.eq(table.place),
            table.met_index.eq(pick.index),
            table.met_draw.eq(pick.draw),
            table.new_place.eq(pick.new_place),
            self.scanned.eq(table.scanned),
            self.bad.eq(table.bad),
            self.went_bad.eq(table.went_bad),
            self.changed_qp.eq(table.changed_qp),
            self.changed_plane.eq(table.changed_plane),
            self.changed_index.eq(table.changed_index),
            values.base_profile.eq(profile),
            values.base_plane.eq(plane),
            data_list.position.eq(position),
            control_list.position.eq(position),
            data_list.remove.eq(leave & ~is_control),
            control_list.remove.eq(leave & is_control),
            made.control.eq(is_control),
            made.row.eq(Cat(row, is_control)),
            made.discard.eq(discard),
            made.stranded.eq(stranded),
            made.qp.eq(qp),
            made.plane.eq(plane),
            made.block.eq(block),
            made.ev_index.eq(Mux(missing, given, pick.index)),
            ask_read.addr.eq(row),
            # In the cycle of ``leave`` the look-up port still shows this QP: its state comes one cycle later.
            issue.sending.eq(self.state_sending),
            values.read.eq(issue.read),
            values.block.eq(issue.block),
            values.index.eq(issue.index),
            issue.value.eq(values.value),
            issue.settings.eq(self.settings),
            issue.now.eq(self.now),
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
                # While the table works, the address of the pick before stays.
                with m.If(~table.hold):
                    m.d.sync += [
                        discard.eq(0),
                        stranded.eq(0),
                        missing.eq(0),
                        restarted.eq(0),
                        takes_skip.eq(0),
                        is_control.eq(control_can & ~data_first),
                        plane.eq(control_plane),
                    ]
                    with m.If(control_can & ~data_first):
                        m.d.sync += [
                            row.eq(chosen_control.image),
                            position.eq(control_at),
                            qp.eq(chosen_control.qp),
                        ]
                    with m.Else():
                        m.d.sync += [row.eq(chosen.slot), position.eq(scan), qp.eq(chosen.qp)]
                if not relaxed:
                    m.d.comb += selected_qp.eq(Mux(control_can & ~data_first, chosen_control.qp, chosen.qp))
                with m.If(~table.hold & (control_can | data_waits)):
                    m.next = "LOOK" if relaxed else "PLANE"
            if relaxed:
                with m.State("LOOK"):
                    m.next = "PLANE"
            with m.State("PLANE"):
                m.d.sync += profile.eq(self.state_profile)
                m.next = "PICK"
                with m.If(is_control):
                    m.d.sync += [
                        missing.eq(missing | ~table.usable.bit_select(plane, 1) | ask_read.data.asks),
                        given.eq(ask_read.data.ev_index),
                    ]
                with m.Elif(~self.state_sending | (~peers.choice.any() & self.port_up.any())):
                    m.d.sync += [discard.eq(1), stranded.eq(self.state_sending)]
                    m.next = "PICKED"
                with m.Elif(~choice.valid):
                    m.d.comb += choice.ask.eq(1)
                    next_packet()
                with m.Elif(taken.bit_select(choice.plane, 1)):
                    # Whether that plane has room for another one shows when the packet before is on offer.
                    m.next = "PLANE"
                with m.Else():
                    m.d.comb += [choice.ask.eq(1), choice.take.eq(1)]
                    m.d.sync += plane.eq(choice.plane)
                    if relaxed:
                        m.next = "READ"
                    else:
                        m.d.comb += picked_plane.eq(choice.plane)
            if relaxed:
                with m.State("READ"):
                    m.next = "PICK"
            with m.State("PICK"):
                m.d.comb += pick.restart.eq(restarted)
                m.d.sync += block.eq(values.base_block)
                m.next = "PICKED" if pick.stages == 1 else f"PICKING{pick.stages}"
            for stage in range(pick.stages, 1, -1):
                with m.State(f"PICKING{stage}"):
                    m.next = f"PICKING{stage - 1}" if stage > 2 else "PICKED"
            with m.State("PICKED"):
                with m.If(~discard & ~missing & ~pick.found):
                    # Nothing at or behind the place: once more from the start of a new rotation.
                    m.d.sync += restarted.eq(1)
                    m.next = "PICK"
                    with m.If(restarted):
                        m.d.sync += [missing.eq(1), given.eq(0)]
                        with m.If(~is_control):
                            next_packet()
                with m.Elif(~discard & ~missing & pick.skip & ~takes_skip):
                    # Data have used up the plane's turn, and the EV's skip.
                    m.d.comb += [table.write.eq(1), table.met.eq(~is_control)]
                    m.d.sync += takes_skip.eq(is_control & ~pick.new_place.place.any())
                    m.next = "PLANE"
                    with m.If(~is_control):
                        m.next = "SELECT"
                with m.Elif(~self.port_up.bit_select(plane, 1) & ~discard):
                    m.next = "SELECT"
                with m.Elif(issue.free):
                    m.d.comb += [leave.eq(1), table.write.eq(~discard & ~missing)]
                    m.d.sync += scan.eq(0)
                    with m.If(is_control & data_waits):
                        m.d.sync += in_row.eq(Mux(in_row == _CONTROL_CAP, in_row, in_row + 1))
                    with m.Else():
                        m.d.sync += in_row.eq(0)
                    m.next = "SELECT"
        m.d.comb += [
            table.busy.eq(~states.ongoing("SELECT")),
            self.idle.eq(
                states.ongoing("SELECT")
                & ~data_waits
                & (control_list.count == 0)
                & ~self.ready.valid
                & issue.idle
                & images.idle
                & table.idle
                & values.idle
            ),
        ]
        return m
