"""Which entropy values of a QP may be used on each plane, and where the rotation through them stands."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import PathOperation, TraceKind, event_record, path_operation, plane_bits, trace_record
from ..requester.context import ClearSequence
from ..stream import TableBus
from ..tables import EV_ORDER, EV_ORDER_INDEX, EV_POLICY, EV_POLICY_INDEX, EventKind, EvState
from .ev_state import EvCode, EvStep, change_detail, ev_policy, ev_word, rotation

__all__ = ["PathTable"]

_GROUPS = 4


class PathTable(wiring.Component):
    """Owner of the EV states, the rotations, per QP the planes with an EV to send on, and what profiles say.

    Operations come from feedback, from probes, from picks that met a SKIP EV and from the host. They are
    carried out one after the other, each in a pause between two picks, and picks wait for it: so a pick works
    on one state of its word from reading it to writing the rotation, and no operation is lost. A change takes
    the EV's group of eight out of its word and writes it back. What a retiring EV needs besides is looked for
    place by place: a backup, the last one first; without one, how many EVs of the QP are in use. An EV that
    comes back sends the last active backup of its plane back when more EVs are in use than there are places
    before the first backup.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus
        EV_SET, with EV_POLICY and EV_ORDER. Writing a word starts the rotations of its (QP, plane) anew.
    operation : stream of path_operation, in
        Operations up to SCAN.
    look_qp, usable : qp_bits, planes
        Planes on which the QP has a GOOD or SKIP EV, one cycle after ``look_qp``.
    path_qp, path_planes : qp_bits, planes
        Likewise, for the requester.
    pick_qp, pick_plane, pick_control, word, place : qp_bits, plane bits, 1, ev_word, rotation
        Word and rotation, one cycle after the address. Control packets have a rotation of their own, so that
        they do not disturb how evenly data use the EVs.
    seed : 10
        Where the rotations of this NIC begin, so that NICs with the same EVs do not take them in step.
    write, new_place
        The picked (QP, plane)'s rotation becomes ``new_place``.
    met, met_index, met_draw : 1, 5, 5
        With ``write``: the EV picked is SKIP, and its turn is used up; a long SKIP ends when the bits of
        ``met_draw`` that its profile's ``floor_mask`` names are 0. Then no pick may start before ``hold`` was
        seen to be 0, and the address stays.
    busy : 1, in
        A pick is in progress: its address stays.
    hold : 1
        An operation waits or is carried out: start no pick.
    working, state_qp, profile : 1, qp_bits, 8
        While ``working`` the table wants to know the QP's profile, one cycle later.
    event : stream of event_record, out
        Kind EV_STATE, by the profile's mask.
    scanned, bad : 1, 32
        Answer to SCAN: EVs that are ASSUMED_BAD or in a long SKIP.
    went_bad, changed_qp, changed_plane, changed_index
        Pulse: this EV became so.
    trace : stream of trace_record, out
        Only with ``config.trace``: kind EV_CHANGE, ``detail`` is :func:`change_detail`.
    idle : 1

    Source: profile.md 3 and 4; protocol.md 2.2 and 2.8; design.md 4 rules 5 and 12.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        members = {
            "table": In(TableBus()),
            "operation": In(stream.Signature(path_operation(config))),
            "look_qp": In(config.qp_bits),
            "usable": Out(config.planes),
            "path_qp": In(config.qp_bits),
            "path_planes": Out(config.planes),
            "pick_qp": In(config.qp_bits),
            "pick_plane": In(plane_bits(config)),
            "pick_control": In(1),
            "seed": In(10),
            "word": Out(ev_word()),
            "place": Out(rotation()),
            "write": In(1),
            "new_place": In(rotation()),
            "met": In(1),
            "met_index": In(5),
            "met_draw": In(5),
            "busy": In(1),
            "hold": Out(1),
            "working": Out(1),
            "state_qp": Out(config.qp_bits),
            "profile": In(8),
            "event": Out(stream.Signature(event_record(config))),
            "scanned": Out(1),
            "bad": Out(32),
            "went_bad": Out(1),
            "changed_qp": Out(config.qp_bits),
            "changed_plane": Out(plane_bits(config)),
            "changed_index": Out(5),
            "idle": Out(1),
        }
        if config.trace:
            members["trace"] = Out(stream.Signature(trace_record(config)))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        plane_width = plane_bits(config)
        rows = config.qps << plane_width
        profiles = config.ev_profiles
        policy_shape = ev_policy(config)
        group_shape = data.StructLayout({"good": 8, "skip": 8, "bad": 8})
        first_shape = data.StructLayout({"place": 5, "none": 1})
        groups = [Memory(shape=group_shape, depth=rows, init=[]) for _ in range(_GROUPS)]
        for number, memory in enumerate(groups):
            m.submodules[f"group{number}"] = memory
        m.submodules.places = places = Memory(shape=rotation(), depth=2 * rows, init=[])
        m.submodules.planes = planes = Memory(shape=config.planes, depth=config.qps, init=[])
        m.submodules.firsts = firsts = Memory(shape=first_shape, depth=rows, init=[])
        m.submodules.policies = policies = Memory(shape=policy_shape, depth=profiles, init=[])
        m.submodules.sequence = sequence = ClearSequence(max(rows, profiles))
        m.submodules.step = step = EvStep()
        cleared = sequence.cleared
        reads = [memory.read_port() for memory in groups]
        writes = [memory.write_port() for memory in groups]
        place_read, place_write = places.read_port(), places.write_port()
        look_read, change_read, plane_write = planes.read_port(), planes.read_port(), planes.write_port()
        path_read = planes.read_port()  # a cycle too early or too late does no harm
        first_read, first_write = firsts.read_port(), firsts.write_port()
        policy_read, policy_write = policies.read_port(), policies.write_port()
        table, operation = self.table, self.operation

        # The operation that is carried out, and the EV it is about.
        qp = Signal(config.qp_bits)
        plane = Signal(plane_width)
        place = Signal(5)
        other = Signal(5)  # the EV that waits while another one is looked at
        kind = Signal(PathOperation)
        met, hosted = Signal(), Signal()
        code, new = Signal(3), Signal(3)
        lost = Signal()
        second = Signal()  # the change is a backup's
        promotes, checks = Signal(), Signal()
        draw = Signal(5)
        met_waits = Signal()
        aside = Signal(plane_width)  # how far from the plane of the EV

        # Memories ---------------------------------------------------------------------------------------
        address = Signal(range(rows))
        row = Signal(range(rows))
        m.d.comb += [
            row.eq(Cat(plane, qp)),
            address.eq(
                Mux(self.working, Cat(plane ^ aside, qp), Cat(self.pick_plane, self.pick_qp)),
            ),
            look_read.addr.eq(self.look_qp),
            self.usable.eq(look_read.data),
            change_read.addr.eq(qp),
            path_read.addr.eq(self.path_qp),
            self.path_planes.eq(path_read.data),
            self.word.good.eq(Cat(port.data.good for port in reads)),
            self.word.skip.eq(Cat(port.data.skip for port in reads)),
            self.bad.eq(Cat(port.data.bad for port in reads)),
            self.state_qp.eq(qp),
            first_read.addr.eq(row),
            place_write.data.eq(self.new_place),
            place_read.addr.eq(Cat(address, self.pick_control)),
            self.place.eq(place_read.data),
            policy_read.addr.eq(Mux(self.working, self.profile, table.index)),
        ]
        for port in reads:
            m.d.comb += port.addr.eq(address)
        policy = policy_read.data
        first = first_read.data

        # The EV's group, and its state in it. The host writes and reads whole groups.
        group = Signal(group_shape)
        one_hot = Signal(8)
        now = Signal(3)
        from_host = Signal()
        store = Signal()
        chosen = Signal(2)
        m.d.comb += chosen.eq(place[3:])
        for name in group_shape.members:
            m.d.comb += getattr(group, name).eq(Array(port.data[name] for port in reads)[chosen])
        m.d.comb += [
            one_hot.eq(1 << place[:3]),
            now.eq(Cat(getattr(group, name).bit_select(place[:3], 1) for name in group_shape.members)),
        ]
        written = Cat(
            Mux(
                from_host,
                (given & cleared.replicate(8)),
                (getattr(group, name) & ~one_hot) | (one_hot & new[number].replicate(8)),
            )
            for number, (name, given) in enumerate(
                zip(group_shape.members, (table.write_data[:8], table.write_data[8:16], 0), strict=True)
            )
        )
        for number, port in enumerate(writes):
            m.d.comb += [
                port.addr.eq(Mux(cleared, row, sequence.row)),
                port.data.eq(written),
                port.en.eq(~cleared | (store & (chosen == number))),
            ]

        m.d.comb += [
            step.operation.eq(kind),
            step.met.eq(met),
            step.drawn.eq(~(draw & policy.floor_mask).any()),
            step.oblivious.eq(policy.oblivious),
            step.code.eq(code),
        ]

        # Commands of the host: which table, and the row, for a number of planes that is no power of two taken
        # apart.
        refused, told_policy = Signal(), Signal()
        is_policy, is_order = table.index[14], table.index[15]
        limit = Mux(is_policy, profiles, config.qps * config.planes)
        single = is_policy | is_order
        allowed = (
            (table.index[:14] < limit)
            & ~table.word[2:].any()
            & ~(single & table.word[:2].any())
            & ~(is_order & (is_policy | ~table.write))
        )
        assert EV_POLICY_INDEX == 1 << 14 and EV_ORDER_INDEX == 1 << 15
        divided: Value = Const(1)
        rest = Signal(range(config.qps * config.planes))
        quotient: Any = table.index[plane_width : plane_width + config.qp_bits]
        if config.planes & (config.planes - 1) or config.planes == 1:
            divided, quotient = Signal(), Signal(config.qp_bits)
        remainder = rest[:plane_width] if isinstance(divided, Signal) else table.index[:plane_width]

        def of_order(name: str) -> Value:
            field = EV_ORDER.field(name)
            return table.write_data[field.low : field.low + field.width]

        for name in policy_shape.members:
            field = EV_POLICY.field(name)
            given = table.write_data[field.low : field.low + field.width]
            m.d.comb += getattr(policy_write.data, name).eq(given & cleared.replicate(field.width))
        m.d.comb += policy_write.addr.eq(Mux(cleared, table.index, sequence.row))
        policy_bits = Cat(
            Value.cast(policy.min_active).as_unsigned() | Const(0, EV_POLICY.field("min_active").width),
            policy.events | Const(0, EV_POLICY.field("events").width),
            policy.oblivious,
            policy.floor_mask,
        )
        m.d.comb += [
            table.read_data.eq(Mux(told_policy, policy_bits, group)),
            table.error.eq(refused),
        ]

        # What an applied change means to others.
        was_bad, is_bad = code[2] & ~code[0], new[2] & ~new[0]
        noticed = Signal()
        untold = Signal()
        applies = Signal()
        m.d.comb += [
            noticed.eq(
                ~hosted & ~second & (was_bad ^ is_bad) & Mux(is_bad, policy.events[1], policy.events[0])
            ),
            self.event.payload.qp.eq(qp),
            self.event.payload.reason.eq(plane),
            self.event.payload.kind.eq(EventKind.EV_STATE),
            self.event.payload.place.eq(place),
            self.event.payload.state.eq(Mux(is_bad, EvState.ASSUMED_BAD, EvState.GOOD)),
            self.went_bad.eq(applies & ~second & new[2] & ~code[2]),
            self.changed_qp.eq(qp),
            self.changed_plane.eq(plane),
            self.changed_index.eq(place),
        ]
        trace_idle: Value = Const(1)
        if config.trace:
            trace_idle = ~self.trace.valid
            detail = change_detail()(self.trace.payload.detail)
            with m.If(self.trace.ready):
                m.d.sync += self.trace.valid.eq(0)
            with m.If(applies):
                m.d.sync += [
                    self.trace.valid.eq(1),
                    self.trace.payload.kind.eq(TraceKind.EV_CHANGE),
                    self.trace.payload.qp.eq(qp),
                    self.trace.payload.plane.eq(plane),
                    self.trace.payload.psn.eq(place),
                    detail.old.eq(code),
                    detail.new.eq(new),
                    detail.cause.eq(Mux(met, 8, kind)),
                    detail.second.eq(second),
                ]
        m.d.comb += untold.eq((noticed & ~self.event.ready) | ~trace_idle)

        # Where the place comes from; a sum of what is not zero takes fewer LUTs than a choice.
        begins, ordered, listed, back, top, down = (Signal(name=f"place_{n}") for n in range(6))
        met_now = Signal()
        sources = (
            (operation.payload.ev_index, begins),
            (of_order("place"), ordered),
            (table.word[:2] << 3, listed),
            (self.met_index, met_now),
            (other, back),
            (Const(31), top),
            (place - 1, down),
        )
        m.d.comb += met_now.eq(self.write & self.met)
        with m.If(Cat(enable for _, enable in sources).any()):
            m.d.sync += place.eq(
                reduce(or_, (Value.cast(value)[:5] & enable.replicate(5) for value, enable in sources))
            )
        # A pick that met a SKIP EV is carried out first; its (QP, plane) stays on the pick's address.
        with m.If(met_now):
            m.d.sync += [met_waits.eq(1), draw.eq(self.met_draw)]
        restarted = Signal()  # the rotation for data begins anew, that for control packets is next
        count = Signal(policy_shape["min_active"].shape)  # how many more EVs in use would not be too many
        enough = Signal()
        some_backup = ~first.none
        # As the model numbers rows.
        seed_row = Cat(plane, qp) if config.planes == 1 << plane_width else qp * config.planes + plane
        with m.FSM() as states:
            with m.State("IDLE"):
                m.d.sync += [
                    second.eq(0), promotes.eq(0), refused.eq(0), told_policy.eq(is_policy), restarted.eq(0),
                    enough.eq(0), hosted.eq(table.valid & ~met_waits), met.eq(0),
                ]  # fmt: skip
                with m.If(met_waits):
                    m.d.comb += self.hold.eq(1)
                    m.d.sync += [qp.eq(self.pick_qp), plane.eq(self.pick_plane), met.eq(1)]
                    with m.If(~self.busy):
                        m.d.sync += met_waits.eq(0)
                        m.next = "READ"
                with m.Elif(~cleared):
                    pass
                with m.Elif(table.valid & (~allowed | is_policy)):
                    m.d.comb += [table.ready.eq(1), policy_write.en.eq(allowed & table.write)]
                    m.d.sync += refused.eq(~allowed)
                    m.next = "DONE"
                with m.Elif(table.valid & ~divided):
                    m.d.sync += rest.eq(table.index)
                    if isinstance(divided, Signal):
                        m.d.sync += quotient.eq(0)
                        m.next = "DIVIDE"
                with m.Elif(table.valid):
                    m.d.comb += self.hold.eq(1)
                    m.d.sync += [qp.eq(quotient), plane.eq(remainder)]
                    with m.If(~self.busy):
                        if isinstance(divided, Signal):
                            m.d.sync += divided.eq(0)
                        with m.If(table.write & ~is_order):
                            m.next = "WRITE"
                        with m.Else():
                            m.d.comb += [table.ready.eq(1), ordered.eq(is_order), listed.eq(~is_order)]
                            m.d.sync += kind.eq(Mux(is_order, of_order("operation"), PathOperation.SCAN))
                            m.next = "READ"
                with m.Elif(operation.valid):
                    m.d.comb += self.hold.eq(1)
                    with m.If(~self.busy):
                        m.d.sync += [
                            qp.eq(operation.payload.qp),
                            plane.eq(operation.payload.plane),
                            kind.eq(operation.payload.operation),
                        ]
                        m.d.comb += [operation.ready.eq(1), begins.eq(1)]
                        m.next = "READ"
            if isinstance(divided, Signal):
                with m.State("DIVIDE"):
                    with m.If(rest < config.planes):
                        m.d.sync += divided.eq(1)
                        m.next = "IDLE"
                    with m.Else():
                        m.d.sync += [rest.eq(rest - config.planes), quotient.eq(quotient + 1)]
            with m.State("READ"):
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += code.eq(now)
                m.next = "DECIDE"
                with m.If(~met & (kind == PathOperation.SCAN)):
                    m.d.comb += self.scanned.eq(~hosted)
                    m.next = "DONE"
            with m.State("DECIDE"):
                m.d.sync += [
                    new.eq(step.new), checks.eq(step.restores & some_backup), other.eq(place),
                    lost.eq(step.lost & policy.min_active.any()), count.eq(policy.min_active),
                ]  # fmt: skip
                m.next = "DONE"
                with m.If(step.new != code):
                    m.next = "APPLY"
                with m.If(step.retires):
                    m.next = "RETIRE"
            with m.State("RETIRE"):
                m.next = "APPLY"
                m.d.comb += top.eq(some_backup | lost)
                with m.If(lost):
                    m.next = "COUNT"
                with m.If(some_backup):
                    m.next = "WALK"
            with m.State("WALK"):
                # Down from the last place: to a backup, or to the EV that goes back.
                with m.If(checks & now[0]):
                    m.d.sync += [code.eq(now), new.eq(EvCode.BACKUP), second.eq(1), checks.eq(0)]
                    m.next = "APPLY"
                with m.Elif(~checks & (now == EvCode.BACKUP)):
                    m.d.comb += back.eq(1)
                    m.d.sync += [promotes.eq(1), other.eq(place)]
                    m.next = "APPLY"
                with m.Elif(place == first.place):
                    m.d.comb += [back.eq(~lost), top.eq(lost)]
                    m.next = "APPLY"
                    with m.If(lost):
                        m.next = "COUNT"
                    with m.If(checks):
                        m.next = "TAIL"
                with m.Else():
                    m.d.comb += down.eq(1)
            with m.State("COUNT"):
                # Are more EVs in use than so many: on the plane, or on all planes of the QP?
                m.d.comb += down.eq(1)
                with m.If(now[0]):
                    m.d.sync += [count.eq(count - 1), enough.eq(enough | (count == 0))]
                with m.If(enough):
                    m.d.sync += aside.eq(0)
                    m.next = "JUDGE"
                with m.Elif(place == 0):
                    m.next = "JUDGE"
                    with m.If(~checks):
                        m.d.sync += aside.eq(aside + 1)
                        with m.If(~aside.all()):
                            m.next = "COUNT_WAIT"
            with m.State("COUNT_WAIT"):
                m.next = "COUNT"
            with m.State("JUDGE"):
                m.d.comb += [back.eq(~checks), top.eq(checks)]
                m.next = "APPLY"
                with m.If(checks):
                    m.next = "TAIL"
                    with m.If(enough):
                        m.next = "WALK"
                with m.Elif(~enough):
                    m.d.sync += new.eq(EvCode.FLOORED)
            with m.State("APPLY"):
                m.d.comb += self.event.valid.eq(noticed & trace_idle)
                with m.If(~untold):
                    m.d.comb += [applies.eq(new != code), store.eq(1)]
                    m.next = "DONE"
                    with m.If(code[0] ^ new[0]):
                        m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += promotes.eq(0)
                m.next = "TAIL"
                with m.If(promotes):
                    m.d.comb += back.eq(1)
                    m.d.sync += [code.eq(EvCode.BACKUP), new.eq(EvCode.GOOD), second.eq(1)]
                    m.next = "APPLY"
                with m.Elif(checks):
                    m.d.comb += top.eq(1)
                    m.d.sync += count.eq(first.place)
                    m.next = "COUNT_WAIT"
            with m.State("WRITE"):
                m.d.comb += [from_host.eq(1), chosen.eq(table.word)]
                with m.If(table.valid):
                    m.d.comb += [table.ready.eq(1), store.eq(~table.word[2:].any())]
                    m.d.comb += top.eq(1)
                    m.d.sync += [checks.eq(1), refused.eq(table.word[2:].any())]
                    m.next = "WRITTEN"
                    with m.If(table.last):
                        m.next = "FIND_WAIT"
            with m.State("WRITTEN"):
                m.d.comb += table.done.eq(1)
                m.next = "WRITE"
            with m.State("FIND_WAIT"):
                m.next = "FIND"
            with m.State("FIND"):
                # The first backup; ``checks`` stays while there is none.
                m.d.comb += down.eq(1)
                with m.If(now == EvCode.BACKUP):
                    m.d.sync += [other.eq(place), checks.eq(0)]
                with m.If(place == 0):
                    m.next = "RESTART"
            with m.State("RESTART"):
                m.d.comb += [
                    first_write.en.eq(1),
                    place_write.addr.eq(Cat(row, restarted)),
                    place_write.data.place.eq(0),
                    # Any value but zero keeps the shift register going; rows start at different keys.
                    place_write.data.hash.eq(Cat(Const(1, 1), self.seed ^ seed_row)),
                    place_write.en.eq(1),
                ]
                m.d.sync += restarted.eq(~restarted)
                with m.If(restarted):
                    m.next = "TAIL"
            with m.State("TAIL"):
                bit = Signal(config.planes)
                m.d.comb += [
                    bit.eq(1 << plane),
                    plane_write.data.eq(
                        (change_read.data & ~bit) | (bit & self.word.good.any().replicate(config.planes))
                    ),
                    plane_write.en.eq(1),
                ]
                m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += table.done.eq(hosted)
                m.next = "IDLE"
        resting = states.ongoing("IDLE") | states.ongoing("DONE")
        m.d.comb += [
            self.working.eq(~resting),
            plane_write.addr.eq(qp),
            first_write.addr.eq(row),
            first_write.data.eq(Cat(other, checks)),
        ]
        if isinstance(divided, Signal):
            m.d.comb += self.working.eq(~resting & ~states.ongoing("DIVIDE"))
        with m.If(self.working):
            m.d.comb += self.hold.eq(1)
        with m.If(~states.ongoing("RESTART")):
            m.d.comb += [place_write.addr.eq(Cat(address, self.pick_control)), place_write.en.eq(self.write)]
        with m.If(~cleared):
            m.d.comb += [
                from_host.eq(1),
                plane_write.addr.eq(sequence.row),
                plane_write.data.eq(0),
                plane_write.en.eq(1),
                first_write.addr.eq(sequence.row),
                first_write.data.eq(1 << 5),
                first_write.en.eq(1),
                policy_write.en.eq(1),
            ]
        m.d.comb += self.idle.eq(
            states.ongoing("IDLE") & ~table.valid & ~operation.valid & ~met_waits & cleared & trace_idle
        )
        return m
