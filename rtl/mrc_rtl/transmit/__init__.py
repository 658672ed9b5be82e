"""From a packet in host memory to a frame on a port: fetch, headers, ICRC, plane FIFOs."""

from .payload_fetch import PayloadFetch
from .transmitter import Transmitter

__all__ = ["PayloadFetch", "Transmitter"]
