"""Frames that once broke a NIC, kept as small as they get, in the JSON form of packets."""

import hashlib
import json
from pathlib import Path

from fuzz_bed import Broken
from fuzz_craft import Hostile
from fuzz_play import Play

from mrc_host.packets.codec import decode, encode
from mrc_host.packets.json_form import from_json, to_json

FOLDER = Path(__file__).parent / "corpus"


def broken(play, batches):
    """Play batches of frames; returns what broke, or None. A NIC that raises an error is broken too."""
    try:
        for frames in batches:
            play.batch(frames)
    except Broken as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        play.close()
    return None


def replay(kind, batches):
    """Play batches of frames to a new NIC; returns what broke, or None."""
    return broken(Play(kind), batches)


def minimise(kind, batches, say=print):
    """Leave out batches and frames as long as something still breaks.

    Parameters
    ----------
    kind : str
        Of the NIC.
    batches : list of lists of Hostile
        What broke it.
    say : callable
        Gets a line for each step.

    Returns
    -------
    batches, text
        The fewest frames found, and what they break; None as text when the failure does not come again.
    """
    text = replay(kind, batches)
    if text is None:
        return batches, None
    if found := replay(kind, batches[-1:]):
        batches, text = batches[-1:], found
    # In one batch if possible, and then by halves, quarters, and so on.
    frames = [frame for batch in batches for frame in batch]
    if found := replay(kind, [frames]):
        text = found
    else:
        return batches, text
    piece = max(1, len(frames) // 2)
    while True:
        say(f"{len(frames)} frames break it: {text}")
        at = 0
        while at < len(frames) and len(frames) > 1:
            fewer = frames[:at] + frames[at + piece :]
            found = replay(kind, [fewer]) if fewer else None
            if found:
                frames, text = fewer, found
            else:
                at += piece
        if piece == 1:
            return [frames], text
        piece = max(1, piece // 2)


def save(kind, batches, text, origin, folder=FOLDER):
    """Write a case to the corpus; returns its path."""
    case = {
        "broke": kind,
        "failure": text,
        "origin": origin,
        "batches": [
            [
                {
                    "plane": frame.plane, "bad_fcs": frame.bad_fcs, "note": frame.note,
                    "packet": to_json(decode(frame.data)),
                }
                for frame in batch
            ]
            for batch in batches
        ],
    }  # fmt: skip
    content = json.dumps(case, indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:12]}.json"
    path.write_text(content)
    return path


def load(path):
    """Batches of frames of a case."""
    return [
        [
            Hostile(item["plane"], encode(from_json(item["packet"])), item["bad_fcs"], item["note"])
            for item in batch
        ]
        for batch in json.loads(path.read_text())["batches"]
    ]
