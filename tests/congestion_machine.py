"""The congestion sequencer's instructions in Python: what its program does to the rows of a QP."""

from mrc_rtl.congestion.assembler import INVERTED, Condition, Op
from mrc_rtl.congestion.program import START, program
from mrc_rtl.congestion.rows import BYTES, ROW_BITS, TICKS, UNITS, Row
from mrc_rtl.records import CongestionKind

WIDTH = 44


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def doubled(value):
    """One place to the left; what leaves below the sign stays seen in bit 41."""
    if value < 0:
        return signed(value << 1, WIDTH)
    return value << 1 & (1 << 41) - 1 | (value >> 40 & 7 != 0) << 41


class Machine:
    """Rows of one QP, and the packets that may leave more than have left (``more``)."""

    def __init__(self, rows):
        self.rows = list(rows)
        self.code = program()
        self.more = 0
        self.cycles = 0

    def start(self, now):
        self.run(START, now=now)

    def sent(self, size):
        self.run(CongestionKind.SENT, sent=size)

    def sack(self, now, units, ecn, rtt, penalty, restore):
        self.run(
            CongestionKind.SACK, now=now, units=units, marked=ecn, rtt=max(rtt, 0), sampled=rtt >= 0,
            penalty=penalty, restore=restore,
        )  # fmt: skip

    def nack(self, now, size, trimmed):
        self.run(CongestionKind.NACK, now=now, size=size, marked=trimmed)

    def loss(self, now, size):
        self.run(CongestionKind.LOSS, now=now, size=size, marked=True)

    def idle(self):
        self.run(CongestionKind.IDLE)

    def run(self, kind, **event):
        get = event.get
        fields = {
            Row.EVENT_UNITS: get("units", 0) << UNITS,
            Row.EVENT_RTT: get("rtt", 0) << TICKS,
            Row.EVENT_NOW: (get("now", 0) & 0xFFFF) << TICKS,
            Row.EVENT_SIZE: get("size", 0) << BYTES,
            Row.EVENT_SENT: get("sent", 0) << BYTES,
            Row.EVENT_PENALTY: get("penalty", 0) << 9,
        }
        holds = {
            Condition.MARKED: bool(get("marked")),
            Condition.SAMPLED: bool(get("sampled")),
            Condition.RESTORE: bool(get("restore")),
            Condition.PENALTY: get("penalty", 0) != 0,
            Condition.NACK: kind == CongestionKind.NACK,
            Condition.ALWAYS: True,
        }
        place, a, v, count, negative = int(kind), 0, 0, 0, False
        self.more = self.cycles = 0
        while True:
            this = self.code[place]
            place += 1
            self.cycles += 1
            assert self.cycles < 1000
            r = 0
            if this.op is not Op.JMP:
                r = signed(self.rows[this.target & 63] | fields.get(this.target, 0), ROW_BITS)
            total = signed(a + (r if this.op in (Op.ADD, Op.TAKE) else -r), WIDTH)
            match this.op:
                case Op.ADD | Op.SUB:
                    a, negative = total, total < 0
                case Op.SUBP:
                    a, negative = max(total, 0), total < 0
                case Op.SUBN:
                    a, negative = min(total, 0), total < 0
                case Op.ST | Op.STH | Op.STK:
                    self.rows[this.target] = a >> (8 if this.op is Op.STH else 0) & (1 << ROW_BITS) - 1
                    a = a if this.op is Op.STK else 0
                case Op.LDV:
                    v = r >> 8 & 0xFF_FFFF
                case Op.CNT:
                    count = this.target
                case Op.MUL | Op.SHL:
                    for step in range(count):
                        bit = this.op is Op.MUL and v >> 23 - step & 1
                        a = signed(a + (r if bit else 0), WIDTH)
                        if step < count - 1:
                            a = doubled(a)
                    self.cycles += count
                case Op.DIV:
                    assert 0 <= a < 1 << 40 and count == 40 and v
                    a //= v
                    self.cycles += count
                case Op.TAKE:
                    if total < 0:
                        a = total
                        self.more += this.target & 7
                case Op.JMP:
                    condition = this.condition & 7
                    value = negative if condition == Condition.NEGATIVE else holds[Condition(condition)]
                    if value != bool(this.condition & INVERTED):
                        place = this.target
                case Op.END:
                    return
