"""Patterns, and the page of definitions.

Sweep: lengths around words; seeds, flows, messages.
Stimulus: none.
Checks: patterns differ and are reproducible; the documentation shows the definitions as they are.
Timing: none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mrc_host.experiment.definitions import definitions_table
from mrc_host.experiment.pattern import guard_pattern, message_pattern

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"


@pytest.mark.parametrize("length", [1, 7, 8, 9, 4096])
def test_a_pattern_is_reproducible_and_has_its_length(length: int) -> None:
    first, second = message_pattern(1, 0, 0, length), message_pattern(1, 0, 0, length)
    assert len(first) == length
    assert np.array_equal(first, second)


def test_patterns_differ_in_practically_every_byte() -> None:
    base = message_pattern(1, 2, 3, 4096)
    for other in (
        message_pattern(2, 2, 3, 4096),
        message_pattern(1, 3, 3, 4096),
        message_pattern(1, 2, 4, 4096),
        guard_pattern(1, 3, 4096),
        np.roll(base, 8),
    ):
        assert np.count_nonzero(base == other) < 60  # 16 expected by chance


def test_a_prefix_does_not_depend_on_the_length() -> None:
    assert np.array_equal(message_pattern(1, 0, 0, 13), message_pattern(1, 0, 0, 4096)[:13])


def test_the_documentation_shows_the_definitions() -> None:
    assert definitions_table() in PAGE.read_text()
