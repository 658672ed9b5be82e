"""Configurations that are small enough to prove."""

from dataclasses import dataclass

from mrc_rtl.config import NicConfig

__all__ = ["ProofConfig"]


@dataclass(frozen=True, kw_only=True)
class ProofConfig(NicConfig):
    """A configuration below the sizes a NIC may have: blocks compute everything from it all the same.

    Parameters
    ----------
    As of :class:`mrc_rtl.config.NicConfig`, but MTU, buffers and stashes may be any power of two.
    """

    def __post_init__(self) -> None:
        """Check nothing: what is too small shows in the proof's covers."""
