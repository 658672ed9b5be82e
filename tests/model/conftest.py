"""Lets the tests of the model import what they share, and says what random histories met."""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

SEEN = "seen "


def pytest_terminal_summary(terminalreporter):
    """Show how often what happened, over all histories of the session: a gap shows as a missing line."""
    seen = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, count in report.user_properties:
            if name.startswith(SEEN):
                seen[name.removeprefix(SEEN)] += count
    if seen:
        terminalreporter.section("what the histories met")
        for name, count in sorted(seen.items()):
            terminalreporter.write_line(f"{count:>10}  {name}")
