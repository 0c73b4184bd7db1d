"""What happened in a federation's rounds, as the server saw it; and its state on disk, from which a
killed server resumes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.network.messages import Report
from fedmuscle_lib.network.terms import Terms
from fedmuscle_lib.runs.store import Busy
from fedmuscle_lib.tasks import direction

STATE = "state.json"
LOST = "started again from its checkpoint before this round"
_HALF = [
    f".*.{kind}-{'[0-9a-f]' * 8}" for kind in ("json", "csv", "pt")
]  # by a process that was killed while writing
# Columns of the tables, each a CSV in the server's folder. Rounds count from 1; bytes are the
# messages' numbers, without framing.
#
# rounds: a row a round; seconds of waiting for the parties, and of exchange, from the first batch
# to the last. users: a row a round and user. took_part says whether it was there when the alignment
# began, why_not what the server says of one who was not or who left; metric, value and local are
# what a party reports, gain_percent how much better value is than local.
TABLES = {
    "rounds": ("round", "users", "alignment_loss", "waiting_seconds", "exchange_seconds"),
    "users": (
        "round",
        "user",
        "took_part",
        "why_not",
        "uplink_bytes",
        "downlink_bytes",
        "metric",
        "value",
        "local",
        "gain_percent",
    ),
}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make a folder and hold it, since two processes would spoil each other's state; raises Busy if
    another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(str(folder / "lock"), timeout=0):
            for path in [path for pattern in _HALF for path in folder.glob(pattern)]:
                path.unlink()
            yield
    except Timeout:
        raise Busy(f"{folder}: another process uses it") from None


class History:
    """Rows of the rounds so far.

    Args:
        folder: where they are kept; None for nowhere.
        terms: of the federation.

    Attributes:
        finished: how many rounds are over.
        over: parties who know that all rounds are.
        rows: by table.

    Raises:
        DataError: the folder's state is damaged, or of other terms.
    """

    def __init__(self, folder: Path | None, terms: Terms) -> None:
        self._folder, self._terms = folder, terms.model_dump(mode="json")
        self.finished, self.over = 0, set[int]()
        self._reports: dict[
            tuple[Any, Any], Report
        ] = {}  # by round and user, of a round that is not accounted for
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        if folder is not None and (folder / STATE).exists():
            self._read(folder / STATE)

    def _read(self, path: Path) -> None:
        state = files.read_json(path)
        try:
            changed = [
                name for name, value in self._terms.items() if state["terms"].get(name) != value
            ]
            finished, over, rows = (
                state["finished"],
                set(state["over"]),
                {name: list(state["rows"][name]) for name in TABLES},
            )
            whole = type(finished) is int and all(
                row.keys() == set(TABLES[name]) for name in rows for row in rows[name]
            )
        except (KeyError, TypeError, AttributeError):
            raise DataError(f"{path}: no state of a server") from None
        if changed:
            raise DataError(
                f"{path}: of a federation with other terms ({', '.join(changed)}); name another"
                " folder for a new one"
            )
        if not whole or not 0 <= finished <= self._terms["rounds"]:
            raise DataError(f"{path}: no state of a server")
        self.finished, self.over, self.rows = finished, over, rows

    def add(self, table: str, **row: Any) -> None:
        """Append a row; a column that is not given has no value.

        A user's has what it reported of the round.
        """
        if table == "users" and (report := self._reports.pop((row["round"], row["user"]), None)):
            row |= columns_of(report)
        self.rows[table].append({name: row.get(name) for name in TABLES[table]})

    def report(self, round: int, user: int, report: Report) -> None:
        """Note what a party reports of a round, from 0, which may be accounted for already;
        once.
        """
        if round >= self.finished:
            self._reports[round + 1, user] = report
        for row in self.rows["users"]:
            if (row["round"], row["user"]) == (round + 1, user) and row["metric"] is None:
                row |= columns_of(report)

    def lost(self, after: int, user: int) -> None:
        """Note that a party took part in rounds after this one, from 0, and was killed before it
        kept what it learned.
        """
        for row in self.rows["users"]:
            if row["user"] == user and row["round"] > after + 1:
                row["why_not"] = row["why_not"] or LOST

    def took_part(self, round: int) -> set[int]:
        """Users who took part in a round, from 1, to its end."""
        return {
            row["user"]
            for row in self.rows["users"]
            if row["round"] == round and row["took_part"] and not row["why_not"]
        }

    def keep(self) -> None:
        """Write the tables, and then the state."""
        if self._folder is None:
            return
        for name in TABLES:
            files.write(self._folder / f"{name}.csv", self.table(name).to_csv(index=False))
        state = {
            "finished": self.finished,
            "over": sorted(self.over),
            "terms": self._terms,
            "rows": self.rows,
        }
        files.write(self._folder / STATE, json.dumps(state))

    def table(self, name: str) -> pd.DataFrame:
        """One of TABLES."""
        return pd.DataFrame(self.rows[name], columns=list(TABLES[name]))


def columns_of(report: Report) -> dict[str, Any]:
    """What a party reports, by column; gain_percent is None where the metric of its own local
    training is 0 or not known.
    """
    gain = (
        100 * direction(report.metric) * (report.value / report.local - 1) if report.local else None
    )
    return report.model_dump() | {"gain_percent": gain}


def listed(users: Iterable[int]) -> str:
    """Users by number, as lines of progress and errors name them."""
    numbers = sorted(users)
    return f"user{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}" if numbers else "none"
