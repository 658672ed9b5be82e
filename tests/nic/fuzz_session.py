"""The long session of hostile traffic: ``python tests/nic/fuzz_session.py --help``.

An episode is a new NIC and some batches of frames, all drawn from (seed, episode). A journal beside the runs
takes a line for each episode that is done, so an interrupted session goes on where it was; a session whose
frames are all done only says so. A failure is reduced to the fewest frames and written to the corpus.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

from fuzz_bed import KINDS
from fuzz_corpus import broken, minimise, save
from fuzz_play import BATCH, Play

EPISODE_BATCHES = 8
RUNS = Path("runs")


def run_episode(kind, seed, episode, batches=EPISODE_BATCHES):
    """Play an episode.

    Returns
    -------
    dict
        ``episode``, ``frames`` sent, and for a failure ``failure`` and ``case``, the path of its JSON.
    """
    play = Play(kind)
    drawn = (play.draw(random.Random(f"{seed}/{episode}/{number}"), BATCH) for number in range(batches))
    failure = broken(play, drawn)
    if failure is None:
        return {"episode": episode, "frames": play.sent}
    fewest, text = minimise(kind, play.played, say=lambda line: None)
    origin = f"seed {seed}, episode {episode}"
    if text is None:
        origin += " (does not come again with the same frames)"
    path = save(kind, fewest, text or failure, origin)
    return {"episode": episode, "frames": play.sent, "failure": text or failure, "case": str(path)}


class Journal:
    """What is done of a session, one JSON line each, flushed to the disk."""

    def __init__(self, path, parameters, fresh=False):
        self.path = path
        self.done = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() and not fresh else []
        if lines and json.loads(lines[0]) != parameters:
            raise SystemExit(
                f"{path} is of another session, {lines[0]}; use --fresh to begin anew, or another --journal"
            )
        for line in lines[1:]:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the line that was being written when the session was killed
            if "failure" not in entry:
                self.done[entry["episode"]] = entry["frames"]
        self._file = path.open("w")
        self._write(parameters)
        for episode, frames in self.done.items():
            self._write({"episode": episode, "frames": frames})

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def add(self, entry):
        self._write(entry)
        if "failure" not in entry:
            self.done[entry["episode"]] = entry["frames"]

    def _write(self, entry):
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def report(frames, wanted, started, first, stream=None):
    """One line of progress."""
    seconds = max(time.monotonic() - started, 0.001)
    rate = (frames - first) / seconds
    left = (wanted - frames) / rate / 60 if rate else 0
    text = f"{frames:,} of {wanted:,} frames, {rate:,.0f} a second, {max(left, 0):.0f} min left"
    print(text, file=stream or sys.stdout, flush=True)


def session(kind, wanted, seed, journal, jobs):
    """Play episodes until so many frames are done; returns the failures."""
    failures = []
    started, first = time.monotonic(), sum(journal.done.values())
    frames, told = first, 0.0
    episodes = (number for number in range(1 << 30) if number not in journal.done)
    expected = BATCH * EPISODE_BATCHES
    running = set()
    with ProcessPoolExecutor(
        jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    ) as pool:
        try:
            while running or (frames < wanted and not failures):
                while len(running) < jobs and frames + expected * len(running) < wanted and not failures:
                    running.add(pool.submit(run_episode, kind, seed, next(episodes)))
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    entry = future.result()
                    journal.add(entry)
                    frames += entry["frames"]
                    if "failure" in entry:
                        failures.append(entry)
                        print(
                            f"episode {entry['episode']}: {entry['failure']}\n    {entry['case']}", flush=True
                        )
                if time.monotonic() - told >= 5 or not running:
                    told = time.monotonic()
                    report(frames, wanted, started, first)
        except KeyboardInterrupt:
            print("interrupted; the same command goes on with what is left", flush=True)
            pool.shutdown(wait=False, cancel_futures=True)
            raise SystemExit(130) from None
    return failures


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Hostile frames against a NIC that serves a good peer.")
    parser.add_argument("--nic", choices=KINDS, default="rtl", help="what is attacked (default rtl)")
    parser.add_argument("--frames", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--journal", type=Path, help="default runs/fuzz-NIC-SEED.jsonl")
    parser.add_argument("--fresh", action="store_true", help="forget what the journal says is done")
    options = parser.parse_args(arguments)
    path = options.journal or RUNS / f"fuzz-{options.nic}-{options.seed}.jsonl"
    parameters = {
        "nic": options.nic, "seed": options.seed, "batch": BATCH, "batches": EPISODE_BATCHES
    }  # fmt: skip
    Play(options.nic).close()  # compiles the engine once, before several processes want it
    with Journal(path, parameters, options.fresh) as journal:
        failures = session(options.nic, options.frames, options.seed, journal, options.jobs)
    print(f"{sum(journal.done.values()):,} frames passed, {len(failures)} episodes failed")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
