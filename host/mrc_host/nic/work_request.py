"""Send requests: what an RDMA WRITE, with or without immediate, is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import WorkRequestOpcode

__all__ = ["LONGEST_MESSAGE", "WriteOperands", "WriteRequest"]

LONGEST_MESSAGE = (1 << 32) - 1


class WriteOperands(TypedDict):
    """Keyword arguments that both kinds of writes share, see :class:`WriteRequest`."""

    local_address: int
    lkey: int
    length: int
    remote_address: int
    rkey: int
    signalled: NotRequired[bool]


@dataclass(frozen=True, kw_only=True)
class WriteRequest:
    """An RDMA WRITE.

    Parameters
    ----------
    wr_id : int
        Comes back in the completion, 64 bits.
    local_address, lkey : int
        Virtual address and key of the data.
    length : int
        Bytes, 1 to 2^32 − 1; 0 is allowed with an immediate.
    remote_address, rkey : int
        Virtual address and key at the peer.
    signalled : bool
        Write a completion on success; on failure there always is one.
    immediate : int, optional
        32 bits that complete a posted receive of the peer; None: a plain WRITE.

    Raises
    ------
    VerbsError
        EINVAL for a value out of range.
    """

    wr_id: int
    local_address: int
    lkey: int
    length: int
    remote_address: int
    rkey: int
    signalled: bool = True
    immediate: int | None = None

    def __post_init__(self) -> None:
        for name, bits in (
            ("wr_id", 64), ("local_address", 64), ("lkey", 32), ("remote_address", 64), ("rkey", 32),
        ):  # fmt: skip
            check_range(f"wr.{name}", getattr(self, name), 0, (1 << bits) - 1)
        check_range("wr.length", self.length, int(self.immediate is None), LONGEST_MESSAGE)
        if self.immediate is not None:
            check_range("wr.immediate", self.immediate, 0, (1 << 32) - 1)
        if self.signalled not in (False, True):
            raise VerbsError("EINVAL", "wr.signalled", self.signalled, "True or False")

    @property
    def opcode(self) -> WorkRequestOpcode:
        """Operation."""
        plain = self.immediate is None
        return WorkRequestOpcode.WRITE if plain else WorkRequestOpcode.WRITE_WITH_IMM

    def row(self) -> dict[str, int]:
        """Return the row of table SEND_REQUEST."""
        return {
            "wr_id": self.wr_id,
            "local_address": self.local_address,
            "remote_address": self.remote_address,
            "length": self.length,
            "local_key": self.lkey,
            "immediate": self.immediate or 0,
            "remote_key": self.rkey,
            "opcode": self.opcode,
            "signalled": self.signalled,
        }
