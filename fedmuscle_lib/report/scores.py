"""What was measured: the users' metrics, as they are, relative to local training, and as a trivial answer would reach them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from fedmuscle_lib.report.arms import BASELINE, History, Phase, algorithm_of, arm, baseline_of, is_blind
from fedmuscle_lib.report.statistics import over_seeds
from fedmuscle_lib.tasks import direction

USER = ["public", "user", "model", "task", "metric"]


def scores(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """The last round's metrics: public, user, model, task, metric, algorithm, seed, value (per cent).

    A run that never looks at public data counts for every public set that the others were run on.

    Raises:
        ValueError: the runs can't stand in one table: of different users or test data, or two of one arm, public set and seed.
    """
    return every_round(histories, [history.final(phase) for history in histories]).drop(columns=["round", "phase"])


def every_round(histories: Sequence[History], metrics: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """``metrics``, one frame a run, as :func:`scores` gives them, with the columns round and phase; raises as it does."""
    _refuse_unlike(histories)
    sighted = {h.settings.public: None for h in histories if not is_blind(arm(h))}  # a dict keeps the order
    parts = []
    for history, rows in zip(histories, metrics, strict=True):
        s = history.settings
        for public in list(sighted) if is_blind(arm(history)) and sighted else [s.public]:
            parts.append(rows.assign(public=public, algorithm=arm(history), seed=s.seed))
    together = pd.concat(parts, ignore_index=True).drop_duplicates()
    key = ["public", "user", "algorithm", "seed", "round", "phase"]
    if (twice := together[together.duplicated(key)]).size:
        row = twice.iloc[0]
        what = f"{row.algorithm} on {row.public} with seed {row.seed}"
        raise ValueError(f"two different runs of {what}: a table holds one of them, or names the other by as_arm")
    return together[[*USER, "algorithm", "seed", "round", "phase", "value"]]


def _refuse_unlike(histories: Sequence[History]) -> None:
    if not histories:
        raise ValueError("no runs to report on")
    for name in ("profile", "setup", "users", "evaluate_on"):
        values = {getattr(history.settings, name) for history in histories}
        if len(values) > 1:
            raise ValueError(f"runs with different {name} don't stand in one table: {sorted(map(str, values))}")


def relative(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with ``value`` as the improvement over the same seed's local training, in per cent of it; NaN where that is 0.

    An improvement is a larger metric, or a smaller one where lower is better, as with perplexity. An arm is compared with the local
    training that has its setting, if that is an arm too.

    Raises:
        ValueError: a seed or public set has no local run.
    """
    key = ["public", "user", "seed", "round", "phase"]
    key = [name for name in key if name in rows]
    arms = rows.algorithm.unique()
    local = rows.loc[rows.algorithm.map(algorithm_of) == BASELINE, [*key, "algorithm", "value"]]
    local = local.rename(columns={"algorithm": "baseline", "value": "local"})
    baselines = rows.assign(baseline=rows.algorithm.map({name: baseline_of(name, arms) for name in arms}))
    paired = baselines.merge(local, on=[*key, "baseline"], how="left")
    if (alone := paired[paired.local.isna()]).size:
        row = alone.iloc[0]
        raise ValueError(f"{row.algorithm} on {row.public} with seed {row.seed} has no run of local training to compare with")
    sign = paired.metric.map(direction)
    value = 100 * (sign * paired.value - sign * paired.local) / paired.local.where(paired.local != 0)
    return paired.assign(value=value).drop(columns=["baseline", "local"])


def trivial(histories: Sequence[History]) -> pd.DataFrame:
    """What an answer that looks at no input would reach, whatever the algorithm: user, model, task, metric, mean, std, n_seeds.

    It is made from the training targets that the seed drew, such as the most frequent class (``Task.trivial``).
    """
    _refuse_unlike(histories)
    parts = []
    for history in histories:
        reached = {int(user): value for user, value in history.provenance["trivial"].items()}  # a stored run's keys are strings
        rows = history.final()
        parts.append(rows.assign(seed=history.settings.seed, value=rows.user.map(reached)))
    user = USER[1:]
    values = pd.concat(parts)[[*user, "seed", "value"]].drop_duplicates()
    return over_seeds(values, user, "value").drop(columns=["ci_low", "ci_high"])
