"""First stage of admission: reads the planes' records in turn and checks who sent them."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import layouts, records, tables, wire
from ..config import QP_NUMBER_BASE, NicConfig
from ..records import PortCounter, Trimmed
from ..wire import Opcode
from .admitted import admitted
from .frame_words import WORD_BYTES
from .header_parser import BODY_OFFSET, BTH_OFFSET, UDP_OFFSET
from .normaliser import IP_OFFSET
from .receive_contexts import ContextRead, context_field, context_word, is_receiving
from .record_memory import FINDINGS_WORD, FIRST_WORD, RecordPort, findings, reading_order, row_words

__all__ = ["Intake"]

_FEEDBACK = (Opcode.ACKNOWLEDGE, Opcode.SACK, Opcode.NACK)
_ENDPOINT = (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE)
_WRITES = tuple(opcode for opcode in Opcode if wire.is_write(opcode))
_LAST = tuple(opcode for opcode in Opcode if wire.is_last(opcode))
_IMMEDIATE = tuple(opcode for opcode in Opcode if wire.has_immediate(opcode))

#: Lanes in which RETH begins, without TSETH and behind it; peer addresses begin where RETH does without.
_EARLY, _LATE = 6, 2


class Intake(wiring.Component):
    """Reads a record word by word, row by row at wider data paths, and each field into a register of its own.

    Nothing wide is multiplexed: the plane is chosen where its words come in, peer addresses and RETH are
    turned to fixed lanes as they pass, and the peer's address is compared half by half with the QP's context,
    which is read beside the record. Behind the last row the packet is offered with the outcome so far: QP,
    peer, P_Key and opcode. The next record's rows follow when it has been taken.

    An endpoint request names no QP: it is tried whether that of the request before fits, else the QPs of its
    source are to be searched, always when it tells of ports. One of our own that came back needs no answer.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    records : RecordPort, one per plane
    context : ContextRead
        Static context of the packet's QP.
    start : 1
        Pulse: a record is begun.
    epoch : 1, in
        Epoch in which packets enter.
    valid, ready : 1
        The packet below is there; it is taken.
    packet : admitted
    settings : records.settings
        ``own_address``.
    guess : qp
        A QP whose peer may have sent the endpoint request.
    writes_region, feeds_back, searches : 1
        Its region is to be looked up; it is feedback for the requester; QPs of its source are to be found.
    region : records.region_request
    feedback : records.feedback_record
    wanted : records.peer_query
    busy : 1
        A record is being read or waits to be.

    Source: protocol.md 1.12, 1.13, 3.2 and 7 (Q14); profile.md 2 and 5.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "settings": In(records.settings(config)),
                "guess": In(config.qp_bits),
                "records": In(RecordPort(config)).array(config.planes),
                "context": Out(ContextRead(config)),
                "start": Out(1),
                "epoch": In(1),
                "valid": Out(1),
                "ready": In(1),
                "packet": Out(admitted(config)),
                "writes_region": Out(1),
                "feeds_back": Out(1),
                "searches": Out(1),
                "region": Out(records.region_request(config)),
                "feedback": Out(records.feedback_record(config)),
                "wanted": Out(records.peer_query(config)),
                "busy": Out(1),
            }
        )
        self._words = row_words(config)
        self._order = reading_order(config)

    def _arrives(self, word: int) -> int:
        """Step in which a word of the record is there; the record is begun in step 0."""
        return 1 + self._order.index(word // self._words)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._config
        words, order = self._words, self._order

        peer_words = [(IP_OFFSET + wire.IPV6.byte_offset("source")) // WORD_BYTES + n for n in (1, 2)]
        peer_steps = [self._arrives(word) + 1 for word in peer_words]
        last_step = max(len(order), peer_steps[-1]) + 1

        # Steps of a record: 0 idle, then a row arrives in each, then it waits to be taken.
        step = Signal(range(last_step + 1))
        plane = Signal(records.plane_bits(config))
        chosen = Signal.like(plane)
        some = Signal()
        for origin in range(config.planes):
            with m.If(plane == origin):
                for distance in range(config.planes, 0, -1):
                    candidate = (origin + distance) % config.planes
                    with m.If(self.records[candidate].valid):
                        m.d.comb += [chosen.eq(candidate), some.eq(1)]
        # Without a gap only where K leaves none: a path from the sinks ends here otherwise.
        dense = config.packet_interval <= 4
        follows = self.valid & self.ready if config.packet_interval <= last_step + 1 else 0
        # The first row of a record that already waited is there when the record is begun.
        begun = Signal()
        waited = Signal(config.planes)
        assert not dense or len(order) == 2, "the first row and the last one"
        m.d.comb += [
            self.valid.eq(step == last_step),
            self.start.eq(some & ~self.context.busy & ((step == 0) | follows)),
            self.context.reading.eq(self.start | (step != 0)),
            self.busy.eq((step != 0) | some),
        ]
        with m.If(self.start):
            m.d.sync += [step.eq(1 + begun), plane.eq(chosen)]
        with m.Elif(self.valid):
            with m.If(self.ready):
                m.d.sync += step.eq(0)
        with m.Elif(step != 0):
            m.d.sync += step.eq(step + 1)

        row = Signal.like(self.records[0].row)
        m.d.comb += row.eq(order[0])
        with m.Switch(step):
            for number, place in enumerate(order):
                with m.Case(number):
                    m.d.comb += row.eq(place)
        source = plane
        if dense:
            source = Mux(self.start, chosen, plane)
            m.d.comb += begun.eq(self.start & waited.bit_select(chosen, 1))
            m.d.sync += waited.eq(
                Mux(row == order[0], Cat(port.valid & ~port.done for port in self.records), 0)
            )
            with m.If(begun):
                m.d.comb += row.eq(order[1])
        arriving = Signal(8 * WORD_BYTES * words)
        for number, port in enumerate(self.records):
            ends = begun | (step == len(order) - 1)
            m.d.comb += [port.row.eq(row), port.done.eq(ends & (source == number))]
            with m.If(source == number):
                m.d.comb += arriving.eq(port.data)
        before = Signal(8 * WORD_BYTES, reset_less=True)
        with m.If((step != 0) | begun):
            m.d.sync += before.eq(arriving[-8 * WORD_BYTES :])

        def word(number: int) -> Value:
            """A word while it arrives."""
            return arriving.word_select(number % words, 8 * WORD_BYTES)

        def here(number: int) -> Value:
            first = begun if self._arrives(number) == 1 else Const(0)
            return (step == self._arrives(number)) | first

        def catch(first: int, count: int, name: str) -> Signal:
            """Register that holds some bytes of the frame as a big-endian number."""
            target = Signal(8 * count, name=name, reset_less=True)
            left = count
            while left:
                number, lane = divmod(first + count - left, WORD_BYTES)
                size = min(left, WORD_BYTES - lane)
                left -= size
                value = layouts.to_network_order(word(number)[8 * lane : 8 * (lane + size)])
                with m.If(here(number)):
                    m.d.sync += target[8 * left : 8 * (left + size)].eq(value)
            return target

        def header(base: int, described: wire.Header, name: str) -> Signal:
            return catch(base + described.byte_offset(name), described[name].bits // 8, name)

        def flag(name: str) -> tuple[int, Value]:
            """A bit of BTH, as it arrives: its word and the bit."""
            number, lane = divmod(BTH_OFFSET + wire.BTH.byte_offset(name), WORD_BYTES)
            return number, word(number)[8 * lane + 7 - wire.BTH.offset(name) % 8]

        opcode = header(BTH_OFFSET, wire.BTH, "opcode")
        psn = header(BTH_OFFSET, wire.BTH, "psn")
        destination = header(BTH_OFFSET, wire.BTH, "dest_qp")
        partition_key = header(BTH_OFFSET, wire.BTH, "pkey")
        flow = catch(IP_OFFSET + 2, 2, "flow_label")
        port_number = header(UDP_OFFSET, wire.UDP, "source_port")
        body = catch(BODY_OFFSET, records.BODY_BITS // 8, "body")
        found = Signal(findings(), reset_less=True)
        with m.If(here(FINDINGS_WORD)):
            m.d.sync += found.eq(word(FINDINGS_WORD)[: findings().size])
        flags = {}
        for name in ("ack_req", "rtx"):
            flags[name] = Signal(name=name)
            number, value = flag(name)
            with m.If(here(number)):
                m.d.sync += flags[name].eq(value)
        qp = Signal(config.qp_bits)
        to_endpoint = destination == wire.ENDPOINT_QPN
        m.d.comb += qp.eq(Mux(to_endpoint, self.guess, destination))

        # Eight bytes from lane 6 or lane 2 of the word before, as they pass: of the peer's address, of RETH.
        behind_stamp = Signal()
        number, value = flag("ts")
        late = behind_stamp
        if self._arrives(number) == self._arrives(number + 1):
            late = Mux(here(number), value, behind_stamp)
        with m.If(here(number)):
            m.d.sync += behind_stamp.eq(value)
        passing = Signal()  # words of the body, not those of the addresses
        turned = [Signal(8 * WORD_BYTES, name=f"turned{n}", reset_less=True) for n in range(words)]
        m.d.comb += passing.eq(late & (begun | (step < self._arrives(FIRST_WORD))))
        with m.If((step != 0) | begun):
            for n, target in enumerate(turned):
                ahead = word(n - 1) if n else before
                m.d.sync += target.eq(
                    Mux(
                        passing,
                        Cat(ahead[8 * _LATE :], word(n)[: 8 * _LATE]),
                        Cat(ahead[8 * _EARLY :], word(n)[: 8 * _EARLY]),
                    )
                )

        def take(target: Signal, first: int, high: int) -> None:
            """Take bytes of RETH or ImmDt that end in word ``first`` without TSETH, with it in the next."""
            for number, when in ((first, ~behind_stamp), (first + 1, behind_stamp)):
                with m.If((step == self._arrives(number) + 1) & when):
                    value = layouts.to_network_order(turned[number % words])
                    m.d.sync += target.eq(value[high - len(target) : high])

        # Without TSETH RETH begins in the word that ends METH.
        reth_word = (BODY_OFFSET + wire.METH.bytes + wire.RETH.bytes) // WORD_BYTES
        address = Signal(64, reset_less=True)
        key = Signal(32, reset_less=True)
        length = Signal(32, reset_less=True)
        immediate = Signal(32, reset_less=True)
        take(address, reth_word - 1, 64)
        take(key, reth_word, 64)
        take(length, reth_word, 32)
        take(immediate, reth_word + 1, 64)

        # The context, beside the record.
        field = tables.QP_RECEIVE.field
        context = self.context
        names = ("peer_high", "peer_low")
        row_size = len(context.data) // 64
        reads = {2: field("state").word // row_size}
        reads |= {at - 1: field(name).word // row_size for at, name in zip(peer_steps, names, strict=True)}
        m.d.comb += context.qp.eq(qp)
        with m.Switch(step):
            for at, number in reads.items():
                with m.Case(at):
                    m.d.comb += [context.enable.eq(1), context.row.eq(number)]
        m.d.comb += context.state_enable.eq(step == 2)

        known = Signal()
        receiving = Signal()
        partition_right = Signal()
        protection_domain = Signal(8)
        in_order = Signal()
        epoch = Signal()
        with m.If(self.start):
            m.d.sync += epoch.eq(self.epoch)
        with m.If(step == 3):
            content = context_word(context.data, "state")
            m.d.sync += [
                known.eq(destination[config.qp_bits :] == QP_NUMBER_BASE >> config.qp_bits),
                receiving.eq(is_receiving(context.state)),
                protection_domain.eq(context_field("protection_domain", content)),
                in_order.eq(context_field("in_order", content)),
                partition_right.eq(context_field("partition_key", content) == partition_key),
            ]
        rights = []
        own = []
        ends = Value.cast(self.wanted.source).word_select
        for half, (at, number, name) in enumerate(zip(peer_steps, peer_words, names, strict=True)):
            right = Signal(name=f"{name}_right")
            is_own = Signal(name=f"{name}_own")
            passes = layouts.to_network_order(turned[number % words])
            kept_half = Signal(64, name=f"source{half}", reset_less=True)
            with m.If(step == at):
                m.d.sync += [
                    right.eq(passes == context_word(context.data, name)),
                    is_own.eq(passes == self.settings.own_address.word_select(1 - half, 64)),
                    kept_half.eq(passes),
                ]
            m.d.comb += ends(1 - half, 64).eq(kept_half)
            rights.append(right)
            own.append(is_own)

        packet = self.packet
        if config.go_back_n:
            m.d.comb += packet.in_order.eq(in_order)
        feeds_back = opcode.matches(*_FEEDBACK)
        writes = Signal()
        at_endpoint = Signal()
        m.d.comb += [writes.eq(opcode.matches(*_WRITES)), at_endpoint.eq(opcode.matches(*_ENDPOINT))]
        with m.If(at_endpoint):
            with m.If(~to_endpoint):
                m.d.comb += packet.outcome.eq(PortCounter.DROP_QP)
            with m.Else():
                m.d.comb += [
                    packet.outcome.eq(PortCounter.CONTROL),
                    packet.request.eq((opcode == Opcode.ENDPOINT_REQUEST) & ~Cat(own).all()),
                    self.searches.eq(
                        packet.request & (self.wanted.updates | ~receiving | ~Cat(rights).all())
                    ),
                ]
        with m.Elif(~known | ~receiving):
            m.d.comb += packet.outcome.eq(PortCounter.DROP_QP)
        with m.Elif(~Cat(rights).all()):
            m.d.comb += packet.outcome.eq(PortCounter.DROP_PEER)
        with m.Elif(~partition_right):
            m.d.comb += packet.outcome.eq(PortCounter.DROP_PKEY)
        with m.Elif(writes):
            m.d.comb += [
                packet.outcome.eq(PortCounter.ACCEPTED),
                self.writes_region.eq((found.trimmed == Trimmed.NO) & (found.length != 0)),
            ]
        with m.Elif(feeds_back):
            m.d.comb += [packet.outcome.eq(PortCounter.CONTROL), self.feeds_back.eq(1)]
        with m.Else():
            # The plane lets pass no opcode but those of MRC, of which only this one is left.
            m.d.comb += [packet.outcome.eq(PortCounter.CONTROL), packet.probe.eq(1)]

        # A time stamp counts when its type says so. Those of probe and request stand at the same place.
        def of_body(header: wire.Header, name: str, *before: wire.Header) -> Value:
            """A field of the body, with the headers before its own."""
            top = records.BODY_BITS - sum(part.bits for part in before) - header.offset(name)
            return body[top - header[name].bits : top]

        stamp_fields = ("tx_timestamp", "ftype")
        assert all(wire.PETH.offset(name) == wire.ERTH.offset(name) for name in stamp_fields)
        stamp, stamp_type = (
            Mux(writes, of_body(wire.TSETH, name, wire.METH), of_body(wire.PETH, name))
            for name in stamp_fields
        )
        operation = of_body(wire.ERTH, "op")
        port_mask = of_body(wire.ERTH, "port_status_mask")
        m.d.comb += [
            self.wanted.updates.eq(operation == wire.EndpointOp.PORT_STATUS_UPDATE),
            self.wanted.reachable.eq(port_mask),
        ]
        meth = data.View(layouts.METH, body[records.BODY_BITS - layouts.METH.size :])
        m.d.comb += [
            packet.qp.eq(qp),
            packet.psn.eq(Mux(packet.probe, of_body(wire.PETH, "probe_id"), psn)),
            packet.plane.eq(plane),
            packet.ev.eq(Cat(flow, port_number)),
            packet.age.eq(stamp - found.received_at),
            packet.timestamped.eq(
                (found.timestamped | ~writes) & (stamp_type == wire.TSETH["ftype"].default)
            ),
            packet.marked.eq(Mux(at_endpoint, operation[0], found.marked)),
            packet.retransmission.eq(Mux(at_endpoint, operation[1], flags["rtx"])),
            packet.ack_request.eq(flags["ack_req"]),
            packet.last.eq(opcode.matches(*_LAST)),
            packet.immediate.eq(opcode.matches(*_IMMEDIATE)),
            packet.epoch.eq(epoch),
            packet.rqmsn.eq(meth.rqmsn),
            packet.message_number.eq(meth.msn),
            packet.message_length.eq(length),
            packet.immediate_value.eq(immediate),
            packet.length.eq(found.length),
            packet.trimmed.eq(found.trimmed),
            packet.from_peer.eq(known & Cat(rights).all() & writes),
            self.region.key.eq(key),
            self.region.protection_domain.eq(protection_domain),
            self.region.address.eq(address),
            self.region.length.eq(found.length),
            self.region.write.eq(1),
            self.feedback.qp.eq(qp),
            self.feedback.plane.eq(plane),
            self.feedback.opcode.eq(opcode),
            self.feedback.psn.eq(psn),
            self.feedback.retransmission.eq(flags["rtx"]),
            self.feedback.body.eq(body),
            self.feedback.received_at.eq(found.received_at),
        ]
        return m
