"""The long session of two NICs in foul weather: ``python tests/nic/soak_session.py --help``.

An episode is a life of both NICs and their queue pairs, drawn from (seed, episode); see `soak`. A journal
takes a line for each episode that passed, so an interrupted session goes on where it was.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from fuzz_session import RUNS, Journal
from soak import Soak

EPISODE_PACKETS = 20_000


def run_episode(seed, episode, packets=EPISODE_PACKETS):
    """Play an episode; returns what it counted."""
    soak = Soak(f"{seed}/{episode}", packets)
    try:
        return soak.run()
    finally:
        soak.close()


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Two NICs through a fabric that does anything to packets.")
    parser.add_argument("--packets", type=int, default=1_000_000, help="data packets, default 1,000,000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--journal", type=Path, help="default runs/soak-SEED.jsonl")
    parser.add_argument("--fresh", action="store_true", help="forget what the journal says is done")
    options = parser.parse_args(arguments)
    path = options.journal or RUNS / f"soak-{options.seed}.jsonl"
    parameters = {"seed": options.seed, "packets": EPISODE_PACKETS}
    done, started, failed = Counter(), time.monotonic(), []
    with Journal(path, parameters, options.fresh) as journal:
        packets = sum(journal.done.values())
        for episode in range(-(-options.packets // EPISODE_PACKETS)):
            if episode in journal.done:
                continue
            try:
                counted = run_episode(options.seed, episode)
            except AssertionError:
                failed.append(episode)
                text = traceback.format_exc()
                print(f"episode {episode} failed:\n{text}", flush=True)
                journal.add({"episode": episode, "failure": text})
                continue
            journal.add({"episode": episode, "frames": counted["packets"], **counted})
            done += Counter(counted)
            packets += counted["packets"]
            seconds = time.monotonic() - started
            print(f"{packets:,} of {options.packets:,} packets, {seconds:,.0f} s; {counted}", flush=True)
    print(f"{packets:,} packets passed, {len(failed)} episodes failed; this time: {dict(done)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
