"""What happened in a federation's rounds, as the server saw it; and its state on disk, from which a
killed server resumes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.network.terms import Terms

STATE = "state.json"


class History:
    """Rows of the rounds so far.

    Args:
        folder: where they are kept, ``rounds.csv`` and ``users.csv`` too.
        terms: of the federation.

    Attributes:
        rounds: a row a round: round (from 1), how many users ended it, alignment_loss, seconds.
        users: a row a round and user: round, user, why_not (what kept it from ending the round),
            bytes of the messages' numbers, and what it reports.

    Raises:
        DataError: the folder's state can't be read, or is of other terms.
    """

    def __init__(self, folder: Path, terms: Terms) -> None:
        self._folder, ours = folder, terms.model_dump(mode="json")
        self._state: dict[str, Any] = {"terms": ours, "rounds": [], "users": []}
        if (folder / STATE).exists():
            self._state = files.read_json(folder / STATE)
        if self._state["terms"] != ours:
            raise DataError(
                f"{folder / STATE}: of a federation with other terms; name another folder for a new"
                f" one ({self._state['terms']})"
            )
        self.rounds, self.users = self._state["rounds"], self._state["users"]

    def add(self, round: dict[str, Any], users: list[dict[str, Any]]) -> None:
        """Append a finished round, and keep it."""
        self.rounds.append(round)
        self.users.extend(users)
        files.write(self._folder / STATE, json.dumps(self._state))
        for name in ("rounds", "users"):
            table = pd.DataFrame(self._state[name]).to_csv(index=False)
            files.write(self._folder / f"{name}.csv", table)


def listed(users: Iterable[int]) -> str:
    """Users by number, as lines of progress and errors name them."""
    return f"users {', '.join(map(str, sorted(users))) or 'none'}"
