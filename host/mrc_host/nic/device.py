"""The device API in one place: what applications import.

The order of a typical use::

    context = Context(nic, Identity.of_host(plan, host))
    domain, queue = context.protection_domain(), context.completion_queue()
    buffer = context.allocator.allocate(1 << 20)
    region = domain.register(buffer, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    profile = context.ev_profile(EvProfile.by_plane(plan.ev_set(32), planes=4))
    pair = context.queue_pair(domain, queue)
    pair.to_init(profile)
    pair.to_rtr(Path(own, peer, plan.template(host, other)), endpoint_of_peer, path_mtu=4096)
    pair.to_rts(sq_psn=own_psn)
    pair.write(1, local_address=..., lkey=region.lkey, length=..., remote_address=..., rkey=...)
    queue.poll()

Names, states and error conditions are those of the verbs and of the OCP MRC headers; what those tell by errno
is raised as :class:`VerbsError`.
"""

from __future__ import annotations

from mrc_host.nic.capabilities import Capabilities, DeviceFlag
from mrc_host.nic.cc_profile import CcProfile, NsccConfig
from mrc_host.nic.completion import CompletionQueue, WorkCompletion
from mrc_host.nic.connection import Endpoint, RemoteRegion
from mrc_host.nic.context import AsyncEvent, Context, Identity, Settings
from mrc_host.nic.counters import Counters, read_counters
from mrc_host.nic.endpoint_operations import EndpointBatch, EndpointRequest, EndpointResult
from mrc_host.nic.ev_batch import EvArrayEntry, EvBatchError, EvFlag, EvQuery, EvReplacement, EvStateChange
from mrc_host.nic.ev_checks import EvEventMask, EvMode
from mrc_host.nic.ev_format import EvFormat, EvFormatMode
from mrc_host.nic.ev_profile import EvProfile
from mrc_host.nic.ev_values import UNPOPULATED, EvKey
from mrc_host.nic.life_cycle import ProfileState
from mrc_host.nic.memory import Access, Allocator, Buffer, MemoryRegion, ProtectionDomain
from mrc_host.nic.notices import EvEvent
from mrc_host.nic.path import Path
from mrc_host.nic.ports import PortAttributes, PortState
from mrc_host.nic.qp_attributes import QpHint, Retry
from mrc_host.nic.qp_status import QpStatus
from mrc_host.nic.queue_pair import QueuePair
from mrc_host.nic.verbs_error import VerbsError
from mrc_host.nic.work_request import WriteRequest
from mrc_host.packets.ev_expansion import EvField
from mrc_rtl.tables import (
    CompletionStatus,
    EndpointOperation,
    EndpointStatus,
    EventKind,
    EvState,
    QpErrorReason,
    QpState,
    WorkRequestOpcode,
)

__all__ = [
    "UNPOPULATED",
    "Access",
    "Allocator",
    "AsyncEvent",
    "Buffer",
    "Capabilities",
    "CcProfile",
    "CompletionQueue",
    "CompletionStatus",
    "Context",
    "Counters",
    "DeviceFlag",
    "Endpoint",
    "EndpointBatch",
    "EndpointOperation",
    "EndpointRequest",
    "EndpointResult",
    "EndpointStatus",
    "EvArrayEntry",
    "EvBatchError",
    "EvEvent",
    "EvEventMask",
    "EvField",
    "EvFlag",
    "EvFormat",
    "EvFormatMode",
    "EvKey",
    "EvMode",
    "EvProfile",
    "EvQuery",
    "EvReplacement",
    "EvState",
    "EvStateChange",
    "EventKind",
    "Identity",
    "MemoryRegion",
    "NsccConfig",
    "Path",
    "PortAttributes",
    "PortState",
    "ProfileState",
    "ProtectionDomain",
    "QpErrorReason",
    "QpHint",
    "QpState",
    "QpStatus",
    "QueuePair",
    "RemoteRegion",
    "Retry",
    "Settings",
    "VerbsError",
    "WorkCompletion",
    "WorkRequestOpcode",
    "WriteRequest",
    "connect",
    "read_counters",
]


def connect(
    first: QueuePair,
    second: QueuePair,
    *,
    profiles: tuple[EvProfile, EvProfile],
    paths: tuple[Path, Path],
    path_mtu: int,
    starting_psns: tuple[int, int] = (0, 0),
    timeout: int = 7,
    retry: Retry | None = None,
) -> None:
    """Walk two queue pairs from RESET to RTS, connected with each other.

    Parameters
    ----------
    first, second : QueuePair
        The ends.
    profiles, paths, starting_psns : tuple
        Entropy values, way to the other end, and first PSN sent, of each end.
    path_mtu, timeout, retry
        Of both.

    Raises
    ------
    VerbsError
        An attribute is not allowed.
    """
    pairs = (first, second)
    endpoints = [pair.endpoint(psn) for pair, psn in zip(pairs, starting_psns)]
    for end, pair in enumerate(pairs):
        pair.to_init(profiles[end])
        pair.to_rtr(paths[end], endpoints[1 - end], path_mtu=path_mtu)
    for end, pair in enumerate(pairs):
        pair.to_rts(sq_psn=starting_psns[end], timeout=timeout, retry=retry)
