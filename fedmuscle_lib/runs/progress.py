"""What a run tells while it is computed, how that is shown, and what an interrupt leaves.

One bar shows all the runs that were asked for, or lines of text do.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan

from tqdm.auto import tqdm

from fedmuscle_lib.runs.settings import RunSettings

_log = logging.getLogger("fedmuscle")
_SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True)
class Tick:
    """A round of a run is finished, or a run goes on after one.

    Attributes:
        run: the run's name, such as "fedmuscle voc seed 0".
        round, rounds: which one, from 1, of how many.
        users: how many took part.
        local_loss, alignment_loss: mean over users; None where there was none.
        metrics: at the round's end, by user, in the task's units, or by name; empty where the round was not evaluated.
        seconds: since the run began, whatever process computed it.
        resumed: whether the run goes on after this round, which an earlier process finished.
        delta: over the system's baseline of the same seed after as many rounds, in per cent, if that has been run.
        address: the run's, which tells it from others of its name.
    """

    run: str
    round: int
    rounds: int
    users: int
    local_loss: float | None = None
    alignment_loss: float | None = None
    metrics: tuple[tuple[int | str, float], ...] = ()
    seconds: float = 0.0
    resumed: bool = False
    delta: float | None = None
    address: str = ""

    def __str__(self) -> str:
        if self.resumed:
            return f"{self.run}: resumed after round {self.round}"
        parts = [f"{self.run}: round {self.round}/{self.rounds}, {self.users} users"]
        if self.local_loss is not None and not isnan(self.local_loss):  # a probe has none
            parts.append(f"local loss {self.local_loss:.3f}")
        if self.alignment_loss is not None:
            parts.append(f"alignment loss {self.alignment_loss:.3f}")
        if self.delta is not None:
            parts.append(f"Delta {self.delta:+.1f} %")
        elif self.metrics:
            named = (f"{who} {value:.1f}" if isinstance(who, str) else f"{value:.1f}" for who, value in self.metrics)
            parts.append("metrics " + " ".join(named))
        return ", ".join([*parts, f"{self.seconds:.0f} s"])


Progress = Callable[[Tick], object]


def heard_by(on_round: Progress | None, tell: Progress) -> Progress:
    """Where ticks go: to ``tell`` and then, each finished round, to ``on_round``. An error of its is logged, and the run goes on."""
    if on_round is None:
        return tell

    def both(tick: Tick) -> None:
        tell(tick)
        if tick.resumed:
            return
        try:
            on_round(tick)
        except Exception as error:
            _log.warning("%s: on_round failed after round %d (%s: %s)", tick.run, tick.round, type(error).__name__, error)

    return both


class Interrupted(KeyboardInterrupt):
    """An interrupt while runs were computed; the text says what is kept and how to go on. A notebook shows it in place of a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks for this
        return [str(self)]


@contextmanager
def showing(wanted: int, missing: Sequence[RunSettings], progress: Progress | None) -> Iterator[Progress]:
    """Where ticks go: to ``progress`` if it is given, else to a bar, or to lines where FEDMUSCLE_PROGRESS is "lines".

    Args:
        wanted: how many runs were asked for.
        missing: those that have to be computed.

    Raises:
        Interrupted: in place of a KeyboardInterrupt within.
    """
    heard: dict[str, Tick] = {}
    try:
        with _display(wanted, missing, progress) as show:

            def tell(tick: Tick) -> None:
                heard[tick.address or tick.run] = tick
                show(tick)

            yield tell
    except KeyboardInterrupt:
        what_is_left = _left(wanted - len(missing), wanted, list(heard.values()))
        _log.info(what_is_left)  # the command line shows no exception
        raise Interrupted(what_is_left) from None


def _left(before: int, wanted: int, heard: Sequence[Tick]) -> str:
    """What is kept when ``before`` of the ``wanted`` runs were stored and these ticks are the last of the others."""
    begun = [tick for tick in heard if tick.round < tick.rounds]
    done = before + sum(tick.round == tick.rounds for tick in heard)
    kept = "; ".join(f"{tick.run}, {tick.round} of {tick.rounds} rounds" for tick in begun)
    parts = [f"Interrupted. {done} of {wanted} runs are stored"]
    if kept:
        parts.append(f"Kept of what was begun: {kept}")
    return ". ".join([*parts, "Run this again to go on from there."])


@contextmanager
def _display(wanted: int, missing: Sequence[RunSettings], progress: Progress | None) -> Iterator[Progress]:
    if progress is not None:
        yield progress
    elif not missing or os.environ.get("FEDMUSCLE_PROGRESS") == "lines":
        print(f"{wanted - len(missing)} of {wanted} stored", flush=True)
        yield _Lines()
    else:
        with _Bar(wanted, missing) as bar:
            yield bar


class _Lines:
    """Prints ticks, but none within a few seconds of the last one, except the last of a run."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, tick: Tick) -> None:
        now = time.monotonic()
        if tick.round == tick.rounds or now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            print(tick, flush=True)


class _Bar:
    """A bar over the rounds of all missing runs, with what was heard last behind it."""

    def __init__(self, wanted: int, missing: Sequence[RunSettings]) -> None:
        self._wanted, self._finished = wanted, wanted - len(missing)
        self._bar = tqdm(total=sum(run.rounds for run in missing), unit="round", dynamic_ncols=True)
        self._rounds: dict[str, int] = {}
        self._describe()

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def __call__(self, tick: Tick) -> None:
        run = tick.address or tick.run
        self._bar.update(max(0, tick.round - self._rounds.get(run, 0)))
        self._rounds[run] = tick.round
        if not tick.resumed:
            delta = "" if tick.delta is None else f", Delta {tick.delta:+.1f} %"
            self._bar.set_postfix_str(f"{tick.run}: round {tick.round}/{tick.rounds}{delta}")
        if tick.round == tick.rounds:
            self._finished += 1
            self._describe()

    def _describe(self) -> None:
        self._bar.set_description(f"{self._finished} of {self._wanted} runs")
