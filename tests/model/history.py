"""Random histories of a few model NICs on a fabric that everything bad happens to.

A history is an experiment: drawn from a seed by :mod:`history_draw`, played here under the eyes of
:class:`history_promises.Promises`, and when it breaks a promise made small by :mod:`history_shrink` and
written as a file. ``python tests/model/history.py 17`` plays the history of a seed, and with the name of a
file that file; ``mrc run FILE --nic model`` runs it too, and shows what a run shows.
"""

import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from history_draw import draw_history
from history_promises import Promises, Violation
from history_shrink import shrink, write_experiment

from mrc_host.errors import MrcError
from mrc_host.experiment.load import load_experiment, parse_experiment
from mrc_host.experiment.lockstep import Lockstep
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.testbed import build_testbed, set_up

US = 1_000_000
DRAIN_PS = 300 * US
SHRINK_SECONDS = 60
SECONDS_OF_PROCESSOR = 60
"""What a history may take before it counts as one that does not end; most take a tenth of a second."""
FAILURES = Path(__file__).parents[2] / "runs" / "histories"


@contextmanager
def _bounded():
    """End a model that computes without end."""

    def give_up(*_):
        raise Violation("everything ends", f"{SECONDS_OF_PROCESSOR} s of processor time and no end")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_OF_PROCESSOR)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def watch(experiment):
    """Play an experiment on models and return what was seen.

    Raises
    ------
    Violation
        It broke a promise.
    """
    testbed = build_testbed(experiment, NicKinds.parse("model"), lambda text: None)
    try:
        set_up(testbed)
        promises = Promises(testbed)
        lockstep = Lockstep(testbed.hosts, testbed.fabric, drain_ps=DRAIN_PS, observer=promises, packets=True)
        with _bounded():
            promises.finish(lockstep.run(round(experiment.limits.simulated_time_us * US)))
        return promises
    finally:
        testbed.close()


def failure_of(description):
    """Play an experiment given as mappings; return its failure as (kind, text), or None."""
    try:
        watch(parse_experiment(description))
    except Violation as violation:
        return violation.promise, str(violation)
    except Exception as error:
        # Whatever else a model raises is a failure too, told by its type and the place it comes from.
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{Path(trace.tb_frame.f_code.co_filename).name} {trace.tb_frame.f_code.co_name}"
        return f"{type(error).__name__} in {place}", f"{type(error).__name__}: {error}"
    return None


def play(seed, directory=FAILURES, seconds=SHRINK_SECONDS, say=print):
    """Play the history of a seed; one that fails is made small, and its failure names seed and file.

    Parameters
    ----------
    seed : int
    directory : Path
        Where the file goes.
    seconds : float
        How long it may take to make it small.
    say : callable
        Gets a line now and then.

    Raises
    ------
    Violation
        It broke a promise.
    """
    description = draw_history(seed)
    try:
        return watch(parse_experiment(description))
    except Exception as error:
        failure = failure_of(description)
        if failure is None:
            raise Violation(
                "a history depends on its seed alone", f"seed {seed}: {error!r} only once"
            ) from error
        say(f"seed {seed}: {failure[1]}")
        small = shrink(description, failure, failure_of, seconds, say)
        file = directory / f"seed-{seed}.yaml"
        write_experiment(file, small, seed, failure_of(small))
        text = f"seed {seed}: {failure[1]}\nmade small: {file}\n(python tests/model/history.py {file})"
        raise Violation(failure[0], text) from error


def main(arguments):
    """Play seeds and files; a range is FIRST-LAST."""
    for argument in arguments:
        if argument.endswith((".yaml", ".yml")):
            watch(load_experiment(Path(argument)))
            print(f"{argument}: no promise broken")
            continue
        first, _, last = argument.partition("-")
        begin = time.monotonic()
        for seed in range(int(first), int(last or first) + 1):
            play(seed)
        print(f"{argument}: no promise broken ({time.monotonic() - begin:.1f} s)")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (Violation, MrcError) as error:
        sys.exit(str(error))
