"""Decode bytes into a :class:`Packet` and encode it back, without loss.

``encode(decode(frame)) == frame`` holds for any bytes. Decoding goes as far as the bytes do and lists what
is wrong, and at which byte. :func:`complete` and :func:`build` make packets: they fill in lengths, next
headers, pad and ICRC. Simulation loops that only look use :func:`mrc_host.packets.peek.peek`.

Source: protocol.md 1.
"""

from .decoding import STARTS, decode, recognise
from .encoding import build, complete, encode
from .packet import COMPUTE_ICRC, TRIMMED_DSCPS, HeaderValue, Packet, Problem

__all__ = [
    "COMPUTE_ICRC",
    "STARTS",
    "TRIMMED_DSCPS",
    "HeaderValue",
    "Packet",
    "Problem",
    "build",
    "complete",
    "decode",
    "encode",
    "recognise",
]
