"""The examples of docs/packets.md hold.

Sweep: the Python example, the encode example, the EV examples.
Stimulus: the text of the page.
Checks: what the page prints is what the commands print.
Timing: none.
"""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from mrc_host.packets.commands import ev, packet

PAGE = (Path(__file__).parents[2] / "docs" / "packets.md").read_text()


def command(text: str) -> str:
    """What stands on the page behind a command, up to the next command or the end of the block."""
    found = re.search(re.escape(f"$ {text}\n") + r"(.*?)\n(?:\$ |```)", PAGE, re.DOTALL)
    assert found, text
    return found[1]


def test_python():
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    names: dict[str, object] = {}
    exec(compile(found[1], "docs/packets.md", "exec"), names)
    assert names["packet"].problems == []
    assert names["info"].payload_len == 5


def test_encode(tmp_path):
    file = tmp_path / "ack.json"
    file.write_text(command("cat ack.json"))
    result = CliRunner().invoke(packet, ["encode", str(file)])
    assert result.output.strip() == command("mrc packet encode ack.json")


def test_expand(tmp_path):
    file = tmp_path / "tiers.json"
    file.write_text(command("cat tiers.json"))
    for values in ("2a3 01b", "2af"):
        result = CliRunner().invoke(ev, ["expand", "--profile", str(file), *values.split()])
        shown = command(f"mrc ev expand --profile tiers.json {values}")
        assert result.output.strip().endswith(shown)
        assert result.exit_code == (2 if shown.startswith("Error") else 0)
