"""What the two ends of a connection tell each other through the application's own channel, as JSON.

MRC has no connection manager: the ends exchange one of these each, by whatever channel they have.

Source: protocol.md 1.20 (Table 10-1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import AddressValueError, IPv6Address
from typing import Any

from mrc_host.nic.capabilities import PROTOCOL_VERSION_1
from mrc_host.nic.verbs_error import VerbsError, check_range

__all__ = ["ENDPOINT_FORMAT", "ENDPOINT_VERSION", "Endpoint", "RemoteRegion"]

ENDPOINT_FORMAT = "mrc-endpoint"
ENDPOINT_VERSION = 2
_PSN, _U16, _U32, _U64 = (1 << 24) - 1, (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1
LEAST_QPN = 3


@dataclass(frozen=True)
class RemoteRegion:
    """Memory that the other end may write.

    Parameters
    ----------
    address, length : int
        Virtual address and bytes.
    rkey : int
    name : str
        What the applications call it.
    """

    address: int
    length: int
    rkey: int
    name: str = ""


@dataclass(frozen=True)
class Endpoint:
    """One end of a connection.

    Parameters
    ----------
    qp_number : int
    starting_psn : int
        First PSN this end sends.
    address : int
        Inner IPv6 address.
    mpr : int
        Tracking range in units of 128 PSNs, ``MRC_QP_MAX_MPR_DEST`` of the other end.
    max_wimm : int
        WRITE WITH IMMEDIATEs in flight this end can stash, ``MRC_QP_MAX_WIMM_DEST`` of the other end.
    dynamic_mpr : bool
        This end wants to tell its tracking range in every SACK; it is done when both want it.
    trim_nack : bool
        This end answers trimmed packets.
    svc_time : bool
        This end takes its service time out of reflected timestamps.
    regions : tuple of RemoteRegion
        Memory the other end may write.
    protocol_version : int
        Mask of the versions this end speaks.
    probe_answers : bool
        This end answers reliability probes.
    endpoint_answers : bool
        This end answers endpoint requests: EV probes and port status updates.
    """

    qp_number: int
    starting_psn: int
    address: int
    mpr: int
    max_wimm: int
    dynamic_mpr: bool = False
    trim_nack: bool = True
    svc_time: bool = False
    regions: tuple[RemoteRegion, ...] = ()
    protocol_version: int = PROTOCOL_VERSION_1
    probe_answers: bool = True
    endpoint_answers: bool = True

    def region(self, name: str) -> RemoteRegion:
        """Return the region of a name.

        Raises
        ------
        VerbsError
            ENOENT when the end has none of that name.
        """
        for region in self.regions:
            if region.name == name:
                return region
        raise VerbsError("ENOENT", "endpoint.regions.name", name, "one the other end told of")

    def to_json(self) -> str:
        """Return the text that :meth:`from_json` reads."""
        document: dict[str, Any] = {"format": ENDPOINT_FORMAT, "version": ENDPOINT_VERSION}
        for field in fields(self):
            document[field.name] = getattr(self, field.name)
        document["address"] = str(IPv6Address(self.address))
        document["regions"] = [
            {
                "name": region.name,
                "address": hex(region.address),
                "length": region.length,
                "rkey": hex(region.rkey),
            }
            for region in self.regions
        ]
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Endpoint:
        """Read what the other end wrote, and check all of it.

        Raises
        ------
        VerbsError
            EINVAL for text that is not JSON, another format or version, a key that is missing or unknown, or
            a value of the wrong type or out of range.
        """
        try:
            document = json.loads(text)
        except (TypeError, ValueError):
            raise VerbsError("EINVAL", "endpoint", _short(text), "JSON") from None
        if not isinstance(document, dict):
            raise VerbsError("EINVAL", "endpoint", _short(text), "a JSON object")
        for name, expected in (("format", ENDPOINT_FORMAT), ("version", ENDPOINT_VERSION)):
            found = document.pop(name, None)
            if found != expected or isinstance(found, bool):
                raise VerbsError("EINVAL", f"endpoint.{name}", found, str(expected))
        names = [field.name for field in fields(cls)]
        _check_keys("endpoint", document, names)
        regions = document["regions"]
        if not isinstance(regions, list):
            raise VerbsError("EINVAL", "endpoint.regions", regions, "a list")
        check_range("endpoint.protocol_version", document["protocol_version"], 1, _U32)
        if not document["protocol_version"] & PROTOCOL_VERSION_1:
            raise VerbsError(
                "EOPNOTSUPP",
                "endpoint.protocol_version",
                document["protocol_version"],
                "a mask with version 1",
            )
        return cls(
            qp_number=check_range("endpoint.qp_number", document["qp_number"], LEAST_QPN, _PSN),
            starting_psn=check_range("endpoint.starting_psn", document["starting_psn"], 0, _PSN),
            address=_address(document["address"]),
            mpr=check_range("endpoint.mpr", document["mpr"], 1, 255),
            max_wimm=check_range("endpoint.max_wimm", document["max_wimm"], 1, _U16),
            dynamic_mpr=_boolean("dynamic_mpr", document),
            trim_nack=_boolean("trim_nack", document),
            svc_time=_boolean("svc_time", document),
            regions=tuple(_region(f"endpoint.regions[{n}]", item) for n, item in enumerate(regions)),
            protocol_version=document["protocol_version"],
            probe_answers=_boolean("probe_answers", document),
            endpoint_answers=_boolean("endpoint_answers", document),
        )


def _check_keys(where: str, document: Mapping[str, object], names: list[str]) -> None:
    for name in names:
        if name not in document:
            raise VerbsError("EINVAL", f"{where}.{name}", None, "given")
    for name in document:
        if name not in names:
            raise VerbsError("EINVAL", f"{where}.key", name, f"one of {', '.join(names)}")


def _region(where: str, item: object) -> RemoteRegion:
    if not isinstance(item, dict):
        raise VerbsError("EINVAL", where, item, "an object")
    _check_keys(where, item, ["name", "address", "length", "rkey"])
    if not isinstance(item["name"], str):
        raise VerbsError("EINVAL", f"{where}.name", item["name"], "text")
    address = check_range(f"{where}.address", _hexadecimal(f"{where}.address", item["address"]), 0, _U64)
    return RemoteRegion(
        address=address,
        length=check_range(f"{where}.length", item["length"], 1, (1 << 64) - address),
        rkey=check_range(f"{where}.rkey", _hexadecimal(f"{where}.rkey", item["rkey"]), 0, _U32),
        name=item["name"],
    )


def _hexadecimal(attribute: str, value: object) -> int:
    if isinstance(value, str) and value.startswith("0x"):
        try:
            return int(value, 16)
        except ValueError:
            pass
    raise VerbsError("EINVAL", attribute, value, 'hexadecimal text such as "0x7f00"')


def _address(value: object) -> int:
    if isinstance(value, str):
        try:
            return int(IPv6Address(value))
        except AddressValueError:
            pass
    raise VerbsError("EINVAL", "endpoint.address", value, "an IPv6 address")


def _boolean(name: str, document: Mapping[str, object]) -> bool:
    value = document[name]
    if isinstance(value, bool):
        return value
    raise VerbsError("EINVAL", f"endpoint.{name}", value, "true or false")


def _short(text: object) -> str:
    shown = str(text)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
