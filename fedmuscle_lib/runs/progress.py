"""Display of runs while they are computed, and what an interrupt leaves.

At a terminal and in a notebook one bar shows all the runs that were asked for. Elsewhere each
finished run is a line of text.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tqdm.auto import tqdm

from fedmuscle_lib.runs.settings import RunSettings
from fedmuscle_lib.runs.system import Progress, Tick

_log = logging.getLogger("fedmuscle")


def also_calling(on_round: Progress | None, tell: Progress) -> Progress:
    """Send each tick to ``tell`` and then, if a round is finished, to ``on_round``.

    An error there is logged, and the run continues.
    """
    if on_round is None:
        return tell

    def both(tick: Tick) -> None:
        tell(tick)
        if tick.resumed:
            return
        try:
            on_round(tick)
        except Exception as error:
            _log.warning(
                "%s: on_round failed after round %d (%s: %s)",
                tick.run,
                tick.round,
                type(error).__name__,
                error,
            )

    return both


class Interrupted(KeyboardInterrupt):
    """An interrupt while runs were computed; the text says what is kept and how to continue.

    A notebook shows it without a traceback.
    """

    def _render_traceback_(self) -> list[str]:  # IPython asks for this
        return [str(self)]


@contextmanager
def showing(
    wanted: int, missing: Sequence[RunSettings], progress: Progress | None
) -> Iterator[Progress]:
    """Yield where ticks go: to ``progress`` if it is given, else to a bar or to lines.

    Args:
        wanted: how many runs were asked for.
        missing: those that have to be computed.

    Raises:
        Interrupted: in place of a KeyboardInterrupt within.
    """
    stored = wanted - len(missing)
    last: dict[str, Tick] = {}
    rounds, drawn = sum(run.rounds for run in missing), progress is None and missing and _watched()
    bar = (
        tqdm(desc=f"{stored} of {wanted} runs", total=rounds, unit="round", dynamic_ncols=True)
        if drawn
        else None
    )
    if progress is None and bar is None and stored:
        print(f"{stored} of {wanted} stored", flush=True)

    def tell(tick: Tick) -> None:
        run = tick.address or tick.run
        before = last[run].round if run in last else 0
        last[run] = tick
        if progress is not None:
            progress(tick)
            return
        finished = stored + sum(tick.round == tick.rounds for tick in last.values())
        if bar is not None:
            bar.update(max(0, tick.round - before))
            if not tick.resumed:
                bar.set_postfix_str(f"{tick.run}: round {tick.round}/{tick.rounds}")
            bar.set_description(f"{finished} of {wanted} runs")
        elif tick.round == tick.rounds and not tick.resumed:
            print(
                f"{tick.run}: finished in {tick.seconds:.0f} s ({finished} of {wanted})", flush=True
            )

    try:
        yield tell
    except KeyboardInterrupt:
        what_is_left = _left(stored, wanted, list(last.values()))
        _log.info(what_is_left)  # the command line shows no exception
        raise Interrupted(what_is_left) from None
    finally:
        if bar is not None:
            bar.close()


def _watched() -> bool:
    """Return whether somebody watches: at a terminal, or at a notebook.

    ``reproduce`` says of its notebooks that nobody does.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return os.environ.get("FEDMUSCLE_PROGRESS") != "lines" and (
        sys.stderr.isatty() or hasattr(shell, "kernel")
    )


def _left(before: int, wanted: int, heard: Sequence[Tick]) -> str:
    """Say what is kept when ``before`` of the ``wanted`` runs were stored and these ticks are the
    last of the others.
    """
    begun = [tick for tick in heard if tick.round < tick.rounds]
    done = before + sum(tick.round == tick.rounds for tick in heard)
    kept = "; ".join(f"{tick.run}, {tick.round} of {tick.rounds} rounds" for tick in begun)
    parts = [f"Interrupted. {done} of {wanted} runs are stored"]
    if kept:
        parts.append(f"Kept of what was begun: {kept}")
    return ". ".join([*parts, "Run this again to go on from there."])
