"""The drawing of a topology and the command that writes it.

Sweep: quickstart, star, overridden links, 256 hosts; random topologies; files with one fault each.
Stimulus: topologies and YAML files, the command through click's runner.
Checks: well-formed SVG, every shown node and delay is named, nothing lies outside the picture, messages with
file, line and key.
Timing: none.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given, settings

from fabric.traffic import quickstart, specs, star
from mrc_host.errors import ConfigError, MrcError
from mrc_host.fabric.commands import topology as command
from mrc_host.fabric.draw import delay_text, rate_text, topology_svg
from mrc_host.fabric.load import load_topology
from mrc_host.fabric.spec import TopologySpec
from mrc_host.fabric.topology import Topology

SVG = "{http://www.w3.org/2000/svg}"

QUICKSTART = """\
hosts: 4
planes: 4
t0_per_plane: 2
t1_per_plane: 2
rate_gbps: 6.25
t1_link_delay_ns: [1000, 5000]
"""


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_quickstart_names_everything() -> None:
    found = texts(topology_svg(quickstart()))
    assert found[0] == "4 hosts × 4 planes"
    assert "bisection 50 Gb/s" in found[1]
    for plane in range(4):
        assert found.count(f"plane {plane}") == 1
    for name in ("T0 1", "T0 2", "T1 1", "T1 2", "h0", "h1", "h2", "h3", "5 µs"):
        assert found.count(name) == 4, name
    assert found[-2:] == ["1 µs, 6.25 Gb/s", "5 µs, 6.25 Gb/s"]


def test_lines_carry_name_delay_and_rate() -> None:
    topology = quickstart(links=[{"link": "h3-p1.t0.2", "delay_ns": 350.5}])
    root = ElementTree.fromstring(topology_svg(topology))
    titles = [line.findtext(f"{SVG}title") for line in root.iter(f"{SVG}line")]
    for link in topology.links:
        assert f"{link.name}: {delay_text(link.delay_ps)}, {rate_text(link.rate_gbps)}" in titles
    assert "350.5 ns" in texts(topology_svg(topology))


def test_patterns_differ_by_delay_and_the_commonest_is_solid() -> None:
    root = ElementTree.fromstring(topology_svg(quickstart()))
    dashes = {
        (line.findtext(f"{SVG}title") or "").split(": ")[-1]: line.get("stroke-dasharray")
        for line in root.iter(f"{SVG}line")
    }
    assert dashes["1 µs, 6.25 Gb/s"] == "none"
    assert dashes["5 µs, 6.25 Gb/s"] != "none"


def test_large_topologies_are_shortened() -> None:
    spec = TopologySpec(hosts=256, planes=8, t0_per_plane=16, t1_per_plane=16, rate_gbps=100)
    found = texts(topology_svg(Topology(spec)))
    assert found.count("…") == 2 * 8
    assert found.count("h0–h15") == 8
    assert found.count("h240–h255") == 8
    assert len(found) < 250


def test_star_and_singular() -> None:
    found = texts(topology_svg(star(9)))
    assert found[0] == "9 hosts × 1 plane"
    assert not any(text.startswith("T1") for text in found)


@settings(max_examples=30, deadline=None)
@given(specs())
def test_everything_lies_inside_the_picture(spec: TopologySpec) -> None:
    root = ElementTree.fromstring(topology_svg(Topology(spec)))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    lanes = [
        element
        for element in root.iter(f"{SVG}g")
        if (element.get("transform") or "").startswith("translate")
    ]
    assert len(lanes) == spec.planes
    for lane in lanes:
        left, top = map(float, (lane.get("transform") or "")[len("translate(") : -1].split())
        frame = lane.find(f"{SVG}rect")
        assert frame is not None
        lane_width, lane_height = float(frame.get("width", "0")), float(frame.get("height", "0"))
        assert left >= 0 and left + lane_width <= width
        assert top >= 0 and top + lane_height <= height
        for rect in lane.iter(f"{SVG}rect"):
            x, y = float(rect.get("x", "0")), float(rect.get("y", "0"))
            assert 0 <= x and x + float(rect.get("width", "0")) <= lane_width
            assert 0 <= y and y + float(rect.get("height", "0")) <= lane_height


def test_units_of_texts() -> None:
    assert delay_text(5_000_000) == "5 µs"
    assert delay_text(1_250_000) == "1.25 µs"
    assert delay_text(350_500) == "350.5 ns"
    assert rate_text(6.25) == "6.25 Gb/s"


# -- files and the command -------------------------------------------------------------------------------


def test_draw_writes_beside_and_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(QUICKSTART)
    runner = CliRunner()
    result = runner.invoke(command, ["draw", "small.yaml"])
    assert (result.exit_code, result.output) == (0, "wrote small.svg\n")
    assert (tmp_path / "small.svg").read_text() == topology_svg(quickstart())
    result = runner.invoke(command, ["draw", "small.yaml", "--out", "other.svg"])
    assert result.output == "wrote other.svg\n"
    assert (tmp_path / "other.svg").exists()
    result = runner.invoke(command, ["draw", "small.yaml", "--out", "-"])
    assert result.output == topology_svg(quickstart())


def test_topology_of_an_experiment(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    indented = "".join(f"  {line}\n" for line in QUICKSTART.splitlines())
    file.write_text(f"name: one\nfabric:\n{indented}workload: {{}}\n")
    assert topology_svg(load_topology(file)) == topology_svg(quickstart())
    file.write_text(f"name: one\nfabric:\n{indented.replace('planes: 4', 'planes: 9')}")
    with pytest.raises(ConfigError) as error:
        load_topology(file)
    wanted = f"{file}:4: fabric.planes must be a whole number between 1 and 8, got 9"
    assert str(error.value) == wanted


def test_example_of_the_documentation_is_a_topology(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "fabric-model.md").read_text()
    file = tmp_path / "example.yaml"
    file.write_text(page.split("```yaml\n")[1].split("```")[0])
    topology = load_topology(file)
    assert topology.t1_link(0, 1, 2).rate_gbps == 1.5625
    assert topology.host_link(3, 3).delay_ps == 2_000_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("planes: 4", "planes: four"), ":2: planes must be a whole number between 1 and 8, got 'four'"),
        (("hosts: 4", "hosts: 5"), ":3: t0_per_plane must be a divisor of hosts = 5, got 2"),
        (
            ("rate_gbps", "rate_mbps"),
            ":5: rate_mbps must be a known key: hosts, planes, t0_per_plane, t1_per_plane, rate_gbps, "
            "t1_rate_gbps, host_link_delay_ns, t1_link_delay_ns, queue_bytes, control_queue_bytes, "
            "retransmission_queue_bytes, control_share_percent, ecn, trimming, ecmp_hash, "
            "ecmp_convergence_us, switch_latency_ns, links, got 'rate_mbps'",
        ),
        (
            ("[1000, 5000]", "[1000]\nlinks:\n- {link: nowhere, delay_ns: 3}"),
            ":6: t1_link_delay_ns must be one number or a list of t1_per_plane = 2 numbers, got [1000.0]",
        ),
        (
            ("[1000, 5000]", "1000\nlinks:\n- {link: nowhere, delay_ns: 3}"),
            ":8: links.0.link must be the name of a link, such as h0-p0.t0.1 or p3.t0.2-p3.t1.2, "
            "or a pattern that matches one, got 'nowhere'",
        ),
    ],
)
def test_messages_have_file_line_and_key(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    file = tmp_path / "wrong.yaml"
    assert change[0] in QUICKSTART
    file.write_text(QUICKSTART.replace(*change))
    with pytest.raises(ConfigError) as error:
        load_topology(file)
    assert str(error.value) == f"{file}{message}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hosts: [1", r"wrong\.yaml:1: must be valid YAML, got: "),
        ("hosts: 1\nhosts: 2\n", r"wrong\.yaml:2: must be valid YAML, got: found duplicate key"),
        ("- 1\n", r"wrong\.yaml: the file must be a mapping of keys to values, got \[1\]"),
        ("fabric: 3\n", r"wrong\.yaml:1: fabric must be a mapping of keys to values, got 3"),
        (b"\xff", r"wrong\.yaml: must be a readable text file, got: "),
    ],
)
def test_files_that_are_no_topology(tmp_path: Path, content: str | bytes, message: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(MrcError, match=message):
        load_topology(file)


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(QUICKSTART)
    result = CliRunner().invoke(command, ["draw", str(file), "--out", str(tmp_path / "no" / "x.svg")])
    assert isinstance(result.exception, MrcError)
    assert "must be a file that can be written" in str(result.exception)
