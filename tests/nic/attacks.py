"""What an attacker on the wire can send, one entry for each row of docs/security.md."""

from collections.abc import Callable
from dataclasses import dataclass

from fuzz_bed import FIRST_PSN, GOOD, GOOD_PSN, IDLE, RESET, TARGET
from fuzz_craft import ATTACKER, OUTER_AT, PEER, PLAIN, ROUTED, SRV6, Crafter, Draft, Hostile, control, write
from fuzz_frames import mark

from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import PortCounter
from mrc_rtl.wire import AethSyndrome, Dscp, EtherType, NackReason, Opcode

SENT = range(7, 11)
"""PSNs the attacker's queue pair has sent, see ``fuzz_bed.SENT_BYTES``."""


@dataclass(frozen=True)
class Attack:
    """One kind of attack.

    Parameters
    ----------
    frames : callable
        Makes its variants from a :class:`Kit`.
    counted : tuple of PortCounter
        Every outcome its frames have.
    answers : tuple
        What the NIC sends back to the attacker: opcode, and a field of its header with its value.
    fails : bool
        The queue pair the frame is for goes to ERROR; then each variant meets a new one.
    engine : str
        Counter of the engine that goes up, "" for none.
    quiet : bool
        Nothing at all is sent back.
    """

    frames: Callable
    counted: tuple
    answers: tuple = ()
    fails: bool = False
    engine: str = ""
    quiet: bool = False


ATTACKS = {}


def attack(*counted, **expected):
    """Register a function under its name with dashes."""

    def add(function):
        ATTACKS[function.__name__.replace("_", "-")] = Attack(function, counted, **expected)
        return function

    return add


class Kit:
    """What the attacker makes frames with.

    Parameters
    ----------
    regions : dict
        Of the NIC under test, by name.
    """

    def __init__(self, regions):
        self.crafter = Crafter()
        self.regions = regions
        self.target = regions["target"]

    def write(
        self, psn=FIRST_PSN, size=64, *, region=None, offset=0, address=None, rkey=None, plane=0,
        qpn=QP_NUMBER_BASE + TARGET, **options,
    ):  # fmt: skip
        """A good write to the attacker's own region, but for what is said."""
        region = region or self.target
        content = (bytes(range(256)) * (size // 256 + 1))[:size]
        where = region.address + offset if address is None else address
        packet = write(psn, content, where, region.rkey if rkey is None else rkey)
        return self.crafter.draft(packet, plane, qpn=qpn, **options)

    def control(self, opcode, psn=0, *, plane=0, qpn=QP_NUMBER_BASE + TARGET, source=ATTACKER, **fields):
        return self.crafter.draft(control(opcode, psn, **fields), plane, qpn=qpn, source=source)


def sealed(draft):
    """With a right ICRC over what was changed."""
    draft.seal()
    return draft


# -- memory ------------------------------------------------------------------------------------------------

_NAK = (Opcode.ACKNOWLEDGE, "syndrome", AethSyndrome.NAK_REMOTE_ACCESS)


@attack(PortCounter.DROP_ACCESS, answers=_NAK, fails=True)
def wrong_r_key(kit):
    key = kit.target.rkey
    for wrong in (0, 0xFFFFFFFF, key ^ 1, key ^ 0x100, key ^ 0x80000000):
        yield kit.write(rkey=wrong)
    for name in ("local", "foreign", "gone", "good"):
        yield kit.write(region=kit.regions[name])


@attack(PortCounter.DROP_ACCESS, answers=_NAK, fails=True)
def address_out_of_bounds(kit):
    length = kit.target.length
    for offset in (-1, -63, -64, length - 63, length - 1, length, length + 4096, 1 << 32):
        yield kit.write(offset=offset)


@attack(PortCounter.DROP_ACCESS, answers=_NAK, fails=True)
def wrapping_address(kit):
    for address in ((1 << 64) - 1, (1 << 64) - 63, (1 << 64) - 64, (1 << 63) + kit.target.address, 0):
        yield kit.write(address=address)


# -- queue pairs -------------------------------------------------------------------------------------------


@attack(PortCounter.DROP_QP, PortCounter.DROP_PEER, PortCounter.DROP_PKEY, quiet=True)
def foreign_queue_pair(kit):
    numbers = [0, 1, 2, 3, 0xFF, 0xFFFFFF, 0x10100, *(QP_NUMBER_BASE + index for index in (RESET, 4, 0x100))]
    for number in numbers:
        yield kit.write(qpn=number)
    for index in (GOOD, IDLE):
        yield kit.write(qpn=QP_NUMBER_BASE + index)
        yield kit.control(Opcode.SACK, 8, qpn=QP_NUMBER_BASE + index)
        yield kit.write(qpn=QP_NUMBER_BASE + index, source=PEER, key=0x1234)
    yield kit.write(source=PEER)


@attack(PortCounter.ACCEPTED)
def forged_peer(kit):
    """Everything right: nothing tells it from the peer's own."""
    yield kit.write(FIRST_PSN, offset=100)


@attack(PortCounter.DUPLICATE, answers=(Opcode.SACK, "pr", 0))
def stale_psn(kit):
    for distance in (1, 2, 127, 128, 0x7FFF00):
        yield kit.write(FIRST_PSN - distance)
    yield kit.write(GOOD_PSN - 0x1000, qpn=QP_NUMBER_BASE + GOOD, source=PEER)


@attack(PortCounter.ACCEPTED, PortCounter.DUPLICATE, answers=(Opcode.SACK, "pr", 0))
def replay(kit):
    first = kit.write(FIRST_PSN + 3, size=300)
    other = kit.write(FIRST_PSN + 3, size=300, offset=4000)
    yield from (first, first, other, first)


@attack(PortCounter.DROP_WINDOW, answers=(Opcode.NACK, "nack_reason", NackReason.PSN_OOR_WINDOW))
def psn_beyond_the_window(kit):
    for distance in (128, 129, 1000, 0x7FFFFF):
        yield kit.write(FIRST_PSN + distance)
    yield kit.write(GOOD_PSN + 0x1000, qpn=QP_NUMBER_BASE + GOOD, source=PEER)


# -- feedback ----------------------------------------------------------------------------------------------


@attack(PortCounter.CONTROL, engine="feedback_ignored", quiet=True)
def forged_sack(kit):
    """Beyond what was sent, ahead of it by half the PSN space, and behind it."""
    for psn in (SENT[-1] + 1, SENT[-1] + 100, 0x7FFFFF, 0x800007):
        yield kit.control(
            Opcode.SACK, psn, cumulative_psn=psn, acknowledged_psn=psn, sack_base=psn + 1,
            sack_bitmap=(1 << 64) - 1, entropy=0xFFFFFFFF,
        )  # fmt: skip


@attack(PortCounter.CONTROL, engine="feedback_ignored", quiet=True)
def forged_nack(kit):
    """For what was never sent, and with an EV that was not used."""
    for psn in (SENT[-1] + 1, 0x7FFFFF, SENT[0] - 1, SENT[0]):
        for reason in (NackReason.TRIMMED, NackReason.UNEXP_EVENT):
            yield kit.control(
                Opcode.NACK, psn, acknowledged_psn=psn, reason=reason, entropy=wire.ev_value(1, 99, 77)
            )


@attack(PortCounter.CONTROL, fails=True)
def forged_nak(kit):
    """A transport NAK for a PSN that is out: like the peer's own, it ends its queue pair."""
    for syndrome in (AethSyndrome.NAK_REMOTE_ACCESS, AethSyndrome.NAK_INVALID_REQUEST):
        yield kit.control(Opcode.ACKNOWLEDGE, SENT[0], syndrome=syndrome)


@attack(PortCounter.CONTROL, answers=(Opcode.ENDPOINT_RESPONSE, "op", 0))
def forged_port_status(kit):
    """No port or few are up, says a host whose queue pair is another one than the good peer's."""
    for mask in (0, 1, 2, 0xFFFFFFFC):
        yield kit.control(
            Opcode.ENDPOINT_REQUEST,
            0x77,
            qpn=wire.ENDPOINT_QPN,
            operation=0,
            port_mask=mask,
            timestamped=True,
        )


@attack(
    PortCounter.TRIMMED_ANSWERED, PortCounter.TRIM_IGNORED, PortCounter.DROP_QP,
    answers=(Opcode.NACK, "nack_reason", NackReason.TRIMMED),
)  # fmt: skip
def forged_trim(kit):
    """Headers without payload, for the own queue pair and for others'; cut shorter than a switch may."""
    for size in (118, 120, 122, 130, 138, 150):
        for dscp in (Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP):
            draft = kit.write(FIRST_PSN + 1)
            mark(draft.data, dscp)
            del draft.data[size:]
            yield draft
    for draft in (
        kit.write(GOOD_PSN - 5, qpn=QP_NUMBER_BASE + GOOD, source=PEER),
        kit.control(Opcode.PROBE, probe_id=1),
        kit.write(qpn=0x199),
    ):
        mark(draft.data, Dscp.TRIMMED)
        yield draft
    draft = kit.write()
    mark(draft.data, Dscp.TRIMMED)
    del draft.data[117:]
    yield draft


# -- bytes -------------------------------------------------------------------------------------------------


@attack(PortCounter.DROP_ICRC, quiet=True)
def bad_icrc(kit):
    size = len(kit.write().data)
    # Inner addresses, UDP port, BTH, RETH, payload, ICRC.
    for at in (70, 94, 103, 113, 124, 132, 140, size - 5, size - 4, size - 1):
        draft = kit.write()
        draft.data[at] ^= 0x10
        if at == 70:  # a source that nobody checks before the ICRC
            draft = kit.write()
            draft.data[at] ^= 0x01
        yield draft
    good = kit.write()
    good.data[-4:] = bytes(4)
    yield good


@attack(PortCounter.DROP_FRAME_ERROR, quiet=True)
def bad_fcs(kit):
    for plane in range(2):
        draft = kit.write(plane=plane)
        draft.bad_fcs = True
        yield draft


@attack(PortCounter.DROP_LENGTH, quiet=True)
def oversized(kit):
    """One byte more than the MTU, and much more, with lengths that agree."""
    for size in (4097, 4100, 5000):
        yield kit.write(size=size)


@attack(PortCounter.DROP_LENGTH, quiet=True)
def jumbo(kit):
    for size in (8192, 8900):
        yield kit.write(size=size)
        yield kit.write(size=size, encapsulation=PLAIN)


@attack(PortCounter.DROP_TRUNCATED, PortCounter.DROP_FRAME_ERROR, quiet=True)
def truncated(kit):
    """Cut behind every byte, except inside addresses, where the reason may be another."""
    for encapsulation in (PLAIN, SRV6):
        whole = kit.write(encapsulation=encapsulation)
        inner = range(whole.inner + 1, whole.inner + wire.IPV6.bytes)
        outer = range(OUTER_AT + 1, OUTER_AT + wire.IPV6.bytes)
        for size in range(1, len(whole.data), 3):
            if size not in inner and size not in outer:
                yield Draft(0, bytearray(whole.data[:size]), whole.inner)


@attack(PortCounter.DROP_LENGTH, PortCounter.DROP_TRUNCATED, quiet=True)
def lengths_that_disagree(kit):
    for change in (-8, -4, -1, 1, 4, 8, 1000):
        draft = kit.write()
        draft.set_lengths(change)
        yield sealed(draft)
        draft = kit.write()
        draft.set(draft.udp, wire.UDP, "length", len(draft.data) - draft.udp + change)
        yield sealed(draft)
    draft = kit.write()
    draft.data += bytes(46)
    yield draft


@attack(PortCounter.DROP_ETHERTYPE, PortCounter.DROP_IPV4, quiet=True)
def wrong_ethertype(kit):
    for kind in (EtherType.IPV4, 0x0806, 0x8847, 0x8915, 0, 0xFFFF):
        draft = kit.write()
        draft.put(12, kind, 2)
        yield draft


@attack(PortCounter.DROP_ETHERTYPE, quiet=True)
def vlan_tag(kit):
    for kind in (EtherType.VLAN, EtherType.QINQ):
        draft = kit.write()
        draft.data[12:12] = kind.to_bytes(2, "big") + b"\x00\x01"
        yield draft


def with_extension(kit, kind, outer):
    """A write with an extension header of 8 bytes behind the outer or the inner IPv6 header."""
    draft = kit.write()
    at = OUTER_AT if outer else draft.inner
    header = bytes((draft.get(at, wire.IPV6, "next_header"), 0)) + bytes(6)
    draft.set(at, wire.IPV6, "next_header", kind)
    draft.data[at + wire.IPV6.bytes : at + wire.IPV6.bytes] = header
    draft.set(at, wire.IPV6, "payload_length", draft.get(at, wire.IPV6, "payload_length") + 8)
    return draft


@attack(PortCounter.DROP_NOT_MRC, quiet=True)
def extension_header(kit):
    for kind in (0, 43, 50, 51, 60, 135):
        for outer in (False, True):
            yield with_extension(kit, kind, outer)
    draft = kit.write(encapsulation=ROUTED)
    draft.data[OUTER_AT + wire.IPV6.bytes + 1] = 4  # two segments
    yield draft


@attack(PortCounter.DROP_NOT_MRC, quiet=True)
def fragment(kit):
    for outer in (False, True):
        yield with_extension(kit, 44, outer)


@attack(PortCounter.DROP_NOT_MRC, quiet=True)
def not_mrc(kit):
    for port in (0, 53, 4790, 4792, 4970, 4972):
        draft = kit.write()
        draft.set(draft.udp, wire.UDP, "destination_port", port)
        yield sealed(draft)
    for version in (0, 4, 5, 7):
        draft = kit.write()
        draft.data[OUTER_AT] = version << 4
        yield draft


@attack(PortCounter.DROP_ADDRESS, quiet=True)
def wrong_destination(kit):
    for at in (OUTER_AT + 24, OUTER_AT + 28, OUTER_AT + 30, OUTER_AT + 39):
        draft = kit.write()
        draft.data[at] ^= 1
        yield draft
    draft = kit.write()
    draft.set(draft.inner, wire.IPV6, "destination", wire.inner_address(PEER))
    yield sealed(draft)


@attack(PortCounter.DROP_OPCODE, quiet=True)
def unknown_opcode(kit):
    for opcode in (0x0A, 0xC0, 0xC5, 0xCC, 0xD0, 0xDF, 0xFF):
        draft = kit.write()
        draft.set(draft.bth, wire.BTH, "opcode", opcode)
        yield sealed(draft)


def hostile(attack, kit):
    """The variants of an attack as frames."""
    return [draft if isinstance(draft, Hostile) else draft.done() for draft in attack.frames(kit)]
