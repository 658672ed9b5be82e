"""The command groups ``mrc packet`` and ``mrc ev``.

Source: interfaces.md, Commands. Wrong use ends with exit code 2 and a message that says what was wrong.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from .codec import complete, decode, encode
from .ev_expansion import EvProfile
from .json_form import describe, from_json, to_json
from .packet import Packet
from .pcapng import LINKTYPE_ETHERNET, LINKTYPES_IP, CaptureError, read_capture

__all__ = ["ev", "packet"]

_SEPARATORS = re.compile(r"[\s:_-]+")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _bytes_from_hex(text: str) -> bytes:
    digits = _SEPARATORS.sub("", text.strip()).removeprefix("0x").removeprefix("0X")
    wrong = re.search(r"[^0-9a-fA-F]", digits)
    if wrong:
        raise click.UsageError(
            f"HEX must be hexadecimal digits, got {wrong[0]!r} at digit {wrong.start()}. "
            "Try: mrc packet decode 6220020400401140fd00…"
        )
    if len(digits) % 2:
        raise click.UsageError(
            f"HEX must be whole bytes (an even number of digits), got {len(digits)} digits"
        )
    return bytes.fromhex(digits)


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{file}: JSON must be UTF-8 text, {error.reason} at byte {error.start}"
        ) from None
    except json.JSONDecodeError as error:
        raise click.UsageError(
            f"{file}, line {error.lineno}, column {error.colno}: JSON expected, {error.msg}"
        ) from None


@click.group()
def packet() -> None:
    """Take packets apart and put them together."""


@packet.command("decode")
@click.argument("hex_text", metavar="[HEX]", required=False)
@click.option("--pcap", type=_FILE, help="Decode every frame of a pcapng or pcap file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a packet.")
@click.option(
    "--start",
    type=click.Choice(["auto", "ethernet", "ip"]),
    default="auto",
    show_default=True,
    help="What HEX starts with.",
)
def decode_command(hex_text: str | None, pcap: Path | None, as_json: bool, start: str) -> None:
    """Decode HEX, a frame or an IP packet, or all frames of a capture.

    HEX may hold blanks, line ends, colons and a leading 0x; "-" reads it from standard input. A malformed
    packet is decoded as far as it goes, and what is wrong with it is named with its byte.
    """
    if (hex_text is None) == (pcap is None):
        raise click.UsageError("give either HEX or --pcap FILE, not both and not neither")
    if pcap is not None:
        _decode_capture(pcap, as_json)
        return
    if hex_text == "-":
        hex_text = sys.stdin.read()
    assert hex_text is not None
    decoded = decode(_bytes_from_hex(hex_text), start)
    click.echo(json.dumps(to_json(decoded), indent=2) if as_json else describe(decoded))


def _decode_capture(path: Path, as_json: bool) -> None:
    number = 0
    try:
        for number, frame in enumerate(read_capture(path), 1):
            if frame.link_type != LINKTYPE_ETHERNET and frame.link_type not in LINKTYPES_IP:
                raise CaptureError(
                    f"{path}, frame {number}: link type must be 1 (Ethernet) or 101, 228, 229 (IP), "
                    f"got {frame.link_type}"
                )
            decoded = decode(frame.data, "ethernet" if frame.link_type == LINKTYPE_ETHERNET else "ip")
            if as_json:
                about = {"frame": number, "time_us": frame.time_ps / 1e6, "interface": frame.interface}
                if frame.comments:
                    about["comments"] = list(frame.comments)
                click.echo(json.dumps({**about, **to_json(decoded)}))
            else:
                click.echo(_one_line(number, frame.time_ps, frame.interface, decoded, frame.comments))
    except CaptureError as error:
        raise click.UsageError(str(error)) from None
    if not as_json:
        click.echo(f"{number} frames")


def _one_line(number: int, time_ps: int, interface: str, decoded: Packet, comments: tuple[str, ...]) -> str:
    words = [f"{number:6}", f"{time_ps / 1e6:14.6f} us", f"{interface:12}", f"{decoded.kind or '-':16}"]
    if "bth" in decoded:
        bth = decoded["bth"]
        words.append(f"qp {bth['dest_qp']:#08x} psn {bth['psn']:#08x}")
    if decoded.ev is not None:
        words.append(f"ev {decoded.ev:#010x}")
    words.append(f"{len(decoded.payload)} B")
    if "bth" in decoded and decoded["bth"]["rtx"]:
        words.append("rtx")
    if decoded.trimmed:
        words.append("trimmed")
    words += [f"[{comment}]" for comment in comments]
    words += [f"problem at byte {problem.byte}: {problem.text};" for problem in decoded.problems]
    return " ".join(words)


@packet.command("encode")
@click.argument("file", type=_FILE)
def encode_command(file: Path) -> None:
    """Encode the packet of FILE (JSON as "decode --json" prints it) and print its bytes in hexadecimal.

    Absent fields are filled in: lengths, next headers, pad, checksum, defaults; without a key "icrc" the
    ICRC is computed.
    """
    try:
        click.echo(encode(complete(from_json(_load(file)))).hex())
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}") from None


@click.group()
def ev() -> None:
    """Entropy values."""


@ev.command("expand")
@click.option("--profile", type=_FILE, required=True, help="JSON file with format_widths and fields.")
@click.option("--name", help="Which profile, when the file holds several.")
@click.argument("values", metavar="EV...", nargs=-1, required=True)
def expand_command(profile: Path, name: str | None, values: tuple[str, ...]) -> None:
    """Expand EVs, given as left-aligned hexadecimal bits; print one expanded hexadecimal string a line."""
    data = _load(profile)
    if isinstance(data, dict) and isinstance(data.get("profiles"), list):
        names = [str(item.get("profile")) for item in data["profiles"] if isinstance(item, dict)]
        if name is None or name not in names:
            raise click.UsageError(f"{profile}: --name must be one of {', '.join(names)}; got {name}")
        data = data["profiles"][names.index(name)]
    try:
        loaded = EvProfile.from_json(data)
    except ValueError as error:
        raise click.UsageError(f"{profile}: {error}") from None
    for value in values:
        try:
            click.echo(loaded.expand_hex(value))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
