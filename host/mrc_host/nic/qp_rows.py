"""Rows of the engine's tables that a queue pair's attributes make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mrc_host.nic.capabilities import MPR_UNIT_PSNS
from mrc_host.nic.qp_attributes import QpHint, Retry
from mrc_rtl.tables import QpState

__all__ = ["option_row", "receive_row", "send_row"]

SMALLEST_MTU = 256


def send_row(state: QpState, domain: int, queue: int, attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the row of table QP_SEND.

    Parameters
    ----------
    state : QpState
    domain, queue : int
        Numbers of protection domain and completion queue.
    attributes : mapping
        What has been set so far, see :mod:`mrc_host.nic.qp_attributes`.
    """
    fields: dict[str, int] = {
        "state": state,
        "protection_domain": domain,
        "completion_queue": queue,
        "mtu_log2": attributes.get("path_mtu", SMALLEST_MTU).bit_length() - 1,
    }
    if "ev_profile" in attributes:
        fields["ev_profile"] = attributes["ev_profile"].number
        fields["go_back_n"] = attributes["go_back_n"]
    if "path_mtu" in attributes:
        fields["mpr_psns"] = attributes["mpr_psns"]
        fields["max_immediates"] = attributes["max_wimm_dest"]
    if "sq_psn" in attributes:
        retry: Retry = attributes["retry"]
        fields["initial_psn"] = attributes["sq_psn"]
        fields["timeout"] = attributes["timeout"]
        fields["linear_count"] = retry.linear_cnt
        fields["exponential_count"] = retry.exp_cnt
    return fields


def receive_row(state: QpState, domain: int, queue: int, attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the row of table QP_RECEIVE; parameters as for :func:`send_row`."""
    fields: dict[str, int] = {"state": state, "protection_domain": domain, "completion_queue": queue}
    if "path" in attributes:
        fields["in_order"] = attributes["go_back_n"]
        peer = attributes["path"].destination
        fields["partition_key"] = attributes["partition_key"]
        fields["peer_qpn"] = attributes["dest_qp_num"]
        fields["initial_psn"] = attributes["rq_psn"]
        fields["peer_high"] = peer >> 64
        fields["peer_low"] = peer & (1 << 64) - 1
    return fields


def option_row(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the row of table QP_OPTION."""
    profile = attributes.get("cc_profile")
    hint = attributes.get("hint") or QpHint()
    fields: dict[str, int] = {
        "cc_profile": profile.number if profile is not None else 0,
        "cc_enabled": profile is not None and profile.enabled,
        "own_mpr_psns": attributes.get("mpr", 0) * MPR_UNIT_PSNS,
        "own_max_immediates": attributes.get("max_wimm", 0),
        "qps_per_peer": hint.num_qps_per_peer,
        "send_peers": hint.num_send_peers,
        "receive_peers": hint.num_remote_recv_peers,
    }
    for name in (
        "dynamic_mpr",
        "trim_nack_dest_unsupported",
        "svc_time_dest_unsupported",
        "probes_dest_unsupported",
        "requests_dest_unsupported",
    ):
        fields[name] = attributes.get(name, False)
    return fields
