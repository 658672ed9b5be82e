"""Where BTH and what follows it stand in the beats of a frame.

A packet that waits for its plane is kept as its *image*: BTH and body in the lanes in which they leave in a
frame without outer header, beat by beat. Fields of BTH that the template holds are zero in it, but for the QP
number of an endpoint response, which is no QP's. The lanes
before BTH in the first word hold what the engine must know of the packet, its *head*.
"""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data

from . import wire
from .config import NicConfig
from .records import BODY_BITS, DATA_BODY_BITS

__all__ = [
    "HEADER_BYTES",
    "IMAGE_START",
    "header_bytes",
    "image_beats",
    "image_head",
    "image_lane",
    "image_rotation",
    "image_words",
]

#: Bytes of a frame up to the end of its BTH, plain and SRv6.
HEADER_BYTES = tuple(
    wire.ETHERNET.bytes + outer + wire.IPV6.bytes + wire.UDP.bytes + wire.BTH.bytes
    for outer in (0, wire.IPV6.bytes)
)

#: Position of BTH in a frame without outer header.
IMAGE_START = HEADER_BYTES[0] - wire.BTH.bytes


def image_lane(config: NicConfig) -> int:
    """Lane of the first byte of BTH; at least 6."""
    return IMAGE_START % config.data_bytes


def image_rotation(config: NicConfig) -> int:
    """Lanes by which an outer header moves the image up, modulo the lanes of a beat."""
    return wire.IPV6.bytes % config.data_bytes


def image_words(config: NicConfig, *, control: bool) -> int:
    """Beats that the image of a control packet, or of a data packet, touches."""
    body = BODY_BITS if control else DATA_BODY_BITS
    return -(-(image_lane(config) + wire.BTH.bytes + body // 8) // config.data_bytes)


def image_beats(config: NicConfig) -> tuple[int, int]:
    """Beat of the frame in which the first word of the image (turned, if it is) begins, plain and SRv6."""
    start = IMAGE_START - image_lane(config)
    return (
        start // config.data_bytes,
        (start + wire.IPV6.bytes - image_rotation(config)) // config.data_bytes,
    )


def image_head(config: NicConfig) -> data.StructLayout:
    """What stands before BTH: at most 48 bits. ``body_words``: 4-byte words of body."""
    return data.StructLayout({"psn": 24, "retransmission": 1, "body_words": 4, "length": 13})


def header_bytes(header: wire.Header, **fields: Value) -> dict[int, Value]:
    """Bytes of a header, by position, that hold the given fields."""
    bits: list[Value] = [Const(0, 1)] * header.bits
    touched: set[int] = set()
    for name, value in fields.items():
        field = header[name]
        low = header.shift(name)
        assert len(value) <= field.bits, f"{name} has {field.bits} bits"
        for n in range(len(value)):
            bits[low + n] = value[n]
            touched.add((header.bits - 1 - low - n) // 8)
    return {byte: Cat(bits[header.bits - 8 * byte - 8 : header.bits - 8 * byte]) for byte in sorted(touched)}
