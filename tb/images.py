"""Images of waiting packets (:mod:`mrc_rtl.frame_image`) for benches: built from fields, and taken apart."""

import random
from typing import Any

from mrc_rtl import records, wire
from mrc_rtl.config import NicConfig
from mrc_rtl.frame_image import image_lane, image_words

__all__ = ["build_image", "take_apart"]


def build_image(
    config: NicConfig,
    *,
    data: bool,
    opcode: int,
    psn: int,
    body: bytes,
    length: int = 0,
    ack_request: bool = False,
    retransmission: bool = False,
) -> list[int]:
    """Words of an image, with rubbish wherever the transmitter must not look."""
    lanes = config.data_bytes
    bth = wire.BTH.pack(
        opcode=opcode, psn=psn, pad_count=-length % 4, ack_req=int(ack_request), rtx=int(retransmission),
        ts=int(data), pkey=0,
        dest_qp=wire.ENDPOINT_QPN if opcode == wire.Opcode.ENDPOINT_RESPONSE else 0,
    )  # fmt: skip
    image = random.randbytes(image_lane(config)) + bth.to_bytes(wire.BTH.bytes, "big") + body
    if data:
        behind = image_lane(config) + wire.BTH.bytes + records.DATA_BODY_BITS // 8
        image += random.randbytes(behind - len(image))
        image = image.ljust(image_words(config, control=False) * lanes, b"\0")
    image += random.randbytes(image_words(config, control=True) * lanes - len(image))
    return [int.from_bytes(image[at : at + lanes], "little") for at in range(0, len(image), lanes)]


def take_apart(config: NicConfig, words: list[int], *, data: bool) -> dict[str, Any]:
    """Fields of the packet: those of BTH, and ``body`` as big-endian integer, as long as the kind has it."""
    image = b"".join(word.to_bytes(config.data_bytes, "little") for word in words)
    start = image_lane(config)
    bth = wire.BTH.unpack(int.from_bytes(image[start : start + wire.BTH.bytes], "big"))
    bits = records.DATA_BODY_BITS if data else records.BODY_BITS
    behind = start + wire.BTH.bytes
    body = int.from_bytes(image[behind : behind + bits // 8], "big")
    return {
        "opcode": bth["opcode"],
        "psn": bth["psn"],
        "pad_count": bth["pad_count"],
        "ack_request": bth["ack_req"],
        "retransmission": bth["rtx"],
        "timestamped": bth["ts"],
        "body": body,
    }
