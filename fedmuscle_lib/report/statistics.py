"""Statistics over seeds: means, deviations and intervals over seeds, paired differences, and rank
correlations.

Standard deviations are over seeds with ddof = 0, because the paper's are: each of the 172 distinct
cells of Tables 1 and 7 is the mean and the population standard deviation of three values with one
decimal, while only 86 of them could be sample standard deviations. Intervals are 95 % Student t
intervals over seeds (ddof = 1). A single seed has neither: both are NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import factorial

import pandas as pd
from scipy.stats import kendalltau, permutation_test, rankdata, spearmanr
from scipy.stats import t as student

CONFIDENCE = 0.95


def over_seeds(rows: pd.DataFrame, by: list[str], column: str) -> pd.DataFrame:
    """Per group of ``by``: mean, std, n_seeds, ci_low, ci_high of ``column``.

    A NaN among the values makes them all NaN.
    """
    groups = rows.groupby(by, sort=False)[column]
    out = pd.DataFrame(
        {
            "mean": groups.mean(skipna=False),
            "std": groups.std(ddof=0, skipna=False),
            "n_seeds": groups.size(),
        }
    )
    half = student.ppf((1 + CONFIDENCE) / 2, out.n_seeds - 1) * groups.sem(
        skipna=False
    )  # NaN without a degree of freedom
    out["std"] = out["std"].where(out.n_seeds > 1)
    return out.assign(ci_low=out["mean"] - half, ci_high=out["mean"] + half).reset_index()


def paired_difference(
    rows: pd.DataFrame, a: str, b: str, by: list[str], column: str
) -> pd.DataFrame:
    """``column`` of arm ``a`` minus that of ``b`` on the same seeds: ``by``, difference, std,
    n_seeds, ci_low, ci_high.

    Raises:
        ValueError: the two have no seed and public set in common.
    """
    key = [*by, "seed"]
    first, second = (rows[rows.algorithm == name].set_index(key)[column] for name in (a, b))
    common = first.index.intersection(second.index)
    if common.empty:
        raise ValueError(f"{a} and {b} have no run with the same seed and public set")
    pairs = (first.reindex(common) - second.reindex(common)).rename("difference").reset_index()
    return over_seeds(pairs, by, "difference").rename(columns={"mean": "difference"})


def paired_differences(
    rows: pd.DataFrame, pairs: Iterable[tuple[str, str]], by: list[str], column: str
) -> pd.DataFrame:
    """:func:`paired_difference` of each pair of arms (a, b) of which both are there: ``by``, a, b,
    and its other columns.
    """
    arms = set(rows.algorithm)
    found = [
        paired_difference(rows, a, b, by, column).assign(a=a, b=b)
        for a, b in pairs
        if {a, b} <= arms
    ]
    columns = [*by, "a", "b", "difference", "std", "n_seeds", "ci_low", "ci_high"]
    none = pd.DataFrame(columns=columns).astype(dict.fromkeys(columns[-5:], float))
    return pd.concat(found, ignore_index=True)[columns] if found else none


def side_of_zero(low: float, high: float) -> int:
    """+1 or -1 if the interval lies on one side of 0, else 0 (no interval: 0)."""
    return int(low > 0) - int(high < 0)


def interval(low: float, high: float, digits: int = 2) -> str:
    """Such as [+1.02, +2.50]."""
    return f"[{low:+.{digits}f}, {high:+.{digits}f}]"


def with_interval(value: float, low: float, high: float, digits: int = 2) -> str:
    """Such as "+1.76 [+1.02, +2.50]", or "+1.76" if there is no interval."""
    if pd.isna(value):
        return "undefined: a local metric is 0"
    return f"{value:+.{digits}f}" + (f" {interval(low, high, digits)}" if pd.notna(low) else "")


def with_intervals(
    rows: pd.DataFrame, value: str, low: str = "ci_low", high: str = "ci_high"
) -> list[str]:
    """:func:`with_interval` of each row, by the names of its columns."""
    return [with_interval(*cell) for cell in rows[[value, low, high]].to_numpy()]


def wide(rows: pd.DataFrame, index: str | list[str], columns: str | list[str]) -> pd.DataFrame:
    """The texts ``cell`` of the rows laid out for reading, in the order in which they come."""
    return rows.pivot_table(
        index=index, columns=columns, values="cell", aggfunc="first", sort=False
    )


def wide_intervals(
    rows: pd.DataFrame, value: str, index: str | list[str], columns: str
) -> pd.DataFrame:
    """:func:`wide` with each row's ``value`` and its interval in a cell; the columns have no
    heading of their own.
    """
    return wide(rows.assign(cell=with_intervals(rows, value)), index, columns).rename_axis(
        columns=None
    )


def with_std(mean: float, std: float, digits: int = 1) -> str:
    """Such as "61.4 ± 0.8", or "61.4" if there is no deviation."""
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if pd.notna(std) else "")


def markdown(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = (f"|{'|'.join(row)}|" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def beside(value: float, form: str) -> str:
    """What stands behind our number in a cell: " | " and another's, in the form of a format string;
    nothing where there is none.
    """
    return "" if pd.isna(value) else f" | {value:{form}}"


def rank_correlation(ours: pd.Series, paper: pd.Series) -> dict[str, float]:
    """rho (Spearman's), rho_p, tau (Kendall's tau-b) and tau_p; all are NaN if one side puts
    nothing in order.

    The p-values are two-sided. ``rho_p`` is by permutation, over all permutations for up to nine
    values; ``tau_p`` is exact unless there are ties.
    """
    rho = spearman(ours, paper)
    if pd.isna(rho):
        return dict.fromkeys(("rho", "rho_p", "tau", "tau_p"), float("nan"))
    ranks = rankdata(paper)
    # the scalar product of the ranks orders permutations as rho does, and is far faster
    permuted = permutation_test(
        (rankdata(ours),),
        lambda x, axis: (x * ranks).sum(axis=axis),
        permutation_type="pairings",
        n_resamples=factorial(9),
        rng=0,
    )
    tau = kendalltau(ours, paper)
    return {"rho": rho, "rho_p": permuted.pvalue, "tau": tau.statistic, "tau_p": tau.pvalue}


def spearman(ours: pd.Series, paper: pd.Series) -> float:
    """Spearman's rho; NaN if one side puts nothing in order."""
    return (
        spearmanr(ours, paper).statistic
        if min(ours.nunique(), paper.nunique()) > 1
        else float("nan")
    )
