"""Bytes of memory that an engine holds for each queue pair, found in the elaborated design.

What depends on a number is what the memories grow by when the number is doubled: nothing is estimated, and a
memory that somebody adds is counted. Registers per QP (a few bits) are not memory and are left out.

Source: profile.md 10 (state per QP).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mrc_rtl.config import NicConfig

__all__ = ["REFERENCE", "StateSize", "state_size"]

#: Configuration of the published figure: 128 PSNs, 4 planes × 32 EVs, 32 stashed immediates.
REFERENCE = NicConfig.default().with_(mpr_psns=128, qps=8)


@dataclass(frozen=True)
class StateSize:
    """What a queue pair occupies in the memories of an engine; all values in bytes.

    Parameters
    ----------
    blocks : mapping
        By block, the rings of posted work requests not included.
    per_psn : float
        One more PSN of the tracking range.
    per_send_request, per_receive_request : float
        One more entry of a ring.
    psns : int
        Tracking range the total is for.
    """

    blocks: Mapping[str, float]
    per_psn: float
    per_send_request: float
    per_receive_request: float
    psns: int

    @property
    def total(self) -> float:
        """Everything but the rings."""
        return sum(self.blocks.values())

    @property
    def without_psns(self) -> float:
        """Everything but the rings and what grows with the tracking range."""
        return self.total - self.per_psn * self.psns


def state_size(config: NicConfig = REFERENCE) -> StateSize:
    """Return what a queue pair of a configuration occupies."""
    base = _per_qp(config)
    send = _growth(base, config, send_queue_depth=2 * config.send_queue_depth)
    receive = _growth(base, config, receive_queue_depth=2 * config.receive_queue_depth)
    range_ = _growth(base, config, mpr_psns=2 * config.mpr_psns)
    blocks = {name: base[name] - send[name] - receive[name] for name in base}
    return StateSize(
        blocks={name: size for name, size in blocks.items() if size},
        per_psn=sum(range_.values()) / config.mpr_psns,
        per_send_request=sum(send.values()) / config.send_queue_depth,
        per_receive_request=sum(receive.values()) / config.receive_queue_depth,
        psns=config.mpr_psns,
    )


def _growth(base: Counter[str], config: NicConfig, **doubled: int) -> Counter[str]:
    """Return by how many bytes per QP each block grows when a number is doubled."""
    larger = _per_qp(config.with_(**doubled))
    return Counter({name: larger[name] - base[name] for name in base})


def _per_qp(config: NicConfig) -> Counter[str]:
    """Return the bytes by which each block grows with one more QP."""
    less, more = _memory_bits(config), _memory_bits(config.with_(qps=2 * config.qps))
    return Counter({name: (more[name] - less[name]) / 8 / config.qps for name in more})


def _memory_bits(config: NicConfig) -> Counter[str]:
    # Both import Amaranth, which takes longer than most commands run.
    from mrc_rtl.memory_rules import memories_of
    from mrc_rtl.nic import MrcNic

    bits: Counter[str] = Counter()
    for memory in memories_of(MrcNic(config)):
        bits[memory.path.split(".")[0]] += memory.width * memory.depth
    return bits
