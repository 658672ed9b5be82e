"""Instructions of the congestion sequencer, and how a program of them is put together."""

from dataclasses import dataclass, field
from enum import IntEnum

from amaranth.lib import data

from .rows import Row

__all__ = [
    "INVERTED",
    "PROGRAM_LENGTH",
    "Condition",
    "Instruction",
    "Op",
    "Program",
    "ProgramError",
    "instruction_word",
]

#: Most instructions: with words of at most 36 bits they fill a block RAM.
PROGRAM_LENGTH = 512


class Op(IntEnum):
    """Operations. A is the accumulator of 44 bits, R the row, M the multiplier register."""

    ADD = 0  # A + R
    SUB = 1  # A - R
    SUBP = 2  # the difference, or 0 when it is negative
    SUBN = 3  # the difference, or 0 when it is not
    ST = 4  # R = A, A = 0
    STH = 5  # R = A >> 8, A = 0
    STK = 6  # R = A
    LDV = 7  # V = R >> 8, 24 bits
    CNT = 8  # count = the row's number
    MUL = 9  # M = V, A = A x 2^(count - 1) + R x (top count bits of M)
    SHL = 10  # A = A x 2^(count - 1)
    DIV = 11  # A = A // V of 40 bits
    TAKE = 12  # when A + R < 0: A = A + R, and so many packets more may leave
    JMP = 13  # when the condition holds
    END = 14  # the event is done, A = 0


class Condition(IntEnum):
    """What a jump asks; bit 3 inverts it."""

    NEGATIVE = 0  # the last sum was negative
    MARKED = 1  # the event's flag, of NACK and LOSS whether it shrinks the window
    SAMPLED = 2
    RESTORE = 3
    PENALTY = 4  # not zero
    NACK = 5  # the event is a NACK
    ALWAYS = 6


#: Bit of a jump's condition that inverts it.
INVERTED = 8

#: What the parts of the sequencer do, by the operations in which they do it.
_FLAGS = {
    "sums": (Op.ADD, Op.SUB, Op.SUBP, Op.SUBN, Op.TAKE),
    "subtracts": (Op.SUB, Op.SUBP, Op.SUBN),
    "positive": (Op.SUBP,),
    "not_positive": (Op.SUBN,),
    "takes": (Op.TAKE,),
    "stores": (Op.ST, Op.STH, Op.STK),
    "high": (Op.STH,),
    "clears": (Op.ST, Op.STH, Op.END),
    "factor": (Op.LDV,),
    "counts": (Op.CNT,),
    "loops": (Op.MUL, Op.SHL, Op.DIV),
    "product": (Op.MUL,),
    "quotient": (Op.DIV,),
    "jumps": (Op.JMP,),
    "ends": (Op.END,),
}


def instruction_word() -> data.StructLayout:
    """An instruction in the program memory: row, count or place; condition; a flag for each thing to do."""
    return data.StructLayout({"target": 9, "condition": 3, "inverted": 1, **dict.fromkeys(_FLAGS, 1)})


class ProgramError(ValueError):
    """A program breaks a rule of the pipeline."""


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``target`` is a row, a count or a place in the program."""

    op: Op
    target: int = 0
    condition: int = 0

    @property
    def word(self) -> int:
        """As it stands in the program memory."""
        flags = {name: int(self.op in ops) for name, ops in _FLAGS.items()}
        condition = {"condition": self.condition & 7, "inverted": int(self.condition & INVERTED != 0)}
        return instruction_word().const({"target": self.target, **condition, **flags}).as_value().value


#: Operations that read their row.
READING = {Op.ADD, Op.SUB, Op.SUBP, Op.SUBN, Op.LDV, Op.MUL, Op.TAKE}
_STORING = {Op.ST, Op.STH, Op.STK}
_JUDGING = {Op.ADD, Op.SUB, Op.SUBP, Op.SUBN}


@dataclass
class Program:
    """A program under construction.

    Attributes
    ----------
    instructions : list of Instruction
    labels : dict
        Places by name.
    """

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    _jumps: list[tuple[int, str]] = field(default_factory=list)

    def label(self, name: str) -> None:
        """The next instruction has a name."""
        self.labels[name] = len(self.instructions)

    def do(self, op: Op, target: int = 0) -> None:
        """Add an instruction."""
        self.instructions.append(Instruction(op, int(target)))

    def add(self, *rows: Row) -> None:
        """Add rows to A."""
        for row in rows:
            self.do(Op.ADD, row)

    def at_most(self, row: Row) -> None:
        """A is at most the row."""
        self.do(Op.SUBN, row)
        self.do(Op.ADD, row)

    def at_least(self, row: Row) -> None:
        """A is at least the row."""
        self.do(Op.SUBP, row)
        self.do(Op.ADD, row)

    def store(self, row: Row, *more: Row) -> None:
        """Put A into a row, and zero into others."""
        for place in (row, *more):
            self.do(Op.ST, place)

    def clear(self) -> None:
        """A is 0."""
        self.do(Op.ST, Row.SECOND)

    def multiply(self, multiplier: Row, bits: int, row: Row) -> None:
        """Multiply a row by the top bits of another, 24 of them below bit 32."""
        self.do(Op.LDV, multiplier)
        self.do(Op.CNT, bits)
        self.do(Op.MUL, row)

    def shift(self, bits: int) -> None:
        """Shift A to the left."""
        self.do(Op.CNT, bits + 1)
        self.do(Op.SHL)

    def jump(self, label: str, condition: Condition = Condition.ALWAYS, wanted: bool = True) -> None:
        """Jump when a condition holds, or when it does not."""
        self._jumps.append((len(self.instructions), label))
        self.instructions.append(Instruction(Op.JMP, 0, condition | (0 if wanted else INVERTED)))

    def finish(self) -> list[Instruction]:
        """Resolve the labels and check the rules of the pipeline.

        Raises
        ------
        ProgramError
            The program is too long, reads a row in the instruction after the one that stored it, jumps on a
            sum in the instruction after it, or uses V there.
        """
        for place, label in self._jumps:
            old = self.instructions[place]
            self.instructions[place] = Instruction(old.op, self.labels[label], old.condition)
        if len(self.instructions) > PROGRAM_LENGTH:
            raise ProgramError(
                f"a program must have at most {PROGRAM_LENGTH} instructions, got {len(self.instructions)}"
            )
        for place, this in enumerate(self.instructions):
            followers = [place + 1] if not (this.op is Op.JMP and this.condition == Condition.ALWAYS) else []
            if this.op is Op.JMP:
                followers.append(this.target)
            if this.op is Op.END:
                followers = []
            for follower in followers:
                after = self.instructions[follower]
                if this.op in _STORING and after.op in READING and after.target == this.target:
                    raise ProgramError(f"{place}: row {Row(this.target).name} must not be read at once")
                judged = after.op is Op.JMP and after.condition & 7 == Condition.NEGATIVE
                if this.op in _JUDGING and judged:
                    raise ProgramError(f"{place}: a jump must not follow the sum it asks about at once")
                if this.op is Op.LDV and after.op in (Op.MUL, Op.DIV):
                    raise ProgramError(f"{place}: V must not be used at once")
        return self.instructions
