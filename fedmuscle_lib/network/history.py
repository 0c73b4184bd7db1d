"""What happened in a federation's rounds, as the server saw it; and its state on disk, from which a
killed server resumes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import DataError, prefixed
from fedmuscle_lib.network.messages import Report
from fedmuscle_lib.network.terms import Terms
from fedmuscle_lib.runs.store import Busy
from fedmuscle_lib.tasks import direction

STATE = "state.json"
MOST_GAIN = 1e9  # per cent; beyond it a report says nothing, and a mean could overflow


class History:
    """Rows of the rounds so far.

    Args:
        folder: where they are kept, ``rounds.csv`` and ``users.csv`` too; None for nowhere.
        terms: of the federation.

    Attributes:
        rounds: a row a round: round (from 1), users who ended it, alignment_loss, seconds, and of
            these waiting_seconds until the parties were ready.
        users: a row a round and user: round, user, why_not (what kept it from ending the round),
            bytes of the messages' numbers, and what it reports with gain_percent.

    Raises:
        DataError: the folder's state is damaged, or of other terms.
    """

    def __init__(self, folder: Path | None, terms: Terms) -> None:
        self._folder, self._terms = folder, terms.model_dump(mode="json")
        self.rounds: list[dict[str, Any]] = []
        self.users: list[dict[str, Any]] = []
        if folder is None or not (folder / STATE).exists():
            return
        state = files.read_json(folder / STATE)
        with prefixed(f"{folder / STATE}: no state of a server", KeyError):
            before, self.rounds, self.users = state["terms"], state["rounds"], state["users"]
        if before != self._terms:
            raise DataError(
                f"{folder / STATE}: of a federation with other terms; name another folder for a new"
                f" one ({before})"
            )

    def add(self, round: dict[str, Any], users: list[dict[str, Any]]) -> None:
        """Append a finished round, and keep it."""
        self.rounds.append(round)
        self.users += users
        if self._folder is not None:
            state = {"terms": self._terms, "rounds": self.rounds, "users": self.users}
            files.write(self._folder / STATE, json.dumps(state))
            for name in ("rounds", "users"):
                table = pd.DataFrame(state[name]).to_csv(index=False)
                files.write(self._folder / f"{name}.csv", table)


def columns_of(report: Report | None) -> dict[str, Any]:
    """What a party reports, by column. gain_percent says how much better value is than local; it is
    None where local is 0 or not known, or the gain is beyond belief.
    """
    if report is None:
        return dict.fromkeys((*Report.model_fields, "gain_percent"))
    local = report.local or nan
    gain = 100 * direction(report.metric) * (report.value / local - 1)
    return report.model_dump() | {"gain_percent": gain if abs(gain) <= MOST_GAIN else None}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make a folder and hold it, since two processes would spoil each other's state; raises Busy if
    another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(str(folder / "lock"), timeout=0):
            yield
    except Timeout:
        raise Busy(f"{folder}: another process uses it") from None


def listed(users: Iterable[int]) -> str:
    """Users by number, as lines of progress and errors name them."""
    numbers = sorted(users)
    return f"user{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}" if numbers else "nobody"
