"""One tidy frame of runs, whatever the federation, and the six functions that tables are made of.

A row is one metric of one evaluation of one run. Intervals are 95 % Student t intervals over seeds
(ddof = 1). Standard deviations are over seeds with ddof = 0, because the paper's are: each of the
172 distinct cells of Tables 1 and 7 is the mean and the population standard deviation of three
values with one decimal, while only 86 of them could be sample standard deviations. A single seed
has neither: both are NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from scipy.stats import t as student

from fedmuscle_lib.runs.history import History
from fedmuscle_lib.tasks import direction

BASELINES = {"local": "local", "tuned": "local, tuned"}  # by column of gains
CONFIDENCE = 0.95
STATISTICS = ["std", "n_seeds", "ci_low", "ci_high"]


def tidy(histories: Sequence[History[Any]]) -> pd.DataFrame:
    """The runs' metrics with algorithm (the arm) and seed, and public where runs have public sets.

    An arm that ignores public data stands beside every public set of the others.

    Raises:
        ValueError: there are no runs, or two different ones are of the same arm, public set and
            seed.
    """
    if not histories:
        raise ValueError("no runs to report on")
    seen = [run.settings.public for run in histories if getattr(run.settings, "sees_public", False)]
    parts = []
    for run in histories:
        rows, s = run.metrics.assign(algorithm=run.arm, seed=run.settings.seed), run.settings
        if not hasattr(s, "sees_public"):
            parts.append(rows)
        else:
            publics = [s.public] if s.sees_public or not seen else dict.fromkeys(seen)
            parts += [rows.assign(public=public) for public in publics]
    rows = pd.concat(parts, ignore_index=True).drop_duplicates(ignore_index=True)
    twice = rows[rows.duplicated(rows.columns.difference(["value"]).tolist())]
    if len(twice):
        arm, seed = twice.iloc[0][["algorithm", "seed"]]
        raise ValueError(
            f"two different runs of {arm} with seed {seed}: a table holds one of them, or names the"
            " other by its History.setting"
        )
    return rows


def last(rows: pd.DataFrame, phase: str | None = None) -> pd.DataFrame:
    """Each run's last evaluated round, without the columns round and phase.

    Args:
        phase: the moment of the round, where it is evaluated after each of its phases.
    """
    if phase:
        rows = rows[rows.phase == phase].drop(columns="phase")
    of = rows.columns.difference(["round", "value"]).tolist()
    final = rows.groupby(of, dropna=False)["round"].transform("max")
    return rows[rows["round"] == final].drop(columns="round").reset_index(drop=True)


def gains(rows: pd.DataFrame, over: pd.DataFrame | None = None) -> pd.DataFrame:
    """``rows`` with local and tuned (the baselines' values on the same seed), and gain and
    gain_tuned: the improvement over them in per cent, NaN where the baseline is 0 or not there.

    An improvement is a larger metric, or a smaller one where lower is better, as with perplexity.

    Args:
        over: the rows that have the baselines, such as :func:`last` of all rows; by default
            ``rows``. A column that only one of the two has is not matched.

    Raises:
        ValueError: a row has no run of local training to compare with.
    """
    rows, over = rows.reset_index(drop=True), rows if over is None else over
    key = [name for name in rows if name in over and name not in ("algorithm", "value")]
    for column, arm in BASELINES.items():
        theirs = over.loc[over.algorithm == arm, [*key, "value"]].drop_duplicates(key)
        rows = rows.merge(theirs.rename(columns={"value": column}), how="left", on=key)
    if rows.local.isna().any():
        arm, seed = rows[rows.local.isna()].iloc[0][["algorithm", "seed"]]
        raise ValueError(f"{arm} with seed {seed} has no run of local training to compare with")
    return rows.assign(gain=gain(rows, rows.local), gain_tuned=gain(rows, rows.tuned))


def gain(rows: pd.DataFrame, base: pd.Series) -> pd.Series:
    """The improvement of ``rows.value`` over ``base`` in per cent of it; NaN where that is 0."""
    sign = rows.metric.map(direction)
    return 100 * (sign * rows.value - sign * base) / base.where(base != 0)


def delta(rows: pd.DataFrame, by: Sequence[str], value: str = "gain") -> pd.DataFrame:
    """Delta of Section 6.1 of each seed: ``by``, seed, delta, the mean of ``value`` over the users.

    It is NaN if that of a user is. An arm that lacks one of the users whom the other arms of its
    group have has no Delta.
    """
    together = [name for name in by if name != "algorithm"]
    everyone = rows.groupby(together or (lambda _: 0)).user.transform("nunique")
    groups = rows.assign(everyone=everyone).groupby([*by, "seed"], sort=False)
    found = groups.agg(users=("user", "nunique"), everyone=("everyone", "max"))
    found["delta"] = groups[value].mean(skipna=False)
    whole = found[found.users == found.everyone]
    return whole[["delta"]].reset_index()


def over_seeds(rows: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Per group of ``by``: mean, std, n_seeds, ci_low, ci_high of ``value``; a NaN among its values
    makes them NaN.
    """
    groups = rows.groupby(list(by), sort=False)[value]
    mean, n = groups.mean(skipna=False), groups.size()
    half = student.ppf((1 + CONFIDENCE) / 2, n - 1) * groups.sem(skipna=False)
    found = pd.DataFrame({"mean": mean, "std": groups.std(ddof=0, skipna=False), "n_seeds": n})
    found["std"] = found["std"].where(n > 1)
    return found.assign(ci_low=mean - half, ci_high=mean + half).reset_index()


def paired(
    rows: pd.DataFrame, pairs: Iterable[tuple[str, str]], by: Sequence[str], value: str
) -> pd.DataFrame:
    """``value`` of arm a minus that of b on the same seeds, of those pairs (a, b) that have some:
    ``by``, a, b, difference, std, n_seeds, ci_low, ci_high.
    """
    key, parts = [*by, "seed"], []
    for a, b in pairs:
        ours, theirs = (rows[rows.algorithm == arm].set_index(key)[value] for arm in (a, b))
        difference = (ours - theirs.reindex(ours.index))[ours.index.isin(theirs.index)]
        parts.append(difference.rename("difference").reset_index().assign(a=a, b=b))
    columns = [*key, "a", "b", "difference"]
    every = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    found = over_seeds(every.astype({"difference": float}), [*by, "a", "b"], "difference")
    return found.rename(columns={"mean": "difference"})[[*by, "a", "b", "difference", *STATISTICS]]
