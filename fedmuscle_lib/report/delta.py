"""A table and its last row, over seeds and beside the paper's: users' metrics, and Delta, the mean improvement over local training."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fedmuscle_lib.report.arms import History, Phase
from fedmuscle_lib.report.departures import sharing
from fedmuscle_lib.report.paper import PAPER, beside_paper, paper_table
from fedmuscle_lib.report.scores import USER, every_round, relative, scores
from fedmuscle_lib.report.statistics import over_seeds

TABLE_COLUMNS = [*USER, "algorithm", "mean", "std", "n_seeds", "paper_mean", "paper_std"]
DELTA_COLUMNS = ["public", "algorithm", "delta", "delta_std", "n_seeds", "ci_low", "ci_high", "paper_delta"]


def table(histories: Sequence[History], phase: Phase = "after_alignment", paper: Sequence[str] = PAPER) -> pd.DataFrame:
    """``TABLE_COLUMNS``: a user's metric under each algorithm, in per cent, beside the cell of the tables ``paper`` that have one."""
    ours = over_seeds(scores(histories, phase), [*USER, "algorithm"], "value")
    theirs = paper_table(*paper).rename(columns={"mean": "paper_mean", "std": "paper_std"})
    return beside_paper(ours, theirs[["setup", "public", "algorithm", "user", "paper_mean", "paper_std"]], histories)[TABLE_COLUMNS]


def delta(histories: Sequence[History], phase: Phase = "after_alignment", paper: Sequence[str] = PAPER) -> pd.DataFrame:
    """``DELTA_COLUMNS``: Delta over seeds in per cent, with its 95 % interval, beside what the tables ``paper`` print.

    The paper's is NaN unless all of its users took part.
    """
    ours = _delta(relative(scores(histories, phase)), ["public", "algorithm"])
    theirs = paper_table(*(f"{name}_delta" for name in paper)).rename(columns={"delta_paper": "paper_delta"})
    return beside_paper(ours, theirs[["setup", "public", "algorithm", "paper_delta"]], histories)[DELTA_COLUMNS]


def delta_by_seed(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta of Section 6.1 for each run: public, algorithm, seed, delta (per cent): the mean over users of :func:`relative`."""
    return _over_users(relative(scores(histories, phase)), ["public", "algorithm"])


def delta_by_task(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta over the users of one task, for each task: public, task, algorithm, delta, delta_std, n_seeds, ci_low, ci_high."""
    return _delta(relative(scores(histories, phase)), ["public", "task", "algorithm"])


def delta_unshared(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta over the users whose checkpoint no user with another model has (``departures.sharing``), if some users share and some don't.

    Returns:
        public, algorithm, users (their numbers), delta, delta_std, n_seeds, ci_low, ci_high; no row if all share or none does.
    """
    settings = histories[0].settings  # as all of them: ``scores`` refuses other users
    shared = {user.number for users in sharing(settings).values() for user in users}
    own = [user.number for user in settings.members if user.number not in shared]
    gains = relative(scores(histories, phase))
    out = _delta(gains[gains.user.isin(own if shared else [])], ["public", "algorithm"])
    out.insert(2, "users", " ".join(map(str, own)))
    return out


def curve(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta as training goes on: public, algorithm, round, delta, delta_std, n_seeds, ci_low, ci_high."""
    rows = every_round(histories, [history.metrics for history in histories])
    return _delta(relative(rows[rows.phase == phase]), ["public", "algorithm", "round"])


def _over_users(gains: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Delta of each seed: the mean over the users that ``by`` leaves together; NaN if the gain of one of them is."""
    return gains.groupby([*by, "seed"], sort=False).value.mean(skipna=False).rename("delta").reset_index()


def _delta(gains: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """``by``, delta, delta_std, n_seeds, ci_low, ci_high."""
    return over_seeds(_over_users(gains, by), by, "delta").rename(columns={"mean": "delta", "std": "delta_std"})
