"""The engine, wired: every block of the data path and nothing that decides anything itself."""

from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Any

from amaranth.hdl import Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from . import records
from .config import NicConfig
from .counters import CounterBank
from .csr import ADDRESS_BITS, CsrBlock
from .memory_regions import MemoryRegions
from .paths.bind import Bind
from .paths.prober import Prober
from .record_streams import RecordArbiter, RecordBroadcast, RecordRegister
from .requester.requester import Requester
from .responder.admit import Admission
from .responder.completions import Completions
from .responder.immediates import Immediates
from .responder.placement import Placement
from .responder.plane_receive import PlaneReceive
from .responder.rx_tracker import RxTracker
from .responder.sack import SackGenerator
from .responder.write_arbiter import WriteArbiter, write_id_bits
from .stream import Axi4ReadSignature, Axi4WriteSignature, AxiLiteSignature, PacketStream
from .table_commands import table_port
from .tables import EventKind, QpErrorReason, TableId
from .transmit.payload_fetch import PayloadFetch
from .transmit.transmitter import Transmitter

__all__ = ["MrcNic", "READ_ID_BITS"]

#: Width of the AXI4 read identifier, which is always 0: reads return in order.
READ_ID_BITS = 1


class MrcNic(wiring.Component):
    """An MRC NIC engine.

    One clock domain. Time is an input; the engine keeps no counter of its own, so a simulation may skip the
    cycles while ``quiescent`` is set and no frame arrives, up to ``next_deadline``.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    now : 48
        Ticks of 128 ns in bits 47:16, fraction of a tick below.
    quiescent : 1
        Nothing is held and nothing is in flight inside the engine.
    next_deadline, deadline_valid : 32, 1
        Tick at which a timer expires at the earliest.
    link_up : planes
        From the MACs.
    event_waiting : 1
        The event queue holds an event for the host.
    control : AXI4-Lite
        Registers (``mrc_rtl/registers.rdl``).
    memory_read, memory_write : AXI4
        Host memory.
    transmit_0 …, receive_0 … : PacketStream
        One pair a plane. The receiving side is always ready.
    trace : stream of records.trace_record
        With ``config.trace`` only.

    Source: design.md 4; profile.md; the blocks name their clauses.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        width, address_width = config.data_width, config.address_width
        members: dict[str, Any] = {
            "now": In(48),
            "quiescent": Out(1),
            "next_deadline": Out(32),
            "deadline_valid": Out(1),
            "link_up": In(config.planes),
            "event_waiting": Out(1),
            "control": In(AxiLiteSignature(ADDRESS_BITS)),
            "memory_read": Out(Axi4ReadSignature(width, address_width, READ_ID_BITS)),
            "memory_write": Out(Axi4WriteSignature(width, address_width, write_id_bits(config))),
        }
        for plane in range(config.planes):
            members[f"transmit_{plane}"] = Out(PacketStream(width))
            members[f"receive_{plane}"] = In(PacketStream(width))
        if config.trace:
            members["trace"] = Out(stream.Signature(records.trace_record(config)))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        return _Wiring(self).module


class _Wiring:
    """The connections of one engine; a class so that each part of the data path is one method."""

    def __init__(self, nic: MrcNic) -> None:
        self.nic = nic
        self.config = config = nic.config
        self.module = Module()
        self.blocks: dict[str, Any] = {}

        self.csr = self._add("csr", CsrBlock(config))
        self.regions = self._add("memory_regions", MemoryRegions(config))
        self.requester = self._add("requester", Requester(config))
        self.bind = self._add("bind", Bind(config))
        self.prober = self._add("prober", Prober(config))
        self.fetch = self._add("payload_fetch", PayloadFetch(config, id_width=READ_ID_BITS))
        self.transmitter = self._add("transmitter", Transmitter(config))
        self.planes = [
            self._add(f"plane_receive_{plane}", PlaneReceive(config, plane)) for plane in range(config.planes)
        ]
        self.admission = self._add("admission", Admission(config))
        self.placement = self._add("placement", Placement(config))
        self.tracker = self._add("rx_tracker", RxTracker(config))
        self.sack = self._add("sack", SackGenerator(config))
        self.immediates = self._add("immediates", Immediates(config))
        self.completions = self._add("completions", Completions(config))
        self.writes = self._add("write_arbiter", WriteArbiter(config))

        self._host()
        self._transmit()
        self._paths()
        self._receive()
        self._answers()
        self._errors()
        self._counters()
        if config.trace:
            self._trace()
        self.module.d.comb += nic.quiescent.eq(reduce(and_, (block.idle for block in self.blocks.values())))

    # Helpers -----------------------------------------------------------------------------------------

    def _add(self, name: str, block: Any) -> Any:
        self.module.submodules[name] = block
        self.blocks[name] = block
        return block

    def _connect(self, source: Any, sink: Any) -> None:
        wiring.connect(self.module, source, sink)

    def _merge(self, name: str, layout: data.Layout, sources: Iterable[Any]) -> Any:
        """Several streams become one; its source side is returned."""
        inputs = list(sources)
        arbiter = self._add(name, RecordArbiter(layout, len(inputs)))
        for source, port in zip(inputs, arbiter.inputs, strict=True):
            self._connect(source, port)
        return arbiter.output

    def _registered(self, name: str, source: Any) -> Any:
        """A stream with a register that cuts all paths between two blocks; its source side is returned."""
        register = self._add(name, RecordRegister(source.payload.shape()))
        self._connect(source, register.input)
        return register.output

    def _spread(self, name: str, layout: data.Layout, source: Any, sinks: Iterable[Any]) -> None:
        outputs = list(sinks)
        broadcast = self._add(name, RecordBroadcast(layout, len(outputs)))
        self._connect(source, broadcast.input)
        for port, sink in zip(broadcast.outputs, outputs, strict=True):
            self._connect(port, sink)

    # Parts of the data path --------------------------------------------------------------------------

    def _host(self) -> None:
        """Registers, tables and doorbells."""
        m, nic, csr = self.module, self.nic, self.csr
        self._connect(wiring.flipped(nic.control), csr.control)
        m.d.comb += [csr.link_up.eq(nic.link_up), nic.event_waiting.eq(csr.event_waiting)]
        for block in (
            self.requester, self.bind, self.prober, self.transmitter, self.admission, self.sack, *self.planes
        ):  # fmt: skip
            m.d.comb += block.settings.eq(csr.settings)
        owners = {
            TableId.QP_SEND: self.requester.qp_send,
            TableId.QP_RECEIVE: self.admission.table,
            TableId.SEND_REQUEST: self.requester.send_request,
            TableId.RECEIVE_REQUEST: self.immediates.table,
            TableId.MEMORY_REGION: self.regions.table,
            TableId.COMPLETION_QUEUE: self.completions.table,
            TableId.EV_SET: self.bind.ev_set,
            TableId.EV_VALUE: self.bind.ev_value,
            TableId.TEMPLATE: self.transmitter.table,
        }
        for table, port in owners.items():
            self._connect(getattr(csr, table_port(table)), port)
        self._connect(csr.send_doorbell, self.requester.doorbell)
        self._connect(csr.receive_doorbell, self.immediates.doorbell)
        self._connect(csr.consumer, self.completions.consumer)

    def _transmit(self) -> None:
        """Doorbell to port."""
        m, nic = self.module, self.nic
        requester, bind, fetch, transmitter = self.requester, self.bind, self.fetch, self.transmitter
        m.d.comb += [
            requester.now.eq(nic.now),
            bind.now.eq(nic.now),
            bind.room.eq(transmitter.room),
            bind.port_up.eq(self.csr.settings.port_up),
            bind.path_qp.eq(requester.path_qp),
            requester.path_there.eq(bind.path_there),
            requester.state_qp.eq(bind.state_qp),
            bind.state_sending.eq(requester.state_sending),
            bind.state_profile.eq(requester.state_profile),
        ]
        self._connect(requester.region, self.regions.requests[1])
        self._connect(self.regions.answers[1], requester.region_answer)
        fetches = requester.fetch
        if self.config.packet_interval <= 8:
            # The next packet's region is looked up while this one is handed to bind, word by word.
            fetches = self._registered("fetch_register", fetches)
        self._connect(fetches, fetch.fetch)
        self._connect(fetch.axi, wiring.flipped(nic.memory_read))
        self._connect(fetch.packet, bind.packet)
        self._connect(fetch.ready, bind.ready)
        self._connect(bind.plan, transmitter.plan)
        self._connect(self._registered("sent_register", bind.sent), requester.sent)
        self._connect(transmitter.free, fetch.free)
        m.d.comb += [
            fetch.read_slot.eq(transmitter.read_slot),
            fetch.read_beat.eq(transmitter.read_beat),
            transmitter.read_data.eq(fetch.read_data),
            bind.image_read.eq(transmitter.image_read),
            bind.image_row.eq(transmitter.image_row),
            bind.image_word.eq(transmitter.image_word),
            transmitter.image_data.eq(bind.image_data),
            bind.image_done.eq(transmitter.image_done),
            bind.image_done_row.eq(transmitter.image_done_row),
        ]
        for plane in range(self.config.planes):
            self._connect(transmitter.ports[plane], wiring.flipped(getattr(nic, f"transmit_{plane}")))

    def _paths(self) -> None:
        """What feedback and probes say of paths, and the next time at which anything is due."""
        m, nic = self.module, self.nic
        requester, bind, prober = self.requester, self.bind, self.prober
        # The prober's are few and far between.
        first, second = prober.operation, requester.path
        m.d.comb += [
            bind.operation.valid.eq(first.valid | second.valid),
            bind.operation.payload.eq(Mux(first.valid, first.payload, second.payload)),
            first.ready.eq(bind.operation.ready),
            second.ready.eq(bind.operation.ready & ~first.valid),
        ]
        self._connect(requester.probe_answer, prober.answer)
        self._connect(prober.probe, bind.probe)
        for name in ("scanned", "bad", "went_bad", "changed_qp", "changed_plane", "changed_index"):
            m.d.comb += getattr(prober, name).eq(getattr(bind, name))
        m.d.comb += [
            prober.now.eq(nic.now),
            requester.probe_qp.eq(prober.state_qp),
            prober.sending.eq(requester.probe_sending),
        ]
        sooner = (prober.next_deadline - requester.next_deadline)[31]
        m.d.comb += [
            nic.deadline_valid.eq(requester.deadline_valid | prober.deadline_valid),
            nic.next_deadline.eq(
                Mux(
                    prober.deadline_valid & (sooner | ~requester.deadline_valid),
                    prober.next_deadline,
                    requester.next_deadline,
                )
            ),
        ]

    def _receive(self) -> None:
        """Port to memory."""
        m, nic = self.module, self.nic
        admission, placement, tracker = self.admission, self.placement, self.tracker
        for number, plane in enumerate(self.planes):
            self._connect(wiring.flipped(getattr(nic, f"receive_{number}")), plane.port)
            self._connect(plane.record, admission.records[number])
            m.d.comb += [
                plane.now.eq(nic.now),
                plane.take.eq(placement.take[number]),
                placement.read_data[number].eq(plane.read_data),
            ]
        self._connect(admission.region, self.regions.requests[0])
        self._connect(self.regions.answers[0], admission.region_answer)
        m.d.comb += [
            admission.now.eq(nic.now),
            self.bind.peer_update.eq(admission.update),
            self.bind.peer_updates.eq(admission.updates),
            admission.region_drain.eq(self.regions.drain),
            self.regions.drained.eq(admission.region_drained),
            tracker.expected_qp.eq(admission.expected_qp),
            admission.expected_psn.eq(tracker.expected_psn),
            admission.retired.eq(tracker.retired),
            admission.retired_epoch.eq(tracker.retired_epoch),
        ]
        self._connect(admission.place, placement.place)
        self._connect(placement.placed, tracker.placed)
        self._connect(admission.state_request, tracker.state_request)
        self._connect(tracker.state_answer, admission.state_answer)
        self._connect(admission.stash, self.immediates.stash)
        self._connect(tracker.advance, self.immediates.advance)
        self._connect(admission.feedback, self.requester.feedback)
        self._spread(
            "init_broadcast",
            records.receive_init(self.config),
            admission.init,
            (tracker.init, self.immediates.init, self.sack.init, self.bind.peer_init),
        )
        self._connect(placement.write, self.writes.placement)
        self._connect(self.completions.write, self.writes.completions)
        self._connect(self.writes.write, wiring.flipped(nic.memory_write))

    def _answers(self) -> None:
        """What goes back to the peer, and completions to the host."""
        self.module.d.comb += self.sack.now.eq(self.nic.now)
        self.module.d.comb += self.sack.coming.eq(self.tracker.coming)
        self._connect(self.tracker.report, self.sack.report)
        self._connect(self.sack.snapshot, self.tracker.snapshot)
        self._connect(self.tracker.snapshot_answer, self.sack.snapshot_answer)
        self._connect(self.admission.refused, self.sack.refused)
        self._connect(self.immediates.nak, self.sack.nak)
        self._connect(self.requester.tail_probe, self.sack.tail_probe)
        self._connect(self._registered("control_register", self.sack.control), self.bind.control)
        self._connect(self.requester.completion, self.completions.sent)
        self._connect(self.immediates.completion, self.completions.received)

    def _errors(self) -> None:
        """A QP error found by one block reaches the two halves of the QP and the event queue."""
        m, layout = self.module, records.qp_error(self.config)
        sources = (
            self.requester.error_out,
            self.admission.error_out,
            self.tracker.error_out,
            self.immediates.error_out,
            self.completions.overrun,
            self.fetch.error,
        )
        event = stream.Signature(layout).flip().create()
        self._spread(
            "error_broadcast",
            layout,
            self._merge("error_arbiter", layout, sources),
            (self.requester.error_in, self.admission.error_in, event),
        )
        overrun = event.payload.reason == QpErrorReason.COMPLETION_OVERRUN
        m.d.comb += [
            self.csr.event.valid.eq(event.valid),
            event.ready.eq(self.csr.event.ready),
            self.csr.event.payload.qp.eq(event.payload.qp),
            self.csr.event.payload.reason.eq(event.payload.reason),
            self.csr.event.payload.kind.eq(Mux(overrun, EventKind.COMPLETION_OVERRUN, EventKind.QP_ERROR)),
        ]

        self._connect(self.bind.event, self.csr.ev_event)

    def _counters(self) -> None:
        sources = [block.counter for block in self.blocks.values() if hasattr(block, "counter")]
        bank = self._add("counters", CounterBank(self.config, len(sources)))
        for source, port in zip(sources, bank.events, strict=True):
            self._connect(source, port)
        self._connect(getattr(self.csr, table_port(TableId.COUNTER)), bank.table)

    def _trace(self) -> None:
        sources = [block.trace for block in self.blocks.values() if hasattr(block, "trace")]
        sources.append(self.bind.change_trace)
        merged = self._merge("trace_arbiter", records.trace_record(self.config), sources)
        self._connect(merged, wiring.flipped(self.nic.trace))
