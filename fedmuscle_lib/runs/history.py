"""What a run measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from fedmuscle_lib.settings import Settings

Phase = Literal["after_local", "after_alignment"]
Origin = Literal["computed", "shipped"]
PHASES: tuple[Phase, ...] = ("after_local", "after_alignment")
# The moment of the last round that tables, figures and Delta stand at unless they say another: the literal end of Algorithm 1. The paper
# does not say when it evaluates.
HEADLINE: Phase = "after_alignment"
(OTHER_MOMENT,) = (phase for phase in PHASES if phase != HEADLINE)
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
            Phase "after_local" is after the local updates of the round, "after_alignment" at its end; in the last round the
            latter is the literal end of Algorithm 1.
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

    def final(self, phase: Phase = HEADLINE) -> pd.DataFrame:
        """The last round's rows of ``phase``, one a user."""
        rows = self.metrics[self.metrics.phase == phase]
        return rows[rows["round"] == rows["round"].max()].reset_index(drop=True)
