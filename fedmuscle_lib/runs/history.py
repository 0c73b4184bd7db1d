"""What a run measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from fedmuscle_lib.algorithms import Phase
from fedmuscle_lib.settings import Settings

Origin = Literal["computed", "shipped"]
# A run's tables and their columns.
TABLES = {
    "metrics": ("round", "phase", "user", "model", "task", "metric", "value"),
    "costs": ("round", "user", "uplink_bytes", "downlink_bytes", "flops", "flops_done"),
    "losses": ("round", "user", "local", "alignment"),
    "measures": ("round", "user", "measure", "value"),
}


@dataclass(frozen=True)
class History:
    """What a run measured.

    Attributes:
        settings: what was asked for.
        metrics: one row per evaluated round (from 1), phase, and user: round, phase, user, model, task, metric, value (per cent).
            Phase "after_local" is after the local updates of the round, "after_alignment" after the alignment. The last round's second
            phase is the literal end: the latter in Algorithm 1, the former where a round aligns first (setting ``order``). Rows stand
            in the order in which they were measured.
        costs: one row per user and round: round, user, uplink_bytes, downlink_bytes, flops (of the user's
            training, every call through the whole backbone), flops_done (what ran; what training never changes ran once).
        losses: one row per user and round: round, user, local (mean over the last local epoch), alignment (mean over the round's steps on
            public data); NaN where there was no such step.
        measures: what the server measured of a user: round, user, measure, value. Most algorithms measure nothing.
        provenance: seconds, peak memory, versions, machine, and each user's metric by an answer that looks at no input.
        origin: whether the run was computed here or came with the repository.
        caveats: what differs between here and where a shipped run was computed, as sentences.
    """

    settings: Settings
    metrics: pd.DataFrame
    costs: pd.DataFrame
    losses: pd.DataFrame
    measures: pd.DataFrame
    provenance: dict[str, Any]
    origin: Origin = "computed"
    caveats: tuple[str, ...] = field(default=())

    def final(self, phase: Phase | None = None) -> pd.DataFrame:
        """The last round's rows of ``phase``, one a user; by default of the literal end."""
        rows = self.metrics[self.metrics.phase == (phase or self.metrics.phase.iloc[-1])]
        return rows[rows["round"] == rows["round"].max()].reset_index(drop=True)
