"""Metrics of the users, as they are, relative to local training, and as they can be reached without
a backbone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Phase
from fedmuscle_lib.fedmuscle.arms import HEADLINE, baseline_of, is_blind, label
from fedmuscle_lib.report.statistics import over_seeds
from fedmuscle_lib.runs.history import History
from fedmuscle_lib.tasks import direction

USER = ["public", "user", "model", "task", "metric"]
REFERENCES = ("trivial", "tfidf")  # in a run's provenance


def scores(histories: Sequence[History], phase: Phase = HEADLINE) -> pd.DataFrame:
    """The last round's metrics: public, user, model, task, metric, algorithm, seed, value (per
    cent).

    A run that never looks at public data counts for every public set that the others were run on.

    Raises:
        ValueError: the runs can't stand in one table: of different users or test data, or two of
            one arm, public set and seed.
    """
    return every_round(histories, [history.final(phase) for history in histories]).drop(
        columns=["round", "phase"]
    )


def every_round(histories: Sequence[History], metrics: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """``metrics``, one frame a run, as :func:`scores` gives them, with the columns round and phase;
    raises as it does.
    """
    _refuse_unlike(histories)
    publics = list(
        dict.fromkeys(history.settings.public for history in histories if not is_blind(history.arm))
    )
    parts = []
    for history, rows in zip(histories, metrics, strict=True):
        s = history.settings
        for public in publics if is_blind(history.arm) and publics else [s.public]:
            parts.append(rows.assign(public=public, algorithm=history.arm, seed=s.seed))
    together = pd.concat(parts, ignore_index=True).drop_duplicates()
    key = ["public", "user", "algorithm", "seed", "round", "phase"]
    if (twice := together[together.duplicated(key)]).size:
        row = twice.iloc[0]
        what = f"{row.algorithm} on {row.public} with seed {row.seed}"
        raise ValueError(
            f"two different runs of {what}: a table holds one of them, or names the other by as_arm"
        )
    return together[[*USER, "algorithm", "seed", "round", "phase", "value"]]


def _refuse_unlike(histories: Sequence[History]) -> None:
    if not histories:
        raise ValueError("no runs to report on")
    for name in ("profile", "setup", "evaluate_on"):
        values = {getattr(history.settings, name) for history in histories}
        if len(values) > 1:
            raise ValueError(
                f"runs with different {name} don't stand in one table: {sorted(map(str, values))}"
            )
    everyone = {user for history in histories for user in history.settings.members}
    for history in histories:
        served = {
            user
            for user in everyone
            if algorithms.get(history.settings.algorithm).serves(user.task)
        }
        if set(history.settings.members) != served:
            values = {tuple(user.number for user in h.settings.members) for h in histories}
            raise ValueError(
                f"runs with different users don't stand in one table: {sorted(map(str, values))}"
            )


def relative(rows: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """``rows`` with ``value`` as the improvement over the same seed's local training, in per cent
    of it; NaN where that is 0.

    An improvement is a larger metric, or a smaller one where lower is better, as with perplexity.

    Args:
        rows: as :func:`scores` gives them.
        baseline: the arm that all others are compared with; by default the one that ``baseline_of``
            says.

    Raises:
        ValueError: a seed or public set has no run of the baseline.
    """
    return gain(beside_baseline(rows, baseline))


def beside_baseline(rows: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """``rows`` with a column ``local``, the baseline's value on the same seed; arguments and errors
    as :func:`relative`.
    """
    key = [name for name in ("public", "user", "seed", "round", "phase") if name in rows]
    arms = rows.algorithm.unique()
    baselines = {name: baseline or baseline_of(name, arms) for name in arms}
    theirs = rows.loc[rows.algorithm.isin(baselines.values()), [*key, "algorithm", "value"]]
    theirs = theirs.rename(columns={"algorithm": "baseline", "value": "local"})
    paired = rows.assign(baseline=rows.algorithm.map(baselines)).merge(
        theirs, on=[*key, "baseline"], how="left"
    )
    if (alone := paired[paired.local.isna()]).size:
        row = alone.iloc[0]
        lacking = label(row.baseline).lower()
        raise ValueError(
            f"{row.algorithm} on {row.public} with seed {row.seed} has no run of {lacking} to"
            " compare with"
        )
    return paired.drop(columns="baseline")


def gain(paired: pd.DataFrame) -> pd.DataFrame:
    """Return what :func:`beside_baseline` gives, with ``value`` as the improvement over ``local``
    in per cent; NaN where that is 0.
    """
    sign = paired.metric.map(direction)
    value = (
        100 * (sign * paired.value - sign * paired.local) / paired.local.where(paired.local != 0)
    )
    return paired.assign(value=value).drop(columns="local")


def class_counts(history: History) -> pd.DataFrame:
    """Training samples of the users who divide a pool: user, model, task, class, samples; a row for
    each class that a user has.
    """
    counts = history.provenance["class_counts"]
    rows = [
        {
            "user": user.number,
            "model": user.model,
            "task": user.task,
            "class": c,
            "samples": samples,
        }
        for user in history.settings.members
        for c, samples in enumerate(counts[str(user.number)])
    ]
    return pd.DataFrame(rows).query("samples > 0").reset_index(drop=True)


def references(histories: Sequence[History]) -> pd.DataFrame:
    """Metrics that need no backbone, whatever the algorithm: reference, user, model, task, metric,
    mean, std, n_seeds.

    "trivial" is the metric of an answer that looks at no input, such as the most frequent class
    (``Task.trivial``). "tfidf", for users who classify texts, is that of their words alone
    (``TextClassification.by_words``). Both are made from the training set that the seed drew.
    """
    _refuse_unlike(histories)
    parts = []
    for history in histories:
        rows = history.final().assign(seed=history.settings.seed)
        for name in REFERENCES:
            reached = {
                int(user): value for user, value in history.provenance.get(name, {}).items()
            }  # a stored run's keys are strings
            parts.append(rows.assign(reference=name, value=rows.user.map(reached)))
    by = ["reference", *USER[1:]]
    values = pd.concat(parts)[[*by, "seed", "value"]].dropna().drop_duplicates()
    return over_seeds(values, by, "value").drop(columns=["ci_low", "ci_high"])
