"""Draws a random history of a few model NICs: an experiment as nested mappings, all from one seed.

Sizes, options of the models, traffic in both directions, and everything bad until a time at which the network
is good again.
"""

import random

from mrc_host.fabric.usid import ev_set

SIZES = (1, 3, 255, 256, 257, 1000, 1024, 2500, 4000)
LIMIT_US = 20_000.0
MTU = 256


def draw_history(seed):
    """Return the experiment of a seed, as a file would have it."""
    return _Drawing(seed).experiment()


class _Drawing:
    def __init__(self, seed):
        self.seed = seed
        self.random = draw = random.Random(seed)
        self.planes = draw.choice((1, 2, 2, 3, 4))
        self.evs = draw.choice((1, 2, 4, 8))
        self.hosts = draw.choice((2, 2, 3))
        self.t1 = draw.choice((0, 0, 1, 2))
        self.trimming = draw.random() < 0.5
        self.values = ev_set(self.planes * self.evs, self.planes, self.t1)
        #: Everything bad ends here.
        self.end_us = draw.choice((0, 60, 150, 400))

    def experiment(self):
        draw, planes = self.random, self.planes
        messages = self._messages()
        return {
            "name": f"history-{self.seed}",
            "seed": self.seed,
            "nic": {
                "engine": "small",
                "parameters": {
                    "planes": planes, "mtu": MTU, "qps": 2, "evs_per_plane": self.evs, "trace": True,
                    "send_queue_depth": draw.choice((2, 8)), "clock_ps": 4000,
                },
                "sack_threshold_bytes": draw.choice((1024, 2048, 16_384)),
                "memory": {
                    "write_latency_ns": draw.choice((120, 120, 8_000)),
                    "latency_jitter_ns": draw.choice((0, 240)),
                },
                "model": self._options(),
            },
            "fabric": self._fabric(),
            "workload": {"kind": "messages", "outstanding_messages": 2, "messages": messages},
            "qp": {
                "timeout_exponent": draw.choice((4, 5)),
                "starting_psn": draw.choice((0, 0xFFFFF0, 0xFFFFFE, draw.randrange(1 << 24))),
                "dynamic_mpr": draw.random() < 0.5,
                "congestion_control": draw.choice(("none", "nscc", "nscc")),
            },
            "faults": self._faults(),
            "script": self._script(),
            "limits": {"simulated_time_us": LIMIT_US},
            "criteria": [
                {"metric": "bytes_mismatched", "equals": 0, "source": "promise of a write"},
                {"metric": "messages_completed", "equals": len(messages), "source": "promise of a write"},
            ],
        }  # fmt: skip

    def _options(self):
        draw = self.random
        return {
            "spray_policy": draw.choice(("mrc", "mrc", "mrc", "oblivious", "bitmap", "reps", "mixed")),
            "backups_per_plane": min(draw.choice((0, 0, 1, 2)), self.evs - 1),
            "loss_rule": draw.choice(("rack", "rack", "rack", "count", "none")),
            "reorder_window_ns": draw.choice((-1, -1, 0, 20_000)),
            "complete_view": draw.random() < 0.8,
            "undo_rule": draw.choice(("proof", "proof", "flag", "none")),
            "minimum_active_rule": draw.choice(("skip", "skip", "keep", "ignore")),
            "congestion": draw.choice(("nscc_fixed", "nscc_float")),
            "tail_probe": draw.random() < 0.8,
            "stale_probe": draw.random() < 0.8,
            "probe_judges": draw.choice(("silent", "all")),
            "control_path": draw.choice(("reverse", "reverse", "ingress")),
            "out_of_window": draw.choice(("nack", "drop")),
            "transport_ack": draw.choice(("message", "each")),
            "service_time": draw.random() < 0.7,
            "trim_skip_turns": draw.choice((1, 4)),
            "probe_interval_min_ns": 8_000,
            "probe_interval_max_ns": 200_000,
            "another_ev": draw.random() < 0.8,
            "ack_request": draw.choice(("tail", "always")),
            "sack_base_align": draw.choice((1, 1, 16)),
            "advertise_mpr": draw.choice(("fixed", "buffer")),
            "penalty_start_permille": draw.choice((1000, 1000, 300)),
        }

    def _fabric(self):
        draw = self.random
        fabric = {
            "hosts": self.hosts, "planes": self.planes, "rate_gbps": 10, "host_link_delay_ns": 500,
            "queue_bytes": draw.choice((2048, 16_384, 262_144)),
        }  # fmt: skip
        if self.t1:
            fabric.update(t0_per_plane=self.hosts, t1_per_plane=self.t1, t1_link_delay_ns=300)
        if self.trimming:
            size = draw.choice((118, 122, 138, 168))
            fabric["trimming"] = {"size_bytes": size, "correct_lengths": draw.random() < 0.5}
        if draw.random() < 0.4:
            fabric["ecn"] = {"min_bytes": 600, "max_bytes": 1500, "host_ports": draw.random() < 0.5}
        return fabric

    # -- what software does ------------------------------------------------------------------------------

    def _messages(self):
        draw, messages = self.random, []
        late = draw.random() < 0.4
        for host in range(1, self.hosts):
            for source, target in ((0, host), (host, 0)):
                for _ in range(draw.randrange(0, 14)):
                    operation = draw.choice(("write", "write_imm"))
                    size = draw.choice(SIZES if operation == "write" else (0, *SIZES))
                    if draw.random() < 0.05:
                        size = draw.choice((20_000, 60_000))
                    message = {"source": source, "target": target, "bytes": size, "operation": operation}
                    if late and draw.random() < 0.3:
                        message["at_us"] = draw.randrange(1, 1 + max(20, self.end_us))
                    messages.append(message)
        return messages or [{"source": 0, "target": 1, "bytes": 1000, "operation": "write_imm"}]

    def _script(self):
        draw, script = self.random, []
        if not self.end_us:
            return script
        for _ in range(draw.choice((0, 0, 0, 6))):
            count = draw.randrange(1, 1 + min(3, len(self.values)))
            evs = sorted(draw.sample(self.values, count))
            script.append({"do": "deny_evs", "host": draw.randrange(self.hosts), "ev": evs, **self._while()})
        for _ in range(draw.choice((0, 0, 0, 1, 3))):
            plane = draw.randrange(self.planes)
            script.append(
                {"do": "disable_port", "host": draw.randrange(self.hosts), "plane": plane, **self._while()}
            )
        return script

    # -- what the network does ---------------------------------------------------------------------------

    def _while(self):
        """Return a time within the bad part."""
        start = self.random.randrange(self.end_us)
        return {"from_us": start, "to_us": self.random.randrange(start + 1, self.end_us + 1)}

    def _port(self):
        return f"h{self.random.randrange(self.hosts)}.p{self.random.randrange(self.planes)}"

    def _switch(self):
        plane = self.random.randrange(self.planes)
        if self.t1 and self.random.random() < 0.5:
            return f"p{plane}.t1.{self.random.randrange(self.t1) + 1}"
        return f"p{plane}.t0.{self.random.randrange(self.hosts if self.t1 else 1) + 1}"

    def _faults(self):
        draw, faults = self.random, []
        if not self.end_us:
            return faults
        whole = {"to_us": self.end_us}
        everywhere = {"plane": list(range(self.planes))}
        kept = draw.choice((None,) * 7 + ("acks", "data", "retransmissions"))
        some = {} if kept is None else {"traffic": kept}

        def chance(share, top):
            return round(draw.random() * top, 3) + 0.001 if draw.random() < share else 0.0

        for host in range(self.hosts):
            for plane in range(self.planes):
                if loss := chance(0.3, 0.3):
                    faults.append(
                        {"kind": "random_loss", "port": f"h{host}.p{plane}", "direction": "down",
                         "probability": loss, **some, **whole}
                    )  # fmt: skip
        if double := chance(0.3, 0.1):
            delay = draw.choice((0, 2_000, 10_000, 40_000))
            faults.append(
                {"kind": "duplicate", **everywhere, "probability": double, "delay_ns": delay, **some}
            )
        for delay in (2_000, 10_000, 40_000):
            if late := chance(0.25, 0.2):
                faults.append(
                    {"kind": "reorder", **everywhere, "probability": late, "delay_ns": delay, **some}
                )
        if marked := chance(0.4, 0.4):
            faults.append({"kind": "mark", **everywhere, "share": marked, **some})
        if trimmed := self.trimming and chance(0.7, 0.3):
            faults.append({"kind": "trim_storm", **everywhere, "share": trimmed, **some})
        if draw.random() < 0.3:
            part, caught = draw.choice(("covered", "frame")), draw.choice(("icrc", "icrc", "fcs"))
            faults.append(
                {
                    "kind": "bit_errors",
                    **everywhere,
                    "bit_error_rate": 3e-5,
                    "part": part,
                    "caught_by": caught,
                }
            )
        if draw.random() < 0.15:
            faults.append(
                {"kind": "burst_loss", "port": self._port(), "loss": 0.3, "burst_packets": 3, **some}
            )
        if draw.random() < 0.15:
            delay, jitter = draw.choice((500, 8_000)), draw.choice((0, 3_000))
            faults.append({"kind": "delay", "port": self._port(), "delay_ns": delay, "jitter_ns": jitter})
        if self.planes > 1 and draw.random() < 0.15:
            faults.append({"kind": "skew", **everywhere, "spread_ns": draw.choice((1_000, 20_000))})
        if draw.random() < 0.15:
            faults.append({"kind": "slow", "port": self._port(), "direction": "down", "rate_share": 0.2})
        for fault in faults:
            fault.update(whole)
        for _ in range(draw.choice((0, 0, 1, 3))):
            port = {"port": self._port(), "direction": draw.choice(("up", "down"))}
            place = {"ev": draw.choice(self.values)} if draw.random() < 0.7 else port
            faults.append({"kind": "blackhole", **place, **self._while(), **some})
        for _ in range(draw.choice((0, 0, 0, 1, 4))):
            signal = draw.random() < 0.8
            faults.append({"kind": "down", "port": self._port(), "signal": signal, **self._while()})
        if draw.random() < 0.1:
            faults.append(
                {"kind": "flap", "port": self._port(), "period_us": 20, "down_us": 3, "signal": True, **whole}
            )
        if draw.random() < 0.25:
            faults.append({"kind": "reboot", "switch": self._switch(), **self._while()})
        return faults
