"""Congestion control profiles: the table CC_PROFILE, and parameters for a QP from it.

Source: protocol.md 2.7 (names and units of the controller API); table CC_PROFILE of :mod:`mrc_rtl.tables`.
"""

from __future__ import annotations

from struct import pack, unpack

from mrc_host.errors import ConfigError
from mrc_host.model.nscc import NsccParameters
from mrc_host.model.shell import CC_PROFILES

__all__ = ["CcProfiles"]

_REFERENCE_BYTES = 150_000
_REFERENCE_NS = 12_000


def _single(bits: int) -> float:
    """The value of an IEEE 754 single."""
    return float(unpack("<f", pack("<I", bits))[0])


class CcProfiles:
    """The rows of CC_PROFILE; one that was never written is all zero and cannot be used."""

    def __init__(self) -> None:
        self._rows: list[dict[str, int]] = [{} for _ in range(CC_PROFILES)]

    def write(self, index: int, fields: dict[str, int]) -> bool:
        """Replace a row; QPs that use it keep what they took."""
        if index >= CC_PROFILES:
            return False
        self._rows[index] = dict(fields)
        return True

    def read(self, index: int) -> dict[str, int] | None:
        """A row; None when there is none of that number."""
        return dict(self._rows[index]) if index < CC_PROFILES else None

    def base_rtt_ns(self, index: int) -> int:
        """Configured base RTT of a row, 0 when it was never written."""
        return self._rows[index].get("base_rtt", 0) if index < CC_PROFILES else 0

    def parameters(self, index: int, mtu: int, base_rtt_min_ns: int) -> NsccParameters | None:
        """Parameters for a QP with that MTU; None when the row does not hold allowed ones.

        An alpha of 0 means what follows from the largest window: 4 · a · MTU / 12 µs.
        """
        row = self._rows[index] if index < CC_PROFILES else {}
        if not row:
            return None
        alpha = _single(row["alpha"])
        if alpha == 0:
            alpha = 4 * mtu * row["max_cwnd"] / 1.5 / _REFERENCE_BYTES / _REFERENCE_NS
        try:
            return NsccParameters(
                mtu=mtu,
                base_rtt=row["base_rtt"],
                target_delay=row["target_delay"],
                max_cwnd=row["max_cwnd"],
                alpha=alpha,
                fi=_single(row["fi"]),
                eta=_single(row["eta"]),
                fi_scale=_single(row["fi_scale"]),
                gamma=_single(row["gamma"]),
                max_md_jump=_single(row["max_md_jump"]),
                adjust_bytes_threshold=row["adjust_bytes_threshold"],
                adjust_period_threshold=row["adjust_period_threshold"],
                qa_gate=row["qa_gate"],
                qa_threshold=row["qa_threshold"],
                disable_qa=row["disable_qa"] == 1,
                base_rtt_min=min(base_rtt_min_ns, row["base_rtt"]),
            )
        except ConfigError:
            return None
