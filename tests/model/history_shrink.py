"""Makes a failing experiment small: as few messages, faults and actions as still fail in the same way.

Delta debugging: what random faults did is written down packet by packet; then chunks of messages, faults,
actions and packets are left out, ever smaller ones, and what is left gets simpler values.
"""

import time
from copy import deepcopy
from unittest import mock

from ruamel.yaml import YAML, CommentedMap, CommentedSeq
from ruamel.yaml.scalarint import HexInt

from mrc_host.errors import MrcError
from mrc_host.experiment.load import parse_experiment
from mrc_host.fabric.faults.running import RunningFault
from mrc_host.fabric.faults.trim_storm import _StormAtPort

LISTS = (("workload", "messages"), ("faults",), ("script",))
CERTAIN = {"probability": 1.0, "share": 1.0, "bit_error_rate": 0.01}
SELECTORS = ("link", "port", "switch", "plane", "ev", "direction")


class Shrinker:
    """Makes one experiment small.

    Parameters
    ----------
    description : dict
        What fails.
    failure : (kind, text)
        How; the small one fails with the same kind.
    failure_of : callable
        Plays an experiment and returns its failure, or None.
    seconds : float
        How long it may take.
    say : callable
        Gets a line now and then.
    """

    def __init__(self, description, failure, failure_of, seconds, say):
        self.best = deepcopy(description)
        self.kind = failure[0]
        self.failure_of = failure_of
        self.deadline = time.monotonic() + seconds
        self.say = say
        self.tries = 0

    def fails(self, description):
        """Try an experiment; keep it when it fails as the first one did."""
        if time.monotonic() > self.deadline:
            return False
        self.tries += 1
        try:
            parse_experiment(description)
        except MrcError:
            return False
        failure = self.failure_of(description)
        if failure is None or failure[0] != self.kind:
            return False
        self.best = description
        return True

    def run(self):
        """Make it as small as it becomes in the time."""
        self._leave_out_whole_lists()
        self._write_down_what_faults_did()
        before = None
        while before != self.best and time.monotonic() < self.deadline:
            before = self.best
            for path in LISTS:
                self._shorten(path)
            for place in range(len(self.best["faults"])):
                self._shorten(("faults", place, "packets"))
            for place in range(len(self.best["script"])):
                self._shorten(("script", place, "ev"))
            self._simplify()
            self.say(f"  {self.size()} after {self.tries} tries")
        return self.best

    def size(self):
        """What is left, in words."""
        counts = [len(_at(self.best, path)) for path in LISTS]
        return "{} messages, {} faults, {} actions".format(*counts)

    def _leave_out_whole_lists(self):
        for path in LISTS[1:]:
            self.fails(_with(self.best, path, []))
        self.fails(_with(self.best, ("nic", "model"), {}))

    # -- faults ------------------------------------------------------------------------------------------

    def _write_down_what_faults_did(self):
        hits = self._hits()
        exact = [self._exact(fault, hits.get(place, {})) for place, fault in enumerate(self.best["faults"])]
        if self.fails(_with(self.best, ("faults",), [fault for group in exact for fault in group])):
            return
        faults = [[fault] for fault in self.best["faults"]]
        for place, group in enumerate(exact):
            changed = [*faults[:place], group, *faults[place + 1 :]]
            if self.fails(_with(self.best, ("faults",), [fault for part in changed for fault in part])):
                faults = changed

    def _hits(self):
        """Play once more; return by fault and direction which packets it hit."""
        hits = {}

        def note(fault, site):
            numbers = hits.setdefault(fault.number, {}).setdefault(site.port.half.name, [])
            numbers.append(site.count)

        act, arrive = RunningFault.act, _StormAtPort.arrive

        def noted_act(fault, port, start_ps, packet):
            result = act(fault, port, start_ps, packet)
            if result is not None:
                note(fault, fault.sites[port.number])
            return result

        def noted_arrive(storm, port, time_ps, packet):
            site = storm._site
            before = site.fault.hit
            arrive(storm, port, time_ps, packet)
            if site.fault.hit > before:
                note(site.fault, site)

        with (
            mock.patch.object(RunningFault, "act", noted_act),
            mock.patch.object(_StormAtPort, "arrive", noted_arrive),
        ):
            self.failure_of(self.best)
        return hits

    def _exact(self, fault, hits):
        """Return faults that do for certain, to single packets, what a random one did by chance."""
        chance = [key for key in (*CERTAIN, "loss") if key in fault]
        if "packets" in fault or not (chance or fault["kind"] == "blackhole") or "ev" in fault:
            return [fault]
        group = []
        for direction, numbers in hits.items():
            exact = {key: value for key, value in fault.items() if key not in SELECTORS}
            exact.update({key: CERTAIN[key] for key in chance if key in CERTAIN})
            if fault["kind"] in ("random_loss", "burst_loss"):
                exact["kind"] = "blackhole"
                for key in ("probability", "loss", "burst_packets"):
                    exact.pop(key, None)
            group.append({**exact, "link": direction, "packets": numbers})
        return group

    # -- fewer -------------------------------------------------------------------------------------------

    def _shorten(self, path):
        """Leave out chunks of a list, ever smaller ones."""
        items = _at(self.best, path)
        if not isinstance(items, list) or len(items) < (1 if path in LISTS[1:] else 2):
            return
        chunk = len(items)
        while chunk:
            start = 0
            while start < len(items) and time.monotonic() < self.deadline:
                fewer = items[:start] + items[start + chunk :]
                if self.fails(_with(self.best, path, fewer)):
                    items = fewer
                else:
                    start += chunk
            chunk //= 2

    # -- simpler -----------------------------------------------------------------------------------------

    def _simplify(self):
        for section in (("nic", "model"), ("nic", "memory"), ("nic",), ("qp",), ("fabric",)):
            for key in list(_at(self.best, section) or ()):
                if key not in ("engine", "parameters", "model"):
                    self.fails(_without(self.best, (*section, key)))
        self._smaller_world()
        for place, message in enumerate(self.best["workload"]["messages"]):
            path = ("workload", "messages", place)
            if "at_us" in message:
                self.fails(_without(self.best, (*path, "at_us")))
            for size in (1, 256, 257, 600, message["bytes"] // 2):
                if size < message["bytes"] and self.fails(_with(self.best, (*path, "bytes"), size)):
                    break
        for name in ("faults", "script"):
            for place in range(len(self.best[name])):
                for key in ("traffic", "from_us", "to_us", "direction", "delay_ns", "signal"):
                    if key in self.best[name][place]:
                        self.fails(_without(self.best, (name, place, key)))

    def _smaller_world(self):
        fabric, parameters = self.best["fabric"], self.best["nic"]["parameters"]
        if fabric["hosts"] > 2:
            smaller = _with(self.best, ("fabric", "hosts"), 2)
            if "t0_per_plane" in fabric:
                smaller = _with(smaller, ("fabric", "t0_per_plane"), 2)
            self.fails(smaller)
        if "t0_per_plane" in self.best["fabric"]:
            smaller = self.best
            for key in ("t0_per_plane", "t1_per_plane", "t1_link_delay_ns"):
                smaller = _without(smaller, ("fabric", key))
            self.fails(smaller)
        for planes in range(1, fabric["planes"]):
            smaller = _with(self.best, ("fabric", "planes"), planes)
            if self.fails(_with(smaller, ("nic", "parameters", "planes"), planes)):
                break
        for evs in (1, 2, 4):
            path = ("nic", "parameters", "evs_per_plane")
            if evs < parameters["evs_per_plane"] and self.fails(_with(self.best, path, evs)):
                break
        for key in ("send_queue_depth", "mtu"):
            if key in self.best["nic"]["parameters"]:
                self.fails(_without(self.best, ("nic", "parameters", key)))


def shrink(description, failure, failure_of, seconds, say):
    """Return the smallest experiment found that fails in the same way; see :class:`Shrinker`."""
    return Shrinker(description, failure, failure_of, seconds, say).run()


def write_experiment(file, description, seed, failure):
    """Write an experiment as a file that says what it is for, one line a message, fault or action."""
    count = sum(message.get("count", 1) for message in description["workload"]["messages"])
    document = CommentedMap(deepcopy(description))
    document["criteria"][1]["equals"] = count
    for path in LISTS:
        lines = CommentedSeq()
        for item in _at(document, path):
            line = CommentedMap(item)
            if "ev" in line:
                evs = line["ev"] if isinstance(line["ev"], list | tuple) else [line["ev"]]
                line["ev"] = [HexInt(ev) for ev in evs]
            line.fa.set_flow_style()
            lines.append(line)
        parent = _at(document, path[:-1])
        if lines:
            parent[path[-1]] = lines
        else:
            del parent[path[-1]]
    failed = " ".join(failure[1].split()) if failure else "passes when it is played again"
    document.yaml_set_start_comment(
        f"History of seed {seed}, made small. It fails:\n{failed}\n"
        f"python tests/model/history.py FILE   checks every promise\n"
        f"mrc run FILE --nic model             shows the run"
    )
    writer = YAML()
    writer.width = 4096
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as stream:
        writer.dump(document, stream)


def _at(description, path):
    node = description
    for key in path:
        if isinstance(node, dict):
            node = node.get(key)
        else:
            node = node[key] if key < len(node) else None
        if node is None:
            return None
    return node


def _with(description, path, value):
    """Return a copy with another value at a path."""
    copy = deepcopy(description)
    _at(copy, path[:-1])[path[-1]] = value
    return copy


def _without(description, path):
    """Return a copy without what stands at a path."""
    copy = deepcopy(description)
    del _at(copy, path[:-1])[path[-1]]
    return copy
