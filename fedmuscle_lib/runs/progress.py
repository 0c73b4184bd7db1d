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


class Interrupted(KeyboardInterrupt):
    """An interrupt while runs were computed; the text says what is kept and how to continue.

    A notebook shows it without a traceback.
    """

    def _render_traceback_(self) -> list[str]:  # IPython asks for this
        return [str(self)]


@contextmanager
def showing(
    wanted: int,
    missing: Sequence[RunSettings],
    progress: Progress | None,
    on_round: Progress | None = None,
) -> Iterator[Progress]:
    """Yield where ticks go: to ``progress`` if it is given, else to a bar or to lines; and then, of
    a finished round, to ``on_round``, whose errors are logged.

    Args:
        wanted: how many runs were asked for.
        missing: those that have to be computed.

    Raises:
        Interrupted: in place of a KeyboardInterrupt within.
    """
    stored = wanted - len(missing)
    last: dict[str, Tick] = {}
    bar = tqdm(
        desc=f"{stored} of {wanted} runs",
        total=sum(run.rounds for run in missing),
        unit="round",
        dynamic_ncols=True,
        disable=progress is not None or not missing or not _watched(),
    )
    if progress is None and bar.disable and stored:
        print(f"{stored} of {wanted} stored", flush=True)

    def tell(tick: Tick) -> None:
        last[tick.address] = tick
        finished = stored + sum(one.round == one.rounds for one in last.values())
        bar.n = sum(one.round for one in last.values())
        bar.set_description(f"{finished} of {wanted} runs", refresh=False)
        bar.set_postfix_str(f"{tick.run}: round {tick.round}/{tick.rounds}")
        if progress is not None:
            progress(tick)
        elif bar.disable and tick.round == tick.rounds and not tick.resumed:
            done = f"{finished} of {wanted}"
            print(f"{tick.run}: finished in {tick.seconds:.0f} s ({done})", flush=True)
        if on_round is None or tick.resumed:
            return
        try:
            on_round(tick)
        except Exception as error:
            text = "%s: on_round failed after round %d (%s: %s)"
            _log.warning(text, tick.run, tick.round, type(error).__name__, error)

    try:
        yield tell
    except KeyboardInterrupt:
        begun = [tick for tick in last.values() if tick.round < tick.rounds]
        done = stored + len(last) - len(begun)
        kept = "; ".join(f"{tick.run}, {tick.round} of {tick.rounds} rounds" for tick in begun)
        kept = f" Kept of what was begun: {kept}." if kept else ""
        text = (
            f"Interrupted. {done} of {wanted} runs are stored.{kept} Run this again to go on from"
            " there."
        )
        _log.info(text)  # the command line shows no exception
        raise Interrupted(text) from None
    finally:
        bar.close()


def _watched() -> bool:
    """Return whether somebody watches: at a terminal, or at a notebook.

    ``reproduce`` says of its notebooks that nobody does.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return os.environ.get("FEDMUSCLE_PROGRESS") != "lines" and (
        sys.stderr.isatty() or hasattr(shell, "kernel")
    )
