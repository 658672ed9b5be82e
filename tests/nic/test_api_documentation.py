"""docs/api.md runs from top to bottom, and docs/api-coverage.md leaves nothing out.

Sweep: every block of the page; every attribute, state, flag and error of the API.
Stimulus: the text of the pages.
Checks: the assertions of the page; each name of the API has a row, each row a test that exists.
Timing: simulated time of the page.
"""

import re
from dataclasses import fields
from pathlib import Path

from mrc_host.nic import device
from mrc_host.nic.capabilities import Capabilities
from mrc_host.nic.qp_attributes import UNSUPPORTED_VERBS, attribute_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
TABLE = (ROOT / "docs" / "api-coverage.md").read_text()
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|.*\| `(?P<file>[\w/.]+)::(?P<test>\w+)` \|$", re.MULTILINE)
#: Classes of which every field is a row, by the name that stands before it.
OBJECTS = {
    "capabilities": Capabilities, "settings": device.Settings, "identity": device.Identity,
    "endpoint": device.Endpoint, "endpoint.region": device.RemoteRegion, "hint": device.QpHint,
    "retry": device.Retry, "wr": device.WriteRequest, "wc": device.WorkCompletion, "nscc": device.NsccConfig,
    "ev_key": device.EvKey, "ev_field": device.EvField, "ev_replacement": device.EvReplacement,
    "ev_state_change": device.EvStateChange, "ev_array_entry": device.EvArrayEntry,
    "ev_event": device.EvEvent, "request": device.EndpointRequest, "result": device.EndpointResult,
    "port": device.PortAttributes, "event": device.AsyncEvent, "qp_status": device.QpStatus,
    "path": device.Path,
}  # fmt: skip
#: Enumerations of which every member is a row.
STATES = {"ProfileState": device.ProfileState} | {
    kind.__name__: kind
    for kind in (
        device.Access, device.CompletionStatus, device.DeviceFlag, device.EndpointOperation,
        device.EndpointStatus, device.EventKind, device.EvEventMask, device.EvFlag, device.EvFormatMode,
        device.EvMode, device.EvState, device.PortState, device.QpErrorReason,
        device.QpState, device.WorkRequestOpcode,
    )
}  # fmt: skip


def test_every_block_of_the_page_runs():
    names = {}
    blocks = [(match.start(), match[1]) for match in re.finditer(r"```python\n(.*?)```", PAGE, re.DOTALL)]
    assert len(blocks) > 10
    for start, block in blocks:
        # Blank lines before it: a failure names the line of the page.
        lines = PAGE[:start].count("\n") + 1
        exec(compile("\n" * lines + block, "docs/api.md", "exec"), names)
    assert names["pair_b"].state is device.QpState.ERROR


def expected_names():
    """Everything that must have a row."""
    names = set()
    for prefix, kind in OBJECTS.items():
        names |= {f"{prefix}.{field.name}" for field in fields(kind)}
    names |= {
        f"capabilities.{name}" for name, value in vars(Capabilities).items() if isinstance(value, property)
    }
    for name, kind in STATES.items():
        names |= {f"{name}.{member}" for member in kind.__members__}
    names |= {"ev_query.done", "ev_query.success", "ev_batch_error.number", "ev_batch_error.success"}
    names |= {f"qp.{name}" for name in (*attribute_names(), *UNSUPPORTED_VERBS)}
    for kind in (device.EvFormat, device.EvProfile, device.CcProfile):
        names |= {f"{kind.kind}.{name}" for name in kind.names}
    sources = (ROOT / "host" / "mrc_host" / "nic").glob("*.py")
    text = "\n".join(source.read_text() for source in sources)
    names |= set(re.findall(r'VerbsError\(\s*"(E[A-Z]+)"', text))
    return names


def test_the_table_leaves_nothing_out():
    rows = [match["name"] for match in ROW.finditer(TABLE)]
    assert len(rows) == len(set(rows))
    assert expected_names() - set(rows) == set()
    assert set(rows) - expected_names() == set()


def test_every_test_in_the_table_exists():
    lines = [line for line in TABLE.splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROW.findall(TABLE))
    for match in ROW.finditer(TABLE):
        source = (ROOT / match["file"]).read_text()
        assert re.search(rf"^(async )?def {match['test']}\(", source, re.MULTILINE), match[0]
