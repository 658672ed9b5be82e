"""Every attack that docs/security.md lists, against the gateware and the golden model.

Sweep: each attack in its variants; both kinds of NIC.
Stimulus: the variants on a line that also carries a good exchange in both directions.
Checks: the outcomes the page names and no others; what is sent back; which queue pair goes to ERROR; memory
    byte for byte, the good exchange, and all else that ``fuzz_play`` checks. The page lists each attack once,
    with its counters, and names a test that exists.
Timing: bounded by ``fuzz_bed``.
"""

import re
from pathlib import Path

import pytest
from attacks import ATTACKS, Kit, hostile
from fuzz_bed import KINDS
from fuzz_craft import ATTACKER
from fuzz_play import Play

from mrc_host.nic.device import read_counters
from mrc_host.packets.codec import decode
from mrc_rtl import wire
from mrc_rtl.records import PortCounter
from mrc_rtl.wire import Opcode

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ANSWERS = (Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE, Opcode.ENDPOINT_RESPONSE)
OUTCOMES = [outcome for outcome in PortCounter if PortCounter.ACCEPTED <= outcome < PortCounter.TX_FRAMES]


def engine_counter(play, name):
    value = read_counters(play.bed.nic.context.driver).engine[name]
    play.bed.align()
    return value


def answers(frames):
    """Answers among what was sent to the attacker; its queue pair's own writes and probes are none."""
    packets = [decode(frame.data) for frame in frames]
    wanted = wire.inner_address(ATTACKER)
    return [
        packet
        for packet in packets
        if packet.inner_ip.fields["destination"] == wanted and packet.opcode in ANSWERS
    ]


def field(packet, name):
    return next(fields[name] for _, fields in packet.headers if name in fields)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name, kind):
    attack = ATTACKS[name]
    play = Play(kind)
    play.batch([])
    frames = hostile(attack, Kit(play.bed.regions))
    assert frames
    counted = set()
    for batch in [[frame] for frame in frames] if attack.fails else [frames]:
        before, play.bed.sent[:] = dict(play.total), []
        ignored = engine_counter(play, attack.engine) if attack.engine else 0
        sent = play.sent
        play.batch(batch)
        assert play.sent - sent == len(batch), "all of them can be judged"
        assert play.ended_in_error == attack.fails
        if attack.engine:
            assert engine_counter(play, attack.engine) > ignored
        found = answers(play.bed.sent)
        if attack.quiet:
            assert not found
        if attack.answers:
            opcode, name_of_field, value = attack.answers
            assert any(p.opcode == opcode and field(p, name_of_field) == value for p in found)
        counted |= {outcome for outcome in OUTCOMES if play.total[outcome] > before.get(outcome, 0)}
    allowed = set(attack.counted)
    # The good exchange has outcomes of its own.
    assert counted - {PortCounter.ACCEPTED, PortCounter.CONTROL} == allowed - {
        PortCounter.ACCEPTED, PortCounter.CONTROL
    }  # fmt: skip
    assert counted >= allowed
    play.close()


def rows():
    """Cells of the table's rows by the attack they name."""
    result = {}
    for line in PAGE.read_text().splitlines():
        if match := re.search(r"`test_attack\[([a-z-]+)\]`", line):
            assert match[1] not in result, match[1]
            result[match[1]] = [cell.strip() for cell in line.strip("|").split("|")]
    return result


def test_the_page_lists_every_attack_with_what_is_counted():
    listed = rows()
    assert listed.keys() == ATTACKS.keys()
    for name, cells in listed.items():
        counters = set(re.findall(r"`([a-z_0-9]+)`", cells[2]))
        expected = {outcome.name.lower() for outcome in ATTACKS[name].counted}
        assert counters == expected | ({ATTACKS[name].engine} - {""}), name


def test_the_page_says_what_a_lab_needs():
    text = PAGE.read_text()
    assert "MRC authenticates nothing" in text
    for word in ("isolat", "P_Key", "R_Key", "VLAN", "management"):
        assert word in text, word
