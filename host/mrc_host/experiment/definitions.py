"""What every metric means. The names are stable: scripts, campaigns and criteria rely on them.

Terms
-----
flow
    All that one host sends to one peer.
message
    One work request; a flow is posted message by message, ``workload.outstanding_messages`` at a time.
data packet
    A write packet with its payload; a trimmed one has lost it.
bound
    What links and headers allow at best (:mod:`mrc_host.fabric.bounds`), with the headers of the packets
    really sent and the share of the sender's links that its own answers (SACK, ACK, NACK) really took.

Source: profile.md 10; experiments.md 1 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFINITIONS", "SAMPLES_FOR_P99", "Definition", "definitions_table"]

SAMPLES_FOR_P99 = 1000
"""Below so many samples a 99th percentile is not stated."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric.

    Parameters
    ----------
    unit : str
        Unit; "1" for ratios.
    text : str
        What is measured, and how.
    """

    unit: str
    text: str


DEFINITIONS: dict[str, Definition] = {
    "bytes_verified": Definition(
        "B",
        "Bytes of completed messages that are right in the receiver's memory. Every message carries a "
        "pattern made from a hash of seed, flow and message, and is compared byte for byte at the end.",
    ),
    "bytes_mismatched": Definition(
        "B",
        "Bytes that are wrong: in completed messages, in the senders' buffers, and in memory that no message "
        "may touch (guard zones around all buffers and what was never given out).",
    ),
    "messages_completed": Definition(
        "messages",
        "Messages completed at both ends: at the sender by their transport ACK and, for write_imm, at the "
        "receiver by its receive completion.",
    ),
    "goodput_gbps": Definition(
        "Gb/s",
        "Payload of a flow over its completion time, mean over flows.",
    ),
    "goodput_over_bound": Definition(
        "1",
        "Goodput of a flow over the most its links allow, mean over flows. Start-up counts: the time from "
        "the first doorbell to the first byte is part of the completion time.",
    ),
    "fct_over_bound_mean": Definition(
        "1",
        "Completion time of a flow over its bound, mean over flows. It runs from the doorbell of the first "
        "byte to the last byte in the receiver's memory.",
    ),
    "fct_over_bound_max": Definition("1", "As fct_over_bound_mean, the slowest flow."),
    "fct_over_bound_min": Definition("1", "As fct_over_bound_mean, the fastest flow."),
    "fct_over_bound_last_flow": Definition(
        "1", "As fct_over_bound_mean, the flow with the highest number: the victim of an incast."
    ),
    "jain_index": Definition(
        "1",
        "Jain's index of the flows' goodput: 1 when all are equal, 1/flows when one has everything.",
    ),
    "slowdown_p50": Definition(
        "1",
        "Completion time of single messages, from the time they are due to the last byte in the receiver's "
        "memory, over the least possible one on an empty network; median.",
    ),
    "slowdown_p99": Definition(
        "1", f"As slowdown_p50, 99th percentile; not stated below {SAMPLES_FOR_P99} messages."
    ),
    "slowdown_max": Definition("1", "As slowdown_p50, the largest."),
    "step_time_us": Definition(
        "µs",
        "Duration of a step: from the begin of computing to the last byte of its last message in memory; "
        "mean over steps. A workload without steps is one.",
    ),
    "step_time_us_max": Definition("µs", "As step_time_us, the longest step."),
    "step_time_over_bound": Definition(
        "1",
        "Duration of a step over its bound, mean over steps: computing, then all its bytes through the "
        "capacity that faults leave, or the longest chain of messages that wait for each other.",
    ),
    "stall_fraction": Definition(
        "1", "Share of a step in which hosts do not compute but communicate or wait, mean over steps."
    ),
    "straggler_fraction": Definition(
        "1",
        "Share of a step in which a host whose own bytes have all arrived waits for the slowest host, mean "
        "over hosts and steps.",
    ),
    "fct_us_p50": Definition(
        "µs",
        "Completion time of single messages, from doorbell to last byte in the receiver's memory, median. "
        "Messages wait behind those posted before them.",
    ),
    "fct_us_p99": Definition(
        "µs",
        f"As fct_us_p50, 99th percentile; not stated below {SAMPLES_FOR_P99} messages.",
    ),
    "plane_imbalance_packets": Definition(
        "packets",
        "Most by which the planes of a NIC ever differed in new data packets of a queue pair, counted packet "
        "by packet as they are sent; retransmissions do not count. The worst queue pair.",
    ),
    "paths_used": Definition(
        "paths",
        "Different paths (plane and T1) that data packets of a flow took; the flow with the fewest.",
    ),
    "out_of_order_fraction": Definition(
        "1",
        "Share of data packets that arrive at their NIC after a packet of the same queue pair with a higher "
        "PSN. First intact copies only.",
    ),
    "out_of_order_depth_max": Definition(
        "packets",
        "Most PSNs by which such a packet lay below the highest one that had arrived.",
    ),
    "retransmissions_trim": Definition(
        "packets",
        "Retransmissions of packets that arrived trimmed and not intact.",
    ),
    "retransmissions_loss": Definition(
        "packets",
        "Retransmissions of packets of which nothing had arrived.",
    ),
    "retransmissions_spurious": Definition(
        "packets",
        "Retransmissions of packets of which an earlier copy arrived intact.",
    ),
    "spurious_ratio": Definition("1", "Spurious retransmissions over all data packets sent."),
    "trimmed_fraction": Definition("1", "Trimmed packets that arrived over all data packets sent."),
    "packets_lost": Definition(
        "packets",
        "Frames the fabric dropped for any reason, and frames a NIC received and discarded; duplicates and "
        "trimmed packets that were answered are not discarded.",
    ),
    "frames_marked": Definition("frames", "Frames that switches marked with CE."),
    "frames_trimmed": Definition("frames", "Frames that switches cut and marked as trimmed."),
    "trimmed_headers_lost": Definition(
        "frames", "Trimmed frames that switches dropped after all, because their control queue was full."
    ),
    "fault_hits": Definition(
        "packets",
        "Packets that faults of the experiment changed, delayed, repeated or lost on links; one that two "
        "faults hit counts twice.",
    ),
    "ev_retire_rtt_first": Definition(
        "RTT",
        "Time from the begin of a fault that leaves nothing of a link for data to the moment an EV whose "
        "path crosses it is ASSUMED_BAD, over the mean round-trip time of the empty network; the first such "
        "EV of any queue pair.",
    ),
    "ev_retire_rtt_median": Definition("RTT", "As ev_retire_rtt_first, median over those EVs."),
    "ev_retire_rtt_last": Definition("RTT", "As ev_retire_rtt_first, the last one."),
    "evs_retired": Definition("EVs", "EVs that died by a fault and were retired; of all queue pairs."),
    "evs_dead_in_use": Definition(
        "EVs", "EVs that died, whose flow went on for six round trips more, and that were never retired."
    ),
    "ev_marks_true": Definition(
        "marks", "Changes of an EV to ASSUMED_BAD while it was dead, or up to three round trips after."
    ),
    "ev_marks_false": Definition("marks", "Changes of a healthy EV to ASSUMED_BAD."),
    "ev_false_marks_peak": Definition("EVs", "Most healthy EVs that were ASSUMED_BAD at one time."),
    "ev_false_marks_end": Definition(
        "EVs",
        "Healthy EVs that are ASSUMED_BAD one recovery time (probe interval × successes + 1 RTT) after the "
        "first fault began; without such faults, at the end.",
    ),
    "ev_recover_us": Definition(
        "µs", "Time from the end of a fault until the last EV that it had retired is GOOD again."
    ),
    "evs_not_recovered": Definition(
        "EVs", "EVs that were retired when their fault ended, and not GOOD again when the run ended."
    ),
    "window_packets": Definition(
        "packets",
        "Packets in flight that fill the links of one host: its rate times the mean round-trip time of its "
        "paths when empty, over the wire size of a full packet. Mean over flows.",
    ),
    "evs_per_window": Definition("1", "Entropy values of a queue pair over window_packets."),
    "buffer_over_bdp": Definition(
        "1",
        "Data queue of a switch port over the bandwidth-delay product of one link: its rate times the same "
        "round-trip time.",
    ),
    "rto_over_rtt": Definition(
        "1", "Retransmission timeout over the same round-trip time; null without one."
    ),
    "skew_over_rtt": Definition(
        "1",
        "Difference of the slowest and the fastest path, one way and empty, over the same round-trip time. "
        "Largest over flows.",
    ),
    "reverse_share": Definition(
        "1",
        "Share of what a sender put on the wire that was answers (SACK, ACK, NACK) to traffic towards it, "
        "mean over flows; the bounds allow for it.",
    ),
}
"""Every metric of a run, in the order of reports."""


def definitions_table() -> str:
    """Return the definitions as a Markdown table, as docs/experiments.md shows it."""
    rows = [f"| `{name}` | {item.unit} | {item.text} |" for name, item in DEFINITIONS.items()]
    return "\n".join(["| metric | unit | definition |", "|---|---|---|", *rows])
