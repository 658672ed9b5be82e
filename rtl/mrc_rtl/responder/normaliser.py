"""Skips an outer IPv6 header, so that everything behind it stands at fixed places."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..layouts import to_network_order
from ..records import Trimmed
from ..wire import EtherType, NextHeader
from .frame_words import WORD_BYTES

__all__ = ["IP_OFFSET", "LAST_POSITION", "Normaliser"]

#: Byte of a normalised frame where the inner IPv6 header begins.
IP_OFFSET = wire.ETHERNET.bytes

#: Word positions count up to here and stay: all headers lie below.
LAST_POSITION = 15

#: Hdr Ext Len of a segment routing header with one segment (profile.md 6).
_SRH_EXTENSION = 2


class Normaliser(wiring.Component):
    """Gives every word its position in the frame without the outer header, and judges what it skips.

    An outer IPv6 header takes five words, a segment routing header with one segment three more, so nothing
    has to be shifted: the word in which an outer header ends is the word in which the inner one begins. The
    first header is read as if it were the inner one; when its next header says otherwise, the positions start
    again at the next header, whose words overwrite what was kept.

    Parameters
    ----------
    config : NicConfig
    plane : int
        Number of the plane, from 0; it stands in the uSIDs that this port accepts.

    Members
    -------
    valid, data, keep, last : 1, 64, 8, 1
        Words of :class:`FrameWords`.
    settings : records.settings
    position : 4
        Position of this word, valid when ``here``; 0 is the first word of Ethernet.
    here : 1
        The word belongs to the normalised frame.
    restart : 1
        The word stands for word 0 of the frame that begins behind the outer header.
    first : 1
        First word of the frame.
    short : 1
        A frame that ends with this word is shorter than an Ethernet header.
    bad_ethertype, ipv4, not_mrc, bad_address : 1
        Findings about Ethernet and outer headers, up to the word before this one.
    trimmed : Trimmed
        From the outermost IPv6 header.
    marked : 1
        Congestion experienced, on either header.
    incomplete : 1
        This word is not yet behind the outer headers.

    Source: profile.md 2 and 6, protocol.md 1.1 and 1.16; RFC 8200, 8754, 9800.
    """

    def __init__(self, config: NicConfig, plane: int) -> None:
        self._plane = plane
        super().__init__(
            {
                "valid": In(1),
                "data": In(8 * WORD_BYTES),
                "keep": In(WORD_BYTES),
                "last": In(1),
                "settings": In(records.settings(config)),
                "position": Out(range(LAST_POSITION + 1)),
                "here": Out(1),
                "restart": Out(1),
                "first": Out(1, init=1),
                "short": Out(1),
                "bad_ethertype": Out(1),
                "ipv4": Out(1),
                "not_mrc": Out(1),
                "bad_address": Out(1),
                "trimmed": Out(Trimmed),
                "marked": Out(1),
                "incomplete": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        settings = self.settings
        data, keep = self.data, self.keep

        def lanes(first: int, count: int) -> Value:
            """Some bytes of this word as a big-endian number."""
            return to_network_order(data[8 * first : 8 * (first + count)])

        outer = Signal()  # inside an outer IPv6 header, behind its next header
        routing = Signal()  # the outer header is followed by a routing header
        in_routing = Signal()
        after_outer = Signal()  # this word holds the end of the outer destination
        undecided = Signal()  # the first IPv6 header
        second = Signal()
        m.d.comb += [
            self.short.eq(self.first | (second & ~keep[wire.ETHERNET.bytes - WORD_BYTES - 1])),
            self.here.eq(self.valid & ~outer & ~in_routing),
            self.incomplete.eq(outer | in_routing),
        ]
        next_position = Signal.like(self.position)
        m.d.comb += next_position.eq(Mux(self.position == LAST_POSITION, LAST_POSITION, self.position + 1))

        # Places of the IPv6 header, counted from its begin in lane 6 of word 1.
        begin_word, begin_lane = divmod(IP_OFFSET, WORD_BYTES)

        def place(name: str) -> tuple[int, int]:
            return divmod(IP_OFFSET + wire.IPV6.byte_offset(name), WORD_BYTES)

        next_word, next_lane = place("next_header")
        target_word, target_lane = place("destination")
        end_word = (IP_OFFSET + wire.IPV6.bytes) // WORD_BYTES
        assert place("version") == (begin_word, begin_lane) == (1, 6), "the code below reads these lanes"
        assert (next_word, next_lane, target_word, target_lane, end_word) == (2, 4, 4, 6, 6)
        next_header = lanes(next_lane, 1)
        own_usid = settings.own_usid | self._plane << wire.USID.shift("plane")

        with m.If(self.valid):
            m.d.sync += [
                self.first.eq(self.last),
                second.eq(self.first & ~self.last),
                self.position.eq(next_position),
                after_outer.eq(0),
            ]
            with m.If(self.first):
                m.d.sync += [
                    undecided.eq(1),
                    self.bad_ethertype.eq(0),
                    self.ipv4.eq(0),
                    self.not_mrc.eq(0),
                    self.bad_address.eq(0),
                    self.trimmed.eq(Trimmed.NO),
                    self.marked.eq(0),
                ]
            # Ethernet, and the begin of either IPv6 header.
            with m.If(self.here & (self.position == begin_word)):
                ethertype = lanes(4, 2)
                traffic_class = Cat(data[60:64], data[48:52])
                with m.If(undecided):
                    m.d.sync += [
                        self.ipv4.eq(keep[5] & (ethertype == EtherType.IPV4)),
                        self.bad_ethertype.eq(
                            keep[5] & (ethertype != EtherType.IPV4) & (ethertype != EtherType.IPV6)
                        ),
                    ]
                    with m.If(keep[7] & (traffic_class[2:] == settings.dscp_trimmed_last_hop)):
                        m.d.sync += self.trimmed.eq(Trimmed.LAST_HOP)
                    with m.If(keep[7] & (traffic_class[2:] == settings.dscp_trimmed)):
                        m.d.sync += self.trimmed.eq(Trimmed.FABRIC)
                with m.If(keep[6] & (data[52:56] != wire.IPV6["version"].default)):
                    m.d.sync += self.not_mrc.eq(1)
                with m.If(keep[7] & (traffic_class[:2] == wire.Ecn.CE)):
                    m.d.sync += self.marked.eq(1)
            with m.If(self.here & (self.position == next_word)):
                m.d.sync += undecided.eq(0)
                known_next = next_header == NextHeader.UDP
                with m.If(undecided & keep[next_lane]):
                    with m.If(next_header == NextHeader.IPV6):
                        m.d.sync += [outer.eq(1), routing.eq(0)]
                    with m.Elif(next_header == NextHeader.ROUTING):
                        m.d.sync += [outer.eq(1), routing.eq(1)]
                    with m.Elif(~known_next):
                        m.d.sync += self.not_mrc.eq(1)
                with m.Elif(keep[next_lane] & ~known_next):
                    m.d.sync += self.not_mrc.eq(1)

            # The outer destination: block, own uSID, nothing behind it.
            block = settings.usid_block
            with m.If(outer & (self.position == target_word)):
                with m.If(keep[7] & (lanes(6, 2) != block[16:])):
                    m.d.sync += self.bad_address.eq(1)
            with m.If(outer & (self.position == target_word + 1)):
                with m.If(
                    keep[7] & ((lanes(0, 2) != block[:16]) | (lanes(2, 2) != own_usid) | data[32:].any())
                ):
                    m.d.sync += self.bad_address.eq(1)
                m.d.sync += [
                    outer.eq(0),
                    after_outer.eq(1),
                    in_routing.eq(routing),
                ]
                with m.If(~routing):
                    m.d.comb += self.restart.eq(1)
                    m.d.sync += self.position.eq(begin_word)
            with m.If(after_outer & keep[5] & data[:48].any()):
                m.d.sync += self.bad_address.eq(1)

            # The routing header begins in lane 6 of the word in which the outer header ends.
            with m.If(in_routing & (self.position == end_word) & keep[7]):
                with m.If((lanes(6, 1) != NextHeader.IPV6) | (lanes(7, 1) != _SRH_EXTENSION)):
                    m.d.sync += self.not_mrc.eq(1)
            with m.If(in_routing & (self.position == end_word + 1) & keep[0]):
                with m.If(lanes(0, 1) != wire.SRH_ROUTING_TYPE):
                    m.d.sync += self.not_mrc.eq(1)
            srh_end = end_word + wire.SRH.bytes // WORD_BYTES - 1
            with m.If(in_routing & (self.position == srh_end)):
                m.d.comb += self.restart.eq(1)
                m.d.sync += [in_routing.eq(0), self.position.eq(begin_word)]
            with m.If(self.last):
                m.d.sync += [
                    self.position.eq(0),
                    outer.eq(0),
                    in_routing.eq(0),
                    after_outer.eq(0),
                ]
        return m
