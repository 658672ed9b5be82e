"""Table commands of a model NIC: which part owns a table, and when a command is done.

Most commands are done at once. One that resets or starts the receive side of a QP, and one that changes a
memory region, waits until the packets in flight are in memory, as in the gateware.

Source: profile.md 5 and 7; :mod:`mrc_rtl.tables`.
"""

from __future__ import annotations

from collections.abc import Callable

from librt.vecs import vec
from mypy_extensions import i64

from mrc_host.model.notices import Notices
from mrc_host.model.regions import MemoryRegions
from mrc_host.model.responder import ModelResponder
from mrc_host.model.rings import CompletionRings
from mrc_host.model.shell import Requester
from mrc_host.model.templates import TemplateTable
from mrc_rtl.config import NicConfig
from mrc_rtl.tables import TABLES, ControlTableId, QpState, TableId

__all__ = ["TableCommands"]

_TABLES: dict[int, TableId | ControlTableId] = {int(table): table for table in (*TableId, *ControlTableId)}


class TableCommands:
    """Carries out table commands.

    Parameters
    ----------
    config : NicConfig
    regions, rings, templates, notices, responder, requester
        Owners of tables.
    counters : vec of int
        Table COUNTER.
    finish : callable
        Gets the words of a finished command, None for a refused one.

    Attributes
    ----------
    waiting : bool
        A command waits for packets in flight; :meth:`retry` looks again.
    """

    def __init__(
        self,
        config: NicConfig,
        regions: MemoryRegions,
        rings: CompletionRings,
        templates: TemplateTable,
        notices: Notices,
        responder: ModelResponder,
        requester: Requester,
        counters: vec[i64],
        finish: Callable[[list[int] | None], None],
    ) -> None:
        self._config = config
        self._regions = regions
        self._rings = rings
        self._templates = templates
        self._notices = notices
        self._responder = responder
        self._requester = requester
        self._counters: vec[i64] = counters
        self._finish = finish
        self._posted: list[int] = [0] * config.qps
        self._requests: list[dict[str, int]] = [{} for _ in range(config.qps * config.send_queue_depth)]
        self._pending: tuple[int, dict[str, int], bool] = (0, {}, False)
        self.waiting: bool = False

    def start(self, table: int, index: int, write: bool, words: list[int], count: int) -> None:
        """Begin a command."""
        known = _TABLES.get(table)
        if known is None:
            self._finish(None)
        elif write:
            self._write(known, index, words)
        else:
            found = self._read(known, index)
            self._finish(None if found is None else (found + [0] * count)[:count])

    def post(self, qp: int, count: int) -> None:
        """A send doorbell rang."""
        depth = self._config.send_queue_depth
        for _ in range(min(count, depth)):
            slot = self._posted[qp] % depth
            self._posted[qp] += 1
            row = self._requests[qp * depth + slot]
            if row:
                self._requester.post(qp, row)

    def retry(self) -> None:
        """Finish the command that waits when nothing it waits for is in flight any more."""
        index, fields, receive = self._pending
        if receive:
            if self._responder.qps[index].in_flight:
                return
            self.waiting = False
            self._responder.write_row(index, fields)
        else:
            if self._regions.in_flight[index]:
                return
            self.waiting = False
            self._regions.write(index, fields)
        self._finish([])

    # -- writing -----------------------------------------------------------------------------------------

    def _write(self, table: TableId | ControlTableId, index: int, words: list[int]) -> None:
        if table is TableId.TEMPLATE:
            self._done(self._templates.write(index, words))
            return
        if table is TableId.COUNTER:
            self._finish(None)
            return
        fields = TABLES[table].unpack(words[: TABLES[table].write_words])
        if table is TableId.QP_RECEIVE:
            self._write_receive(index, fields)
        elif table is TableId.MEMORY_REGION:
            self._write_region(index, fields)
        else:
            self._done(self._write_fields(table, index, fields))

    def _write_fields(self, table: TableId | ControlTableId, index: int, fields: dict[str, int]) -> bool:
        """Tables whose commands are done at once."""
        config, responder = self._config, self._responder
        if table is TableId.SEND_REQUEST:
            if index >= len(self._requests):
                return False
            self._requests[index] = fields
            return True
        if table is TableId.RECEIVE_REQUEST:
            qp, slot = divmod(index, config.receive_queue_depth)
            if qp >= config.qps:
                return False
            responder.qps[qp].requests[slot] = fields["wr_id"]
            return True
        if table is TableId.COMPLETION_QUEUE:
            return self._rings.write(index, fields)
        if table is ControlTableId.DEVICE:
            return self._notices.write(index, fields)
        if index >= config.qps and table in (TableId.QP_SEND, ControlTableId.QP_OPTION):
            return False
        if not self._requester.write_row(table, index, fields):
            return False
        if table is TableId.QP_SEND and fields["state"] == QpState.RESET:
            self._posted[index] = 0
            responder.qps[index].set_limits(0, 0)
        elif table is ControlTableId.QP_OPTION:
            responder.qps[index].set_limits(fields["own_mpr_psns"], fields["own_max_immediates"])
        return True

    def _write_receive(self, index: int, fields: dict[str, int]) -> None:
        if index >= self._config.qps or fields["state"] > QpState.ERROR:
            self._finish(None)
        elif self._responder.stop(index, fields["state"]):
            self._done(self._responder.write_row(index, fields))
        else:
            self._pending, self.waiting = (index, fields, True), True

    def _write_region(self, index: int, fields: dict[str, int]) -> None:
        row = self._regions.read(index)
        if row is None:
            self._finish(None)
        elif self._regions.in_flight[index]:
            # No new packet may use the old key while the command waits for those in flight.
            self._regions.write(index, {**row, "valid": 0})
            self._pending, self.waiting = (index, fields, False), True
        else:
            self._done(self._regions.write(index, fields))

    def _done(self, good: bool) -> None:
        self._finish([] if good else None)

    # -- reading -----------------------------------------------------------------------------------------

    def _read(self, table: TableId | ControlTableId, index: int) -> list[int] | None:
        if table is TableId.TEMPLATE:
            return self._templates.read(index)
        if table is TableId.COUNTER:
            return [int(self._counters[index]) & 0xFFFF_FFFF] if index < len(self._counters) else None
        fields = self._read_fields(table, index)
        if fields is None:
            return None
        description = TABLES[table]
        return description.pack(**{name: fields[name] for name in fields if _has(table, name)})

    def _read_fields(self, table: TableId | ControlTableId, index: int) -> dict[str, int] | None:
        config, responder = self._config, self._responder
        if table is TableId.QP_RECEIVE:
            return responder.qps[index].row() if index < config.qps else None
        if table is TableId.MEMORY_REGION:
            return self._regions.read(index)
        if table is TableId.SEND_REQUEST:
            return self._requests[index] if index < len(self._requests) else None
        if table is TableId.RECEIVE_REQUEST:
            qp, slot = divmod(index, config.receive_queue_depth)
            return {"wr_id": responder.qps[qp].requests[slot]} if qp < config.qps else None
        if table is TableId.COMPLETION_QUEUE:
            return self._rings.read(index)
        if table is ControlTableId.DEVICE:
            return self._notices.read(index)
        return self._requester.read_row(table, index)


def _has(table: TableId | ControlTableId, name: str) -> bool:
    return any(field.name == name for field in TABLES[table].fields)
