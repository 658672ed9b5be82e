"""Small functions of a word of placed bits: what its ones are, how many, and how far they reach."""

from amaranth.hdl import Cat, Const, Value

__all__ = ["leading_ones", "looked_up", "number_of_ones", "thermometer_count"]


def looked_up(select: Value, values: list[int], width: int) -> Value:
    """Entry ``select`` of a list of constants, one small table a bit."""
    return Cat(
        Const(sum((value >> bit & 1) << n for n, value in enumerate(values)), len(values)).bit_select(
            select, 1
        )
        for bit in range(width)
    )


def leading_ones(mask: Value) -> Value:
    """The ones of a mask below its lowest zero, found by groups of four."""
    runs, whole = [], Const(1, 1)
    for first in range(0, len(mask), 4):
        group = mask[first : first + 4]
        runs += [whole & group[: n + 1].all() for n in range(4)]
        whole = whole & group.all()
    return Cat(runs)


def thermometer_count(mask: Value) -> Value:
    """Number of ones of a mask that is ones from bit 0 upwards, modulo its length.

    A bit of the number is set when the ones end inside one of the stretches in which it is set.
    """
    bits = []
    step = 1
    while step < len(mask):
        begins = range(step, len(mask), 2 * step)
        bits.append(Cat(mask[begin - 1] & ~mask[begin + step - 1] for begin in begins).any())
        step *= 2
    return Cat(bits)


def number_of_ones(mask: Value) -> Value:
    """Number of ones: groups of four from a table, their sums by a tree of adders."""
    groups = [mask[first : first + 4] for first in range(0, len(mask), 4)]
    terms: list[Value] = [
        looked_up(group, [n.bit_count() for n in range(1 << len(group))], 3) for group in groups
    ]
    while len(terms) > 1:
        pairs = [terms[n] + terms[n + 1] for n in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]
