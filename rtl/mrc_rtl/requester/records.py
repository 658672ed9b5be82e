"""Records of the requester: what comes from the host and from bind, and what travels inside it."""

from amaranth.lib import data

from ..config import NicConfig
from ..records import plane_bits, transmit_descriptor

__all__ = [
    "completion_order",
    "doorbell_record",
    "ev_name",
    "failed_job",
    "fetch_command",
    "ready_slot",
    "slot_packet",
    "request_info",
    "request_layout",
    "retransmission_entry",
    "segment_job",
    "send_slot_bits",
    "sent_record",
]


def send_slot_bits(config: NicConfig) -> int:
    """Bits of the number of a send request inside its QP's ring."""
    return max(1, (config.send_queue_depth - 1).bit_length())


def ev_name(config: NicConfig) -> data.StructLayout:
    """An entropy value of a QP, by plane and number."""
    return data.StructLayout({"plane": plane_bits(config), "ev_index": 5})


def doorbell_record(config: NicConfig) -> data.StructLayout:
    """``count`` send requests behind those already posted are complete in the table."""
    return data.StructLayout({"qp": config.qp_bits, "count": 11})


def sent_record(config: NicConfig) -> data.StructLayout:
    """A data packet that left bind.

    ``ev`` and ``ev_index`` are the value and the number of its entropy value on ``plane``, ``time`` the low
    16 bits of the tick counter written into TSETH. With ``discard`` the packet did not leave, because its QP
    no longer sends, and only its resources are free again.
    """
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "psn": 24,
            "plane": plane_bits(config),
            "ev_index": 5,
            "ev": 32,
            "send_slot": send_slot_bits(config),
            "retransmission": 1,
            "discard": 1,
            "time": 16,
        }
    )


def fetch_command(config: NicConfig) -> data.StructLayout:
    """Read ``descriptor.length`` bytes at ``bus_address`` into a transmit slot."""
    return data.StructLayout({"bus_address": config.address_width, "descriptor": transmit_descriptor(config)})


def slot_packet(config: NicConfig) -> data.StructLayout:
    """A data packet and the transmit slot to which its payload is fetched."""
    return data.StructLayout(
        {
            "slot": max(1, (config.transmit_slots - 1).bit_length()),
            "descriptor": transmit_descriptor(config),
        }
    )


def ready_slot(config: NicConfig) -> data.StructLayout:
    """A transmit slot whose payload is complete, and the QP of its packet."""
    return data.StructLayout({"slot": max(1, (config.transmit_slots - 1).bit_length()), "qp": config.qp_bits})


def request_layout() -> data.StructLayout:
    """A send request as its 64-bit table words hold it (:data:`mrc_rtl.tables.SEND_REQUEST`)."""
    return data.StructLayout(
        {
            "wr_id": 64,
            "local_address": 64,
            "remote_address": 64,
            "length": 32,
            "local_key": 32,
            "immediate": 32,
            "remote_key": 32,
            "opcode": 8,
            "signalled": 1,
            "unused": 55,
        }
    )


def request_info() -> data.StructLayout:
    """What opening and completing a request needs; ``valid``: an opcode and length the engine can send."""
    return data.StructLayout({"length": 32, "immediate": 1, "signalled": 1, "valid": 1})


def segment_job(config: NicConfig) -> data.StructLayout:
    """One packet to build from the request in ``slot``: new or again, it is all the same."""
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "psn": 24,
            "slot": send_slot_bits(config),
            "retransmission": 1,
            "ack_request": 1,
        }
    )


def retransmission_entry(config: NicConfig) -> data.StructLayout:
    """A PSN to send again. ``again``: all is SACKed, but the transport ACK of its message is missing.

    ``rest``, with ``config.go_back_n``: everything from the context's ``resend`` on, ``psn`` says nothing.
    """
    rest = {"rest": 1} if config.go_back_n else {}
    return data.StructLayout({"qp": config.qp_bits, "psn": 24, "again": 1, **rest})


def failed_job(config: NicConfig) -> data.StructLayout:
    """A packet whose local region look-up failed."""
    return data.StructLayout({"qp": config.qp_bits, "psn": 24, "slot": send_slot_bits(config)})


def completion_order(config: NicConfig) -> data.StructLayout:
    """A request to be completed; its wr_id is still in the work queue."""
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "slot": send_slot_bits(config),
            "queue": 6,
            "status": 5,
            "immediate": 1,
            "length": 32,
            "message_number": 24,
        }
    )
