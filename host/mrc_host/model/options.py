"""Options of the golden model: every question the references leave open, by name, with the choice taken.

The defaults are those of profile.md, and where it is silent the choice proposed in protocol.md 7.
:data:`OPTIONS` describes each one; docs/golden-model.md shows the same table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from mrc_host.errors import ConfigError

__all__ = ["OPTIONS", "SETTLED", "ModelOptions", "Option"]


@dataclass(frozen=True)
class Option:
    """What an option means.

    Parameters
    ----------
    question : str
        Question of protocol.md 7 ("Q7"), or the page that leaves the value to an implementation.
    text : str
        Meaning and unit.
    choices : tuple of str
        Allowed values of a text option.
    low, high : int
        Range of a number.
    plug_in : bool
        The value names a plug-in; its registry knows which exist.
    """

    question: str
    text: str
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    plug_in: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The choices of one model NIC; :data:`OPTIONS` says what each one means.

    Raises
    ------
    ConfigError
        A value is not allowed; the text names option, range and value.
    """

    # Wire format
    udp_ports: str = "both"
    endpoint_op_shift: int = 2
    source_port_half: str = "upper"
    context_order: str = "sender_first"
    port_mask_base: int = 0
    timestamp_always_valid: bool = False
    timestamp_resolution: int = 0
    control_ect: bool = False
    cc_flags: int = 0
    # Receiving
    out_of_window: str = "nack"
    always_skip_after: int = 0
    resource_nack: bool = True
    error_nack: bool = True
    answer_strangers: bool = True
    sack_base_align: int = 1
    sack_walk_every: int = 0
    reverse_probes: bool = True
    penalty_start_permille: int = 1000
    advertise_mpr: str = "fixed"
    service_time: bool = True
    zero_length_immediate: bool = True
    transport_ack: str = "message"
    control_path: str = "reverse"
    partition_keys: str = "table"
    trimmed_length: str = "frame"
    # Entropy values
    spray_policy: str = "mrc"
    backups_per_plane: int = 0
    loss_blame: str = "stored"
    mark_reaction: bool = True
    minimum_active_rule: str = "skip"
    floor_skip_turns: int = 16
    floor_skip_end: str = "count"
    blame_count: str = "exact"
    ecn_skip_turns: int = 1
    trim_skip_turns: int = 1
    obey_always_skip: bool = True
    plane_patience_ns: int = -1
    # Probes
    recovery_probes: bool = True
    recovery_probe: str = "reliability"
    probe_interval_min_ns: int = 64_000
    probe_interval_max_ns: int = 10_000_000
    probe_successes: int = 3
    probe_budget_permille: int = 10
    probe_rtt_bound: int = 4
    # Loss and retransmission
    loss_rule: str = "rack"
    duplicate_threshold: int = 32
    reorder_window_ns: int = -1
    reorder_adaptation: bool = False
    complete_view: bool = True
    undo_rule: str = "proof"
    tail_probe: bool = True
    stale_probe: bool = True
    probe_judges: str = "silent"
    port_status_updates: bool = True
    unknown_nack: str = "retry"
    mpr_shrink: str = "keep_sent"
    ack_request: str = "tail"
    another_ev: bool = True
    another_plane: bool = False
    # Congestion control
    congestion: str = "nscc_fixed"
    base_rtt_min_ns: int = 0
    # Scheduling
    burst: int = 4
    control_cap: int = 3

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if option.plug_in:
                if not isinstance(value, str):
                    raise ConfigError(f"model.{name}", "the name of a plug-in", value)
            elif option.choices:
                if value not in option.choices:
                    raise ConfigError(f"model.{name}", f"one of {', '.join(option.choices)}", value)
            elif option.high > option.low:
                if isinstance(value, bool) or not isinstance(value, int):
                    raise ConfigError(f"model.{name}", "a whole number", value)
                if not option.low <= value <= option.high:
                    raise ConfigError(f"model.{name}", f"between {option.low} and {option.high}", value)
            elif not isinstance(value, bool):
                raise ConfigError(f"model.{name}", "true or false", value)
        if self.probe_interval_min_ns > self.probe_interval_max_ns:
            raise ConfigError(
                "model.probe_interval_min_ns",
                f"at most probe_interval_max_ns ({self.probe_interval_max_ns})",
                self.probe_interval_min_ns,
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> ModelOptions:
        """Options from names and values, as an experiment file gives them.

        Raises
        ------
        ConfigError
            A name is unknown, or a value is not allowed.
        """
        for name in values:
            if name not in OPTIONS:
                raise ConfigError(f"model.{name}", f"a known option: {', '.join(OPTIONS)}")
        return cls(**values)  # type: ignore[arg-type]

    @classmethod
    def round_one(cls) -> ModelOptions:
        """What the gateware of the first round does: no reaction of EVs, no loss inference, no congestion
        control, no probes, and control packets leave where their cause came in.
        """
        return cls(
            control_path="ingress",
            answer_strangers=False,
            sack_base_align=16,  # at 64 and 128 bit
            reverse_probes=False,
            mark_reaction=False,
            loss_blame="none",
            obey_always_skip=False,
            recovery_probes=False,
            loss_rule="none",
            tail_probe=False,
            stale_probe=False,
            port_status_updates=False,
            another_ev=False,
            congestion="none",
        )

    def as_dict(self) -> dict[str, object]:
        """Every option by name, for manifests."""
        return dataclasses.asdict(self)


_NS = 1_000_000_000

OPTIONS: dict[str, Option] = {
    "udp_ports": Option("Q1", "UDP destination ports accepted.", ("both", "4791", "4971")),
    "endpoint_op_shift": Option("Q3", "Lowest bit of EETH.op in the first half-word.", low=2, high=4),
    "source_port_half": Option("Q4", "Half of the EV in the UDP source port.", ("upper", "lower")),
    "context_order": Option(
        "Q9",
        "spdcid is the QPN of the packet's sender, or always the requester's.",
        ("sender_first", "requester_first"),
    ),
    "port_mask_base": Option(
        "Q12", "Port number of bit 0 of a port status mask is this + 1 - base.", low=0, high=1
    ),
    "timestamp_always_valid": Option("Q14", "A timestamp with ftype 0 counts as one."),
    "timestamp_resolution": Option("Q13", "TSETH.tsr sent; 1 means the timestamp is opaque.", low=0, high=1),
    "control_ect": Option("Q29", "Control packets leave as ECT(0) instead of Not-ECT."),
    "cc_flags": Option("Q31", "SETH.cc_fl sent; ignored when received.", low=0, high=15),
    "out_of_window": Option(
        "Q5",
        "A PSN outside the window: NACK PSN_OOR_WINDOW, at most one per RTT and QP, or nothing.",
        ("nack", "drop"),
    ),
    "always_skip_after": Option(
        "Q8",
        "Marked packets in a row on one EV after which a responder sends ALWAYS_SKIP; 0: never.",
        low=0,
        high=255,
    ),
    "resource_nack": Option(
        "protocol.md 3.5", "A packet that finds its plane's buffer full is answered by NACK NO_PKT_BUFFER."
    ),
    "error_nack": Option(
        "protocol.md 3.5",
        "A packet for a QP in ERROR is answered by NACK UNEXP_EVENT, at most one per RTT and QP.",
    ),
    "answer_strangers": Option(
        "protocol.md 1.13",
        "Endpoint requests of hosts that no QP is connected with are answered over the way they came.",
    ),
    "sack_base_align": Option(
        "profile.md 5", "The base of a SACK bitmap is aligned down to so many PSNs.", low=1, high=64
    ),
    "sack_walk_every": Option(
        "profile.md 5",
        "Every so many SACKs one walks the window although something is unreported, so that the reports of a "
        "SACK that was lost come soon; 0: only with nothing unreported.",
        low=0,
        high=64,
    ),
    "reverse_probes": Option(
        "protocol.md 2.6", "A QP that receives and does not send probes EVs for its control packets."
    ),
    "penalty_start_permille": Option(
        "protocol.md 3.8",
        "Fill of a plane's receive buffer, in 1/1000, from which SACKs carry a penalty on the window; "
        "1000: never.",
        low=1,
        high=1000,
    ),
    "advertise_mpr": Option(
        "protocol.md 2.5",
        "MPR in SACKs: the tracking range, or less of it the fuller the receive buffer is.",
        ("fixed", "buffer"),
    ),
    "service_time": Option("Q15", "Reflected timestamps are later by the time the responder took."),
    "zero_length_immediate": Option("Q23", "A WRITE_WITH_IMM may carry no data."),
    "transport_ack": Option(
        "Q24",
        "Transport ACK: one per SACK once a message has ended, or one per message.",
        ("message", "each"),
    ),
    "control_path": Option(
        "Q27",
        "Control packets leave on the reverse EV set, or where their cause came in.",
        ("reverse", "ingress"),
    ),
    "partition_keys": Option("Q32", "P_Keys accepted: the QP's, or any.", ("table", "any")),
    "trimmed_length": Option(
        "Q28",
        "Length of a trimmed frame: the MAC's, or refuse one that its headers contradict.",
        ("frame", "headers"),
    ),
    "spray_policy": Option(
        "nscc.md 2.6", "How the EV of a packet is picked, and what feedback does to it.", plug_in=True
    ),
    "backups_per_plane": Option("Q21", "EVs of each plane held back as replacements.", low=0, high=31),
    "loss_blame": Option(
        "Q20", "EV blamed for a loss: the one stored with the PSN, or none.", ("stored", "none")
    ),
    "mark_reaction": Option("protocol.md 2.2", "ECN marks and fabric trims make an EV SKIP."),
    "minimum_active_rule": Option(
        "Q7",
        "An EV that lost a packet at ev_min_active: long SKIP and probes, stays GOOD, or goes.",
        ("skip", "keep", "ignore"),
    ),
    "floor_skip_turns": Option("Q7", "Turns of that long SKIP.", low=1, high=255),
    "floor_skip_end": Option(
        "Q7", "It ends after so many turns, or by chance at one turn in so many.", ("count", "draw")
    ),
    "blame_count": Option(
        "Q20",
        "Losses that are held against an EV and may be taken back: all, or two at most, as in the gateware.",
        ("exact", "two"),
    ),
    "ecn_skip_turns": Option("Q16", "Turns an EV is skipped for an ECN mark.", low=1, high=15),
    "trim_skip_turns": Option("Q16", "Turns an EV is skipped for a fabric trim.", low=1, high=15),
    "obey_always_skip": Option("Q8", "A SACK with ALWAYS_SKIP makes its EV ASSUMED_BAD."),
    "plane_patience_ns": Option(
        "design.md 4, rule 5",
        "Longest wait for a plane without room before a round ends without it; -1: half a base RTT or two "
        "frames, the longer.",
        low=-1,
        high=_NS,
    ),
    "recovery_probes": Option("protocol.md 2.2", "ASSUMED_BAD EVs are probed and come back."),
    "recovery_probe": Option("Q18", "Kind of those probes: reliability probes of the QP.", ("reliability",)),
    "probe_interval_min_ns": Option("Q17", "Shortest interval between probes of an EV.", low=1_000, high=_NS),
    "probe_interval_max_ns": Option("Q17", "Longest interval, after doubling.", low=1_000, high=10 * _NS),
    "probe_successes": Option("Q17", "Answers without a mark in a row that make an EV GOOD.", low=1, high=15),
    "probe_budget_permille": Option(
        "Q17", "Share of the line's packet rate that probes of EVs may take, in 1/1000.", low=1, high=1000
    ),
    "probe_rtt_bound": Option("Q17", "A probe counts as lost after so many base RTTs.", low=1, high=1000),
    "loss_rule": Option(
        "Q19",
        "RACK per plane and class, a count of later packets over all planes, or timers alone.",
        ("rack", "count", "none"),
    ),
    "duplicate_threshold": Option("Q19", "Later packets of the rule `count`.", low=1, high=4096),
    "reorder_window_ns": Option(
        "profile.md 4",
        "W: how much later a packet must have left that proves a loss; -1: half a base RTT.",
        low=-1,
        high=_NS,
    ),
    "reorder_adaptation": Option(
        "RFC 8985 6.2",
        "W doubles with every loss that was undone, to four times at most, and is itself again after 16 "
        "losses that were not.",
    ),
    "complete_view": Option(
        "profile.md 4",
        "A hole counts only if the bitmap shows it or CC_STATE.ooo_count says that no report is missing.",
    ),
    "undo_rule": Option(
        "profile.md 4",
        "What proves that a packet declared lost arrived: its own SACK or one that no retransmission can "
        "have caused yet; any SACK with rtx = 0; nothing.",
        ("proof", "flag", "none"),
    ),
    "tail_probe": Option("profile.md 4", "A reliability probe when nothing is newly SACKed for a while."),
    "stale_probe": Option(
        "Q19",
        "The same when a packet is still out although one that left a base RTT and a target delay later, on "
        "whatever plane, has arrived; or when a port with packets out went down.",
    ),
    "probe_judges": Option(
        "profile.md 4",
        "What the answer to a probe of the tail judges: packets of planes that nothing was heard of for a "
        "base RTT and a target delay (others may be slow, and prove their losses themselves), or all.",
        ("silent", "all"),
    ),
    "port_status_updates": Option(
        "profile.md 9", "Peers are told of changes of ports, and what they tell is obeyed."
    ),
    "unknown_nack": Option(
        "Q34", "NACK reasons nobody knows: retry as NO_RESOURCE, or QP error.", ("retry", "error")
    ),
    "mpr_shrink": Option(
        "Q10", "A smaller dynamic MPR: never below what was sent, or at once.", ("keep_sent", "at_once")
    ),
    "ack_request": Option(
        "Q6", "BTH.a on the last packet before the QP stops, or on every packet.", ("tail", "always")
    ),
    "another_ev": Option(
        "protocol.md 2.4", "A retransmission never takes the EV of the transmission before."
    ),
    "another_plane": Option(
        "protocol.md 2.4",
        "Nor its plane, as long as another one has room: what killed one EV of a plane often kills more.",
    ),
    "congestion": Option("nscc.md", "Congestion control of a QP.", plug_in=True),
    "base_rtt_min_ns": Option(
        "profile.md 8", "Least base RTT the running minimum may reach.", low=0, high=_NS
    ),
    "burst": Option("protocol.md 2.7", "Packets of a QP's turn while others wait.", low=1, high=64),
    "control_cap": Option("design.md 4", "Control packets in a row while data waits.", low=1, high=64),
}

SETTLED: dict[str, str] = {
    "Q2": "both bits are sent as 0 and ignored: MRC has no solicited events",
    "Q6": "the threshold is the register `sack_threshold`; the BTH.a part is `ack_request`",
    "Q11": "profile.md 4 settles the timer: T up to linear_cnt, then doubling, cap 17.18 s",
    "Q22": "MSN is counted with 24 bits, METH carries the low 16",
    "Q25": "one inner address on all planes (profile.md 2)",
    "Q26": "the starting PSN is the host's, `qp_send.initial_psn`",
    "Q30": "an opcode that is not MRC's is dropped and counted, DROP_OPCODE",
    "Q33": "names only, nothing on the wire",
}
"""Questions without an option of their own, and where the choice is made."""
