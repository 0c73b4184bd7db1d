"""Histories: the measurements of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal

import pandas as pd

from fedmuscle_lib.runs.settings import S


@dataclass(frozen=True)
class History(Generic[S]):
    """The measurements of a run. Its tables' columns are the system's (``System.tables``).

    Attributes:
        settings: what was asked for.
        metrics: rows of evaluated rounds (from 1), in the order in which they were measured.
        costs: rows of what a round cost each of those who took part.
        losses: rows of the losses of a round.
        measures: rows of what the server measured, such as how far users agree. Many algorithms
            measure nothing.
        provenance: seconds, peak memory, versions, machine, and what else the system says of the
            run.
        origin: whether the run was computed here or came with the repository.
        caveats: what differs between here and where a shipped run was computed, as sentences.
        setting: what distinguishes it from other runs of its algorithm in a table, such as "M = 5";
            empty if nothing does.
    """

    settings: S
    metrics: pd.DataFrame
    costs: pd.DataFrame
    losses: pd.DataFrame
    measures: pd.DataFrame
    provenance: dict[str, Any]
    origin: Literal["computed", "shipped"] = "computed"
    caveats: tuple[str, ...] = ()
    setting: str = ""

    @property
    def arm(self) -> str:
        """The run's name in tables and figures: "<algorithm>" or "<algorithm>, <setting>"."""
        return ", ".join(filter(None, (self.settings.algorithm, self.setting)))

    @property
    def remark(self) -> str:
        """Return where a shipped run is from, and what differs here; nothing on a computed one."""
        if self.origin == "computed":
            return ""
        came = f"This run came with the repository; it was finished {self.provenance['finished']}"
        return ". ".join((came, *self.caveats))

    def final(self, phase: str | None = None) -> pd.DataFrame:
        """The last round's metrics; where a round is evaluated after each of its phases, those of
        ``phase``, by default of the last one.
        """
        rows = self.metrics[self.metrics["round"] == self.metrics["round"].max()]
        if "phase" in rows:
            rows = rows[rows.phase == (phase or rows.phase.iloc[-1])]
        return rows.reset_index(drop=True)


def algorithm_of(arm: str) -> str:
    """The algorithm of an arm, by the arm's name."""
    return arm.partition(", ")[0]


def setting_of(arm: str) -> str:
    """The setting by which the arm differs from others of its algorithm, by the arm's name; empty
    if it has none.
    """
    return arm.partition(", ")[2]
