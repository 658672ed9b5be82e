"""A device that is nothing but registers, tables and host memory, to test what software writes and reads.

Tables keep what is written. What a device would say of itself (read-only fields, notices, completions,
events) is put there by the test. With ``flags`` None it has no table behind the controller API, as the
gateware.
"""

from __future__ import annotations

import numpy as np

from mrc_host.nic.base import NEVER, Nic, Outputs, RegisterError, RegisterRead, Statistics
from mrc_rtl.config import NicConfig
from mrc_rtl.registers import RegisterKind, constant_value, register_map
from mrc_rtl.tables import (
    CQE,
    EV_ORDER,
    EV_ORDER_INDEX,
    EV_POLICY,
    EV_POLICY_INDEX,
    NOTICE,
    TABLES,
    ControlTableId,
    DeviceFlag,
    EndpointStatus,
    TableId,
)

CONFIG = NicConfig(
    planes=2, clock_ps=4_000, mtu=1024, qps=4, evs_per_plane=8, ev_profiles=4, send_queue_depth=64,
    receive_queue_depth=16, memory_regions=8, completion_queues=4, congestion_control=True, go_back_n=True,
)  # fmt: skip
#: A device that can do everything and has no restriction.
FULL = DeviceFlag(sum(DeviceFlag)) & ~DeviceFlag.EV_EXPLICIT_RANGE
ENTRY_BYTES = 32


class RegisterNic(Nic):
    """See the module's text."""

    def __init__(self, flags=FULL, config=CONFIG, align=2, slots=4, cc_profiles=2):
        self.config = config
        self.memory = np.zeros(1 << 20, dtype=np.uint8)
        self.registers = register_map()
        self.words: dict[int, int] = {}
        self.tables: dict[tuple[int, int], dict[str, int]] = {}
        self.events: list[dict[str, int]] = []
        self.controlled = flags is not None
        self.refused: set[tuple[int, int]] = set()
        self.watches: dict[int, tuple[int, int]] = {}
        self.written: list[tuple[int, int]] = []
        self.link_up = (1 << config.planes) - 1
        self._time = 0
        self._scheduled: list[tuple[int, int, int, int | None]] = []
        self._error = 0
        self._produced = 0
        self._undelivered = 0
        for register in self.registers:
            if register.kind is RegisterKind.CONSTANT:
                self.words[register.offset] = constant_value(register, config)
        if self.controlled:
            self.tables[ControlTableId.DEVICE, 0] = {
                "flags": int(flags), "ev_count_align": align, "endpoint_slots": slots,
                "cc_profiles": cc_profiles,
            }  # fmt: skip

    # -- what the test does as the device ----------------------------------------------------------------

    def row(self, table, index=0):
        """Fields of a table's entry as they were written last."""
        return self.tables.setdefault((table, index), {})

    def notice(self, **fields):
        """Write a notice; it is dropped when the ring is full."""
        ring = self.row(ControlTableId.DEVICE)
        entries = 1 << ring["notice_log2_entries"]
        if self._produced - ring["notice_consumer"] >= entries:
            self._undelivered += 1
            return
        lap, place = divmod(self._produced, entries)
        words = NOTICE.pack(**fields, dropped=self._undelivered, phase=1 - lap % 2)
        self._undelivered = 0
        self._put(ring["notice_base"] + place * ENTRY_BYTES, words)
        self._produced += 1

    def complete(self, queue, number, **fields):
        """Write the completion of that number into a queue's ring."""
        ring = self.row(TableId.COMPLETION_QUEUE, queue)
        lap, place = divmod(number, 1 << ring["log2_entries"])
        self._put(ring["base"] + place * ENTRY_BYTES, CQE.pack(**fields, phase=1 - lap % 2))

    def _put(self, address, words):
        content = b"".join(word.to_bytes(8, "little") for word in words)
        self.memory[address : address + len(content)] = np.frombuffer(content, dtype=np.uint8)

    # -- registers ---------------------------------------------------------------------------------------

    def read32(self, address):
        if address == self.registers["command_status"].offset:
            return self._error << 1
        if address == self.registers["port_status"].offset:
            return self.link_up
        if address == self.registers["event"].offset:
            return self.registers["event"].pack(**self.events.pop(0), valid=1) if self.events else 0
        return self.words.get(address, 0)

    def write32(self, address, value):
        self.words[address] = value
        if address == self.registers["command"].offset:
            command = self.registers["command"].unpack(value)
            self._error = int(not self._command(**command))

    def _command(self, table, write, count, index):
        known = {int(item): item for item in (*TableId, *(ControlTableId if self.controlled else ()))}
        if table not in known or (table, index) in self.refused:
            return False
        description = TABLES.get(known[table])
        if table == TableId.EV_SET and index >= EV_POLICY_INDEX:
            description = EV_POLICY if index < EV_ORDER_INDEX else EV_ORDER
        entry = self.row(table, index)
        data = self.registers["data"].offset
        if not write:
            words = description.pack(**entry) if description else [entry.get(n, 0) for n in range(16)]
            for number in range(count):
                self.words[data + 8 * number] = words[number] & 0xFFFFFFFF
                self.words[data + 8 * number + 4] = words[number] >> 32
            return True
        if table == ControlTableId.ENDPOINT_OPERATION and entry.get("status") == EndpointStatus.WAITING:
            return False
        words = [
            self.words.get(data + 8 * n, 0) | self.words.get(data + 8 * n + 4, 0) << 32 for n in range(count)
        ]
        self.written.append((table, index))
        if description is None:
            entry.update(enumerate(words))
            return True
        fields = description.unpack(words)
        entry.update({f.name: fields[f.name] for f in description.fields if not f.read_only})
        if table == ControlTableId.ENDPOINT_OPERATION:
            entry["status"] = EndpointStatus.WAITING
        if table == ControlTableId.EV_ENTRY:
            self.tables[TableId.EV_VALUE, index] = {name: fields[name] for name in ("value", "port")}
        return True

    # -- the rest of a NIC -------------------------------------------------------------------------------

    @property
    def time_ps(self):
        return self._time

    @property
    def next_activity_ps(self):
        return NEVER

    @property
    def statistics(self):
        return Statistics()

    def run(self, until_ps):
        outputs = Outputs()
        for time_ps, address, number, is_read in sorted(self._scheduled, key=lambda item: item[0]):
            if is_read:
                outputs.reads.append(RegisterRead(time_ps, number, address, self.read32(address)))
            else:
                self.write32(address, number)
        self._scheduled.clear()
        self._time = until_ps
        return outputs

    def schedule_write(self, time_ps, address, value):
        self._scheduled.append((time_ps, address, value, False))

    def schedule_read(self, time_ps, address, tag):
        self._scheduled.append((time_ps, address, tag, True))

    def schedule_link(self, time_ps, port, up):
        self.link_up = self.link_up & ~(1 << port) | up << port

    def deliver(self, port, time_first_bit_ps, frame, bad_fcs=False):
        raise RegisterError("a device without ports takes no frames")

    def watch(self, tag, address, length):
        self.watches[tag] = (address, length)

    def unwatch(self, tag):
        del self.watches[tag]

    def settle(self, limit_cycles=100_000):
        """Nothing to wait for."""

    def close(self):
        """Nothing to free."""
