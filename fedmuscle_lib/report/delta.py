"""A table and its last row, over seeds and beside the paper's: users' metrics, and Delta, the mean
improvement over local training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedmuscle_lib.fedmuscle.algorithms import Phase
from fedmuscle_lib.fedmuscle.arms import BASELINE, HEADLINE, TUNED_BASELINE
from fedmuscle_lib.report.departures import sharing
from fedmuscle_lib.report.paper import PAPER, beside_paper, paper_table
from fedmuscle_lib.report.scores import USER, beside_baseline, every_round, gain, relative, scores
from fedmuscle_lib.report.statistics import over_seeds
from fedmuscle_lib.runs.history import History

TABLE_COLUMNS = [*USER, "algorithm", "mean", "std", "n_seeds", "paper_mean", "paper_std"]
_OVER_TUNED = {"delta": "delta_tuned", "ci_low": "ci_low_tuned", "ci_high": "ci_high_tuned"}
DELTA_COLUMNS = ["public", "algorithm", "delta", "delta_std", "n_seeds", "ci_low", "ci_high"]
DELTA_COLUMNS += [*_OVER_TUNED.values(), "delta_of_means", "paper_delta"]


def table(
    histories: Sequence[History], phase: Phase = HEADLINE, paper: Sequence[str] = PAPER
) -> pd.DataFrame:
    """``TABLE_COLUMNS``: a user's metric under each algorithm, in per cent, beside the cell of the
    tables ``paper`` that have one.
    """
    ours = over_seeds(scores(histories, phase), [*USER, "algorithm"], "value")
    theirs = paper_table(*paper).rename(columns={"mean": "paper_mean", "std": "paper_std"})
    return beside_paper(
        ours, theirs[["setup", "public", "algorithm", "user", "paper_mean", "paper_std"]], histories
    )[TABLE_COLUMNS]


def delta(
    histories: Sequence[History], phase: Phase = HEADLINE, paper: Sequence[str] = PAPER
) -> pd.DataFrame:
    """``DELTA_COLUMNS``: Delta over seeds in per cent, with its 95 % interval, beside what the
    tables ``paper`` print.

    ``delta`` is over local training; ``delta_tuned`` over tuned local training, NaN where that is
    no arm. Both are the mean over seeds of each seed's Delta. ``delta_of_means`` is the paper's
    formula: the mean over users of the ratio of two cells of the table, each of which is a mean
    over seeds. An arm that does not have all users has no Delta and no row. The paper's Delta is
    NaN unless all of its users took part.
    """
    rows, by = scores(histories, phase), ["public", "algorithm"]
    ours = _delta(relative(rows), by)
    if TUNED_BASELINE in set(rows.algorithm):
        over_tuned = _delta(relative(rows, TUNED_BASELINE), by)[[*by, *_OVER_TUNED]]
        ours = ours.merge(over_tuned.rename(columns=_OVER_TUNED), on=by)
    cells = (
        beside_baseline(rows)
        .groupby([*USER, "algorithm"], sort=False)[["value", "local"]]
        .mean()
        .reset_index()
    )
    of_means = (
        gain(cells).groupby(by).value.mean(skipna=False).rename("delta_of_means").reset_index()
    )
    ours = ours.merge(of_means, on=by).reindex(columns=DELTA_COLUMNS[:-1])
    theirs = paper_table(*(f"{name}_delta" for name in paper)).rename(
        columns={"delta_paper": "paper_delta"}
    )
    return beside_paper(ours, theirs[["setup", "public", "algorithm", "paper_delta"]], histories)[
        DELTA_COLUMNS
    ]


def delta_by_seed(
    histories: Sequence[History], phase: Phase = HEADLINE, by: Sequence[str] = ()
) -> pd.DataFrame:
    """Delta of Section 6.1 for each run: public, ``by``, algorithm, seed, delta (per cent): the
    mean over users of :func:`relative`.

    ``by=["task"]`` gives that of each task's users.
    """
    return _over_users(relative(scores(histories, phase)), ["public", *by, "algorithm"])


def delta_by_task(histories: Sequence[History], phase: Phase = HEADLINE) -> pd.DataFrame:
    """Delta over the users of one task, for each task: public, task, algorithm, delta, delta_std,
    n_seeds, ci_low, ci_high.
    """
    return _delta(relative(scores(histories, phase)), ["public", "task", "algorithm"])


def delta_unshared(histories: Sequence[History], phase: Phase = HEADLINE) -> pd.DataFrame:
    """Delta over the users whose checkpoint no user with another model has
    (``departures.sharing``), if some users share and some don't.

    Returns:
        public, algorithm, users (their numbers), delta, delta_std, n_seeds, ci_low, ci_high; no row
        if all share or none does.
    """
    settings = max(
        (history.settings for history in histories), key=lambda s: len(s.members)
    )  # some arms do not serve everybody
    shared = {user.number for users in sharing(settings).values() for user in users}
    own = [user.number for user in settings.members if user.number not in shared]
    gains = relative(scores(histories, phase))
    out = _delta(gains[gains.user.isin(own if shared else [])], ["public", "algorithm"])
    out.insert(2, "users", " ".join(map(str, own)))
    return out


def curve(histories: Sequence[History], over_last: bool = False) -> pd.DataFrame:
    """Delta as training goes on: public, algorithm, round, delta, delta_std, n_seeds, ci_low,
    ci_high.

    Args:
        over_last: over local training's last round and not over the same one, in which a local
            metric may still be 0.
    """
    return _delta(_as_training_goes_on(histories, over_last), ["public", "algorithm", "round"])


def loss_curve(histories: Sequence[History]) -> pd.DataFrame:
    """Mean alignment loss of the users as training goes on: public, algorithm, round, loss, std,
    n_seeds, ci_low, ci_high.
    """
    parts = []
    for history in histories:
        loss = (
            history.losses.groupby("round").alignment.mean().dropna().rename("loss").reset_index()
        )
        parts.append(
            loss.assign(
                public=history.settings.public, algorithm=history.arm, seed=history.settings.seed
            )
        )
    rows = over_seeds(pd.concat(parts, ignore_index=True), ["public", "algorithm", "round"], "loss")
    return rows.rename(columns={"mean": "loss"})


def loss_correlation(histories: Sequence[History]) -> pd.DataFrame:
    """Spearman's rho of FedMuscle's mean alignment loss and each arm's Delta over the evaluated
    rounds, on each seed.

    The other arms never minimise this loss: their rho is what rounds alone give. An arm whose Delta
        never moves has no row.

    Returns:
        public, seed, algorithm, rho (with Delta over local training's last round), rho_same_round
        (over its same round, where defined).
    """
    of = ["public", "seed", "algorithm"]
    runs = [history for history in histories if history.arm == "fedmuscle"]
    losses = pd.concat(
        run.losses.assign(public=run.settings.public, seed=run.settings.seed) for run in runs
    )
    loss = losses.groupby(["public", "seed", "round"]).alignment.mean()
    rhos: dict[Any, dict[str, float]] = {}
    for name in ("rho", "rho_same_round"):
        rows = _over_users(
            _as_training_goes_on(histories, over_last=name == "rho"),
            ["public", "algorithm", "round"],
        )
        for arm, curve in rows.join(loss, on=loss.index.names).groupby(of):
            if curve.delta.nunique() > 1:
                rhos.setdefault(arm, {})[name] = curve.alignment.corr(
                    curve.delta, method="spearman"
                )
    found = [dict(zip(of, arm, strict=True)) | own for arm, own in rhos.items() if "rho" in own]
    return pd.DataFrame(found, columns=[*of, "rho", "rho_same_round"])


def _as_training_goes_on(histories: Sequence[History], over_last: bool) -> pd.DataFrame:
    rows = every_round(histories, [history.metrics for history in histories])
    rows = rows[rows.phase == HEADLINE]
    if over_last:
        ends = rows[rows["round"] == rows["round"].max()].drop(columns="round")
        baseline = rows[rows.algorithm == BASELINE].drop(columns="value").merge(ends)
        rows = pd.concat([rows[rows.algorithm != BASELINE], baseline], ignore_index=True)
    return relative(rows)


def _over_users(gains: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Delta of each seed: the mean over the users that ``by`` leaves together; NaN if the gain of
    one of them is.

    An arm that lacks one of these users has no Delta.
    """
    groups, together = (
        gains.groupby([*by, "seed"], sort=False),
        [name for name in by if name != "algorithm"],
    )
    deltas = pd.DataFrame(
        {"users": groups.user.nunique(), "delta": groups.value.mean(skipna=False)}
    ).reset_index()
    deltas = deltas.merge(
        gains.groupby(together).user.nunique().rename("everyone").reset_index(), on=together
    )
    return deltas[deltas.users == deltas.everyone].drop(columns=["users", "everyone"])


def _delta(gains: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """``by``, delta, delta_std, n_seeds, ci_low, ci_high."""
    return over_seeds(_over_users(gains, by), by, "delta").rename(
        columns={"mean": "delta", "std": "delta_std"}
    )
