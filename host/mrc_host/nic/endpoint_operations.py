"""Endpoint operations: EV probes and port status updates of a controller, in batches.

Source: protocol.md 1.13, 1.14, 2.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mrc_host.fabric.usid import ev_fields
from mrc_host.nic.ev_format import ADDRESS_BITS
from mrc_host.nic.ev_values import EvKey
from mrc_host.nic.numbers import NumberPool
from mrc_host.nic.path import Path
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import (
    ControlTableId,
    DeviceFlag,
    Encapsulation,
    EndpointOperation,
    EndpointStatus,
)

if TYPE_CHECKING:
    from mrc_host.nic.context import Context
    from mrc_host.nic.ev_profile import EvProfile

__all__ = ["EndpointBatch", "EndpointOperations", "EndpointRequest", "EndpointResult"]

#: Request numbers of the host; the device takes its own from here on.
HOST_REQUEST_IDS = 0x4000
#: A number is not used again before the fabric has surely lost its last packet.
DRAIN_PS = 10_000_000_000
DEFAULT_TIMEOUT_NS = 2_000_000
_HALF = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True)
class EndpointRequest:
    """One request of a batch.

    Parameters
    ----------
    path : Path
        From this host to the one that is asked, which may be itself.
    port : int
        Port it leaves on, from 1.
    value : int
        32-bit entropy value on the wire.
    operation : EndpointOperation
        EV_PROBE by default.
    expanded : int, optional
        Outer destination and segment behind it, 256 bits, for SRv6 values that a profile expands; without it
        the path's template makes the destination.
    segment : bool
        A routing header carries the segment.
    port_mask : int
        PORT_STATUS_UPDATE: ports that are reachable, bit = port − 1.
    req_tc : int, optional
        DSCP of the request, by default that of data which must not be trimmed.
    request_id : int, optional
        Number of the request, 0 to 16,383; by default one that is free.
    """

    path: Path
    port: int
    value: int
    operation: EndpointOperation = EndpointOperation.EV_PROBE
    expanded: int | None = None
    segment: bool = False
    port_mask: int = 0
    req_tc: int | None = None
    request_id: int | None = None

    @classmethod
    def of_profile(cls, profile: EvProfile, ev: EvKey, path: Path) -> EndpointRequest:
        """Return the probe of a value of a profile.

        Raises
        ------
        VerbsError
            ENOENT when the profile does not have it, EINVAL when it breaks a rule of the fields.
        """
        array = profile.array
        row = array.row(array.find(ev)[0])
        expanded = None
        if array.expanded:
            names = ("destination_high", "destination_low", "segment_high", "segment_low")
            expanded = sum(row[name] << shift for name, shift in zip(names, (192, 128, 64, 0), strict=True))
        return cls(path=path, port=ev.port, value=row["value"], expanded=expanded, segment=array.has_segment)


@dataclass(frozen=True)
class EndpointResult:
    """What became of a request.

    Parameters
    ----------
    status : EndpointStatus
        ANSWERED or TIMED_OUT.
    port : int
        Port the answer came in on, from 1; 0 without one.
    rtt_ns : int
        Round-trip time.
    adj_svc_time : bool
        The round-trip time leaves out the peer's service time.
    """

    status: EndpointStatus
    port: int = 0
    rtt_ns: int = 0
    adj_svc_time: bool = False

    @property
    def answered(self) -> bool:
        """Whether there was an answer in time."""
        return self.status is EndpointStatus.ANSWERED


class EndpointBatch:
    """Requests that were posted together.

    Attributes
    ----------
    requests : tuple of EndpointRequest
    request_ids : tuple of int
        Number of each request.
    results : list of EndpointResult or None
        For each request; None while it waits.
    """

    def __init__(
        self, operations: EndpointOperations, requests: Sequence[EndpointRequest], request_ids: Sequence[int]
    ) -> None:
        self._operations = operations
        self.requests = tuple(requests)
        self.request_ids = tuple(request_ids)
        self.results: list[EndpointResult | None] = [None] * len(requests)

    @property
    def done(self) -> bool:
        """Whether every request has its result, as far as software has read."""
        return None not in self.results

    def poll(self) -> bool:
        """Read what has come in, and return :attr:`done`."""
        self._operations.read()
        return self.done


@dataclass(frozen=True)
class _Waiting:
    batch: EndpointBatch
    number: int
    request_id: int


class EndpointOperations:
    """The endpoint requests of a device; ``Context.endpoint_operations``.

    Parameters
    ----------
    context : Context
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._slots = NumberPool("device.endpoint_requests", context.capabilities.endpoint_slots)
        self._waiting: dict[int, _Waiting] = {}
        self._retired: dict[int, int] = {}
        self._next_id = 0
        context.notices.on_endpoint_done = self._done

    def post(
        self, requests: Sequence[EndpointRequest], *, timeout_ns: int = DEFAULT_TIMEOUT_NS
    ) -> EndpointBatch:
        """Send requests.

        Parameters
        ----------
        requests : sequence of EndpointRequest
            At least one.
        timeout_ns : int
            After this time a request is given up.

        Raises
        ------
        VerbsError
            EINVAL for a value or a request number that is still in use, ENOMEM when more would be
            outstanding than ``endpoint_slots``, EOPNOTSUPP for an operation that the device does not have.
            Nothing has been sent then.
        """
        check_range("endpoint.timeout_ns", timeout_ns, 1, (1 << 32) - 1)
        free = self.context.capabilities.endpoint_slots - len(self._waiting)
        if not 1 <= len(requests) <= free:
            raise VerbsError(
                "ENOMEM" if requests else "EINVAL", "endpoint.requests", len(requests),
                f"between 1 and {free}, the requests that may still be outstanding",
            )  # fmt: skip
        rows = [self._row(f"endpoint.requests[{n}]", request) for n, request in enumerate(requests)]
        numbers: list[int] = []
        for position, request in enumerate(requests):
            numbers.append(self._number(f"endpoint.requests[{position}].request_id", request, numbers))
        batch = EndpointBatch(self, requests, numbers)
        for position, (row, number) in enumerate(zip(rows, numbers, strict=True)):
            slot = self._slots.take()
            self._waiting[slot] = _Waiting(batch, position, number)
            self.context.driver.write_table(
                ControlTableId.ENDPOINT_OPERATION, slot, {**row, "request_id": number, "timeout": timeout_ns}
            )
        return batch

    def read(self) -> None:
        """Take the results that stand in the notice ring; at once also those whose notice was dropped."""
        self.context.notices.read()
        if self.context.driver.time_ps is not None:
            return
        for slot in list(self._waiting):
            row = self.context.driver.read_table(ControlTableId.ENDPOINT_OPERATION, slot)
            if row["status"] in (EndpointStatus.ANSWERED, EndpointStatus.TIMED_OUT):
                port, rtt = row["answer_port"], row["rtt"]
                self._finish(
                    slot, EndpointResult(EndpointStatus(row["status"]), port, rtt, bool(row["adjusted"]))
                )

    # -- inside ------------------------------------------------------------------------------------------

    def _done(self, fields: dict[str, int]) -> None:
        waiting = self._waiting.get(fields["slot"])
        # A notice may come after its result was read from the table.
        if waiting is not None and waiting.request_id == fields["request_id"]:
            status = EndpointStatus(fields["state"])
            result = EndpointResult(status, fields["port"], fields["value"], bool(fields["adjusted"]))
            self._finish(fields["slot"], result)

    def _finish(self, slot: int, result: EndpointResult) -> None:
        waiting = self._waiting.pop(slot)
        waiting.batch.results[waiting.number] = result
        self._retired[waiting.request_id] = self._now
        self._slots.release(slot)

    @property
    def _now(self) -> int:
        scheduled = self.context.driver.time_ps
        return self.context.nic.time_ps if scheduled is None else scheduled

    def _blocked(self, number: int, others: Sequence[int]) -> bool:
        if number in others or any(item.request_id == number for item in self._waiting.values()):
            return True
        retired = self._retired.get(number)
        return retired is not None and self._now - retired < DRAIN_PS

    def _number(self, attribute: str, request: EndpointRequest, others: Sequence[int]) -> int:
        if request.request_id is not None:
            number = check_range(attribute, request.request_id, 0, HOST_REQUEST_IDS - 1)
            if self._blocked(number, others):
                raise VerbsError("EINVAL", attribute, number, "unique until the fabric has drained (10 ms)")
            return number
        for _ in range(HOST_REQUEST_IDS):
            number = self._next_id
            self._next_id = (self._next_id + 1) % HOST_REQUEST_IDS
            if not self._blocked(number, others):
                return number
        raise VerbsError("EAGAIN", attribute, None, "free within the last 10 ms")

    def _row(self, where: str, request: EndpointRequest) -> dict[str, int]:
        capabilities = self.context.capabilities
        if not isinstance(request, EndpointRequest):
            raise VerbsError("EINVAL", where, request, "of type EndpointRequest")
        operation = request.operation
        if not isinstance(operation, EndpointOperation):
            raise VerbsError("EINVAL", f"{where}.operation", operation, "of type EndpointOperation")
        flag = (
            DeviceFlag.EP_EV_PROBE
            if operation is EndpointOperation.EV_PROBE
            else DeviceFlag.EP_PORT_STATUS_UPDATE
        )
        capabilities.require(flag, f"{where}.operation", operation.name)
        if not isinstance(request.path, Path):
            raise VerbsError("EINVAL", f"{where}.path", request.path, "of type Path")
        port = check_range(f"{where}.port", request.port, 1, capabilities.planes)
        value = check_range(f"{where}.value", request.value, 0, (1 << 32) - 1)
        mask = check_range(f"{where}.port_mask", request.port_mask, 0, (1 << capabilities.planes) - 1)
        dscp = self.context.settings.dscp_no_trim if request.req_tc is None else request.req_tc
        row = {
            "operation": operation,
            "port": port,
            "dscp": check_range(f"{where}.req_tc", dscp, 0, 63),
            "value": value,
            "port_mask": mask,
            "encapsulation": Encapsulation.PLAIN,
        }
        if not isinstance(request.segment, bool):
            raise VerbsError("EINVAL", f"{where}.segment", request.segment, "True or False")
        if request.segment:
            capabilities.require(DeviceFlag.FORMAT_SRV6_SRH, f"{where}.segment", request.segment)
            if request.expanded is None:
                raise VerbsError("EINVAL", f"{where}.segment", True, "False unless the value is expanded")
        row.update(_halves("peer", request.path.destination))
        if request.path.outer is not None:
            row["encapsulation"] = Encapsulation.SRV6
            row["segment"] = int(request.segment)
            row.update(_halves("source", request.path.outer.outer_source(port - 1)))
            expanded = self._expanded(where, request)
            row.update(_halves("destination", expanded >> ADDRESS_BITS))
            row.update(_halves("segment", expanded & (1 << ADDRESS_BITS) - 1))
        elif request.expanded is not None:
            raise VerbsError(
                "EINVAL", f"{where}.expanded", request.expanded, "left out without an outer path"
            )
        return row

    def _expanded(self, where: str, request: EndpointRequest) -> int:
        outer = request.path.outer
        assert outer is not None
        if request.expanded is not None:
            return check_range(f"{where}.expanded", request.expanded, 0, (1 << 2 * ADDRESS_BITS) - 1)
        try:
            fields = ev_fields(request.value)
        except ValueError:
            raise VerbsError(
                "EINVAL", f"{where}.value", request.value, "one that begins with 0b11000"
            ) from None
        if fields.plane != request.port - 1:
            raise VerbsError(
                "EINVAL", f"{where}.value.plane", fields.plane, f"{request.port - 1}, that of the port"
            )
        return outer.outer_destination(fields.plane, fields.uplink) << ADDRESS_BITS


def _halves(name: str, address: int) -> dict[str, int]:
    return {f"{name}_high": address >> 64, f"{name}_low": address & _HALF}
