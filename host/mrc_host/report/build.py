"""Makes ``report.html`` and ``plots/`` from the files of a run directory, and from nothing else."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from mrc_host.errors import InfrastructureError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.summary import limits_text, value_text, waiting_lines
from mrc_host.fabric.draw import topology_svg
from mrc_host.report.chart import CHART_STYLE
from mrc_host.report.congestion import rtt_figure, window_figure
from mrc_host.report.data import RunData, read_run
from mrc_host.report.entropy import share_figure
from mrc_host.report.faults import fault_rows
from mrc_host.report.figure import Figure
from mrc_host.report.ordering import depth_figure, latency_figure, overtaking_figure
from mrc_host.report.paths import ev_map_figure, ev_state_figure
from mrc_host.report.throughput import completion_figure, goodput_figure, queue_figure
from mrc_host.report.zoom import zoom_figures

__all__ = ["make_report"]

REPORT = "report.html"
SIMILARITY = (
    "window_packets",
    "evs_per_window",
    "buffer_over_bdp",
    "rto_over_rtt",
    "skew_over_rtt",
    "reverse_share",
)
CHANGED_BY_SWITCHES = (("frames marked by switches", "marked"), ("frames trimmed by switches", "trimmed"))
ENGINE_COUNTERS_SHOWN_WHEN_ZERO = {
    "completion_overrun",
    "events_dropped",
    "timeouts",
    "read_errors",
    "write_errors",
}


def make_report(path: Path) -> Path:
    """Make the report of a run directory.

    Parameters
    ----------
    path : Path
        The directory; plots and report in it are replaced.

    Returns
    -------
    Path
        The report.

    Raises
    ------
    MrcError
        It is not the directory of a measured run.
    InfrastructureError
        A file cannot be read or written.
    """
    data = read_run(path)
    figures = _figures(data)
    try:
        folder = path / "plots"
        folder.mkdir(exist_ok=True)
        for figure in figures:
            (folder / f"{figure.name}.svg").write_text(figure.standalone_svg(), encoding="utf-8")
            if figure.columns:
                (folder / f"{figure.name}.csv").write_text(figure.csv_text(), encoding="utf-8")
        target = path / REPORT
        temporary = path / f".{REPORT}.part"
        temporary.write_text(_page(data, figures), encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        raise InfrastructureError(f"{path} must be a directory that can be written, got: {error}") from error
    return target


def _figures(data: RunData) -> list[Figure]:
    return [
        Figure(
            "topology",
            "Topology",
            "Switches and hosts of every plane. Hosts appear once in each plane: they have a port in all.",
            topology_svg(data.topology),
            ["link", "rate_gbps", "delay_ns"],
            [[link.name, link.rate_gbps, link.delay_ps / 1000] for link in data.topology.links],
            wide=True,
        ),
        goodput_figure(data),
        overtaking_figure(data),
        depth_figure(data),
        latency_figure(data),
        completion_figure(data),
        ev_state_figure(data),
        ev_map_figure(data),
        queue_figure(data),
        window_figure(data),
        rtt_figure(data),
        *zoom_figures(data),
        share_figure(data),
    ]


def _page(data: RunData, figures: list[Figure]) -> str:
    environment = Environment(
        loader=PackageLoader("mrc_host.report", ""),
        autoescape=select_autoescape(["j2", "html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = environment.get_template("style.css").render()
    return environment.get_template("report.html.j2").render(
        style=style + CHART_STYLE,
        experiment=data.experiment,
        run=data.run,
        title=data.experiment.title or data.experiment.name,
        state=_state(data),
        waiting=waiting_lines(data.run, data.path.name),
        tiles=_tiles(data),
        criteria=_criteria(data),
        figures=figures,
        faults=fault_rows(data),
        flows=_flows(data),
        similarity=_metric_rows(data, SIMILARITY),
        metrics=_metric_rows(data, (*DEFINITIONS, *sorted(data.metrics.keys() - DEFINITIONS.keys()))),
        counters=_counters(data),
        links=_busiest_links(data),
        facts=_facts(data),
        repeat=_repeat(data),
    )


# -- contents --------------------------------------------------------------------------------------------


def _state(data: RunData) -> str:
    """Return what is to be said about a run that is not complete."""
    if data.run["verdict"] == "ERROR" and data.run.get("error"):
        return f"{data.run['error']}. Everything below was measured all the same."
    if data.run["interrupted"]:
        return (
            "Interrupted from the keyboard: everything below covers the time until then; nothing is judged."
        )
    if not data.run["complete"]:
        given_up = data.run.get("flows_given_up") or {}
        if given_up:
            return (
                "Flows were given up: " + "; ".join(f"{name}: {why}" for name, why in given_up.items()) + "."
            )
        return "The limit of simulated time was reached before all messages were complete."
    return ""


def _value(data: RunData, name: str) -> Any:
    return data.metrics[name]["value"]


def _tiles(data: RunData) -> list[dict[str, str]]:
    def tile(label: str, value: str, note: str, *names: str) -> dict[str, str]:
        verdicts = {data.metrics[name]["verdict"] for name in names}
        verdict = next((word for word in ("FAIL", "INCONCLUSIVE", "PASS") if word in verdicts), "")
        return {"label": label, "value": value, "note": note, "verdict": verdict.lower()}

    verified = _value(data, "bytes_verified")
    goodput, over = _value(data, "goodput_gbps"), _value(data, "goodput_over_bound")
    late, depth = _value(data, "out_of_order_fraction"), _value(data, "out_of_order_depth_max")
    again = sum(_value(data, f"retransmissions_{cause}") for cause in ("trim", "loss", "spurious"))
    total = sum(flow.messages for flow in data.flows)
    return [
        tile(
            "Verified, byte for byte",
            _bytes_text(verified),
            f"{value_text(_value(data, 'bytes_mismatched'))} bytes wrong",
            "bytes_verified",
            "bytes_mismatched",
        ),
        tile(
            "Messages completed",
            value_text(_value(data, "messages_completed")),
            f"of {value_text(total)}, at both ends",
            "messages_completed",
        ),
        tile(
            "Goodput of a flow",
            "–" if goodput is None else f"{goodput:.2f} Gb/s",
            "no flow with a bound completed"
            if over is None
            else f"{100 * over:.1f} % of what links and headers allow",
            "goodput_gbps",
            "goodput_over_bound",
        ),
        tile(
            "Arrived out of order",
            "–" if late is None else f"{100 * late:.1f} %",
            f"up to {depth} packets deep",
            "out_of_order_fraction",
            "out_of_order_depth_max",
        ),
        tile(
            "Imbalance of planes",
            f"{_value(data, 'plane_imbalance_packets')} "
            + ("packet" if _value(data, "plane_imbalance_packets") == 1 else "packets"),
            f"{_value(data, 'paths_used')} paths used by each flow",
            "plane_imbalance_packets",
            "paths_used",
        ),
        tile(
            "Packets lost",
            value_text(_value(data, "packets_lost")),
            f"{value_text(again)} sent again",
            "packets_lost",
        ),
    ]


def _bytes_text(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def _metric_rows(data: RunData, names: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        if name not in data.metrics:  # a run of before it was defined
            continue
        metric = data.metrics[name]
        rows.append(
            {
                "name": name,
                "value": value_text(metric["value"], metric["unit"]),
                "limits": limits_text(metric["limits"] or {}),
                "source": (metric["limits"] or {}).get("source", ""),
                "verdict": metric["verdict"] or "",
                "definition": metric["definition"],
                "reason": metric.get("reason", ""),
            }
        )
    return rows


def _criteria(data: RunData) -> list[dict[str, Any]]:
    names = [criterion.metric for criterion in data.experiment.criteria]
    return _metric_rows(data, tuple(names))


def _flows(data: RunData) -> list[dict[str, str]]:
    return [
        {
            "name": result["name"],
            "size": _bytes_text(result["bytes"]),
            "fct": f"{result['fct_us']:,.1f}".replace(",", "\u202f"),
            "bound": f"{result['fct_bound_us']:,.1f}".replace(",", "\u202f"),
            "over": f"{result['fct_us'] / result['fct_bound_us']:.3f}",
            "goodput": f"{result['goodput_gbps']:.2f}",
            "goodput_bound": f"{result['goodput_bound_gbps']:.2f}",
            "share": f"{100 * result['reverse_share']:.2f}",
        }
        for result in data.flow_results
    ]


def _counters(data: RunData) -> list[tuple[str, list[tuple[str, int]]]]:
    """Return counters in groups: fabric, NIC ports, engines. Zeros only where they say something."""
    fabric = data.counters["fabric"]
    drops = [(f"dropped: {reason}", count) for reason, count in sorted(fabric["drops"].items())]
    groups = [
        (
            "Fabric",
            [
                ("frames entered", fabric["entered"]),
                ("frames delivered", fabric["delivered"]),
                ("frames still under way", fabric["in_flight"]),
                *((name, fabric[key]) for name, key in CHANGED_BY_SWITCHES if fabric.get(key)),
                *(drops or [("frames dropped, for any reason", 0)]),
            ],
        )
    ]
    ports: dict[str, int] = {}
    engines: dict[str, int] = {}
    for nic in data.counters["nics"]:
        for port in nic["ports"]:
            for name, count in port.items():
                ports[name] = ports.get(name, 0) + count
        for name, count in nic["engine"].items():
            engines[name] = engines.get(name, 0) + count
        for name in ("memory_outside", "memory_violations", "receive_stalls", "transmit_bad", "underruns"):
            engines[name] = engines.get(name, 0) + nic[name]
    discarded = sum(count for name, count in ports.items() if name.startswith("drop_"))
    shown = [(name, count) for name, count in ports.items() if count]
    if not discarded:
        shown.append(("discarded, for any reason", 0))
    groups.append(("NIC ports, all together", [(_words(name), count) for name, count in shown]))
    groups.append(
        (
            "Engines, all together",
            [
                (_words(name), count)
                for name, count in engines.items()
                if count or name in ENGINE_COUNTERS_SHOWN_WHEN_ZERO
            ],
        )
    )
    return groups


def _words(name: str) -> str:
    return name.replace("_", " ")


def _busiest_links(data: RunData) -> list[dict[str, Any]]:
    links = sorted(data.counters["links"], key=lambda link: -link["queue_high_water_bytes"])
    return [link for link in links if link["queue_high_water_bytes"]][:8]


def _facts(data: RunData) -> list[tuple[str, str]]:
    run = data.run
    source = run.get("source") or {}
    speed = run.get("speed") or {}
    machine = run.get("machine") or {}
    facts = [
        ("Seed", str(run["seed"])),
        ("Started", run["started"]),
        ("Simulated", f"{run.get('simulated_us', 0):,.1f} µs".replace(",", "\u202f")),
        ("NICs", f"{run.get('nic', '')}, fabric {run.get('fabric', '')}"),
        ("Experiment", run["experiment_sha256"][:16]),
    ]
    if run.get("netlist_sha256"):
        facts.append(("Netlist", run["netlist_sha256"][:16]))
    if source:
        facts.append(("Source", source["commit"][:12] + (" with local changes" if source["dirty"] else "")))
    if speed:
        facts.append(("Simulation took", f"{speed['simulate_seconds']:.1f} s"))
        if speed.get("cycles_per_second"):
            clocked, skipped = speed["cycles_clocked"], speed["cycles_skipped"]
            facts.append(("Cycles", f"{clocked:,} clocked, {skipped:,} skipped".replace(",", "\u202f")))
            rate = f"{speed['cycles_per_second']:,}".replace(",", "\u202f")
            facts.append(("Speed", f"{rate} NIC cycles per second"))
    if machine:
        facts.append(
            (
                "Machine",
                f"{machine['system']} {machine['kernel']}, {machine['architecture']}, {machine['cpus']} CPUs",
            )
        )
    facts.append(("Versions", ", ".join(f"{name} {version}" for name, version in run["versions"].items())))
    return facts


def _repeat(data: RunData) -> str:
    return f"mrc replay {shlex.quote(data.path.name)}"
