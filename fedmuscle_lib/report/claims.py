"""The paper's empirical claims, each decided by a test on committed CSV files: ``claims.toml``
lists them.

A claim is about contrasts: sums and differences of single rows' values on the same seeds. It says
that each of them is above 0, or that each is within a margin of 0. The tests are Student's t over
seeds, two-sided. p-values are corrected for the number of claims (Holm 1979). A claim with several
contrasts is reproduced if all of them are as it says, so its p-value is the largest (Berger 1982);
it is contradicted if one is on the other side, and that one's p-value is multiplied by their
number.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from scipy.stats import t as student

from fedmuscle_lib.report.statistics import markdown, with_interval

LEVEL = 0.05
_COLUMNS = [
    "claim",
    "where",
    "unit",
    "difference",
    "ci_low",
    "ci_high",
    "n_seeds",
    "decidable",
    "p",
    "verdict",
]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says, and the rows that decide it.

    Attributes:
        text: the claim in a sentence.
        where: its place in the paper.
        file: CSV file below the folder of a profile, with a row a seed.
        contrasts: each a list of rows such as "+public=voc algorithm=fedmuscle", whose sign begins
            it.
        within: how far from 0 a contrast may be that the claim calls small; None if the claim is
            that contrasts are above 0.
        column: of the file.
        unit: of the column.
    """

    text: str
    where: str
    file: str
    contrasts: Sequence[Sequence[str]]
    within: float | None = None
    column: str = "delta"
    unit: str = "points of Δ"


class _Tested(NamedTuple):
    """A contrast: its mean, its standard error, seeds, whether it is on the claim's side, and the
    p-value of its side.
    """

    mean: float
    error: float
    n: int
    holds: bool
    p: float

    def half(self, tails: float) -> float:
        """Half the width of an interval that leaves so much probability outside; NaN on one
        seed.
        """
        return float(student.ppf(1 - tails / 2, self.n - 1)) * self.error


def claims() -> list[Claim]:
    """The claims of ``claims.toml``, in its order."""
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf8"))["claim"]
    return [Claim(**one) for one in listed]


def decided(folder: Path, listed: list[Claim]) -> pd.DataFrame:
    """Decide each claim on the CSV files below a profile's folder.

    Returns:
        claim, where, unit, difference (of the contrast that decides), ci_low, ci_high (not
        corrected), n_seeds, decidable (a difference from the claim's border that is decided for
        sure, whatever the other claims' p-values), p (corrected for the number of all listed
        claims, whether they have runs or not, so that no verdict depends on what else was run),
        verdict: "reproduced", "contradicted", "undecided", "untested" (on one seed) or, where the
        profile has no such rows, "not run".
    """
    rows = []
    for claim in listed:
        found = [_tested(values, claim.within) for values in _contrasts(folder / claim.file, claim)]
        row = {
            "claim": claim.text,
            "where": claim.where,
            "unit": claim.unit,
            "holds": None,
            "p": nan,
            "n_seeds": 0,
        }
        if found:
            against = [one for one in found if not one.holds]
            one = (
                min(against, key=lambda one: one.p)
                if against
                else max(found, key=lambda one: one.p)
            )
            half, sure = (
                one.half(LEVEL),
                one.half(LEVEL / len(listed) / (len(found) if against else 1)),
            )
            row |= {
                "difference": one.mean,
                "ci_low": one.mean - half,
                "ci_high": one.mean + half,
                "decidable": sure,
            }
            row |= {
                "n_seeds": one.n,
                "holds": one.holds,
                "p": one.p * len(found) if against else one.p,
            }
        rows.append(row)
    out = pd.DataFrame(rows).reindex(columns=[*_COLUMNS, "holds"])
    out["p"] = holm(out.p, len(listed))
    out["verdict"] = [_verdict(row.holds, row.p) for row in out.itertuples()]
    return out[_COLUMNS]


def verdicts(folder: Path) -> dict[str, str]:
    """Verdicts by notebook, such as "2 reproduced, 1 undecided", as the ``claims.csv`` of a
    profile's folder has them.
    """
    if not (path := folder / "claims" / "claims.csv").exists():
        return {}
    found, texts = pd.read_csv(path), {claim.text: claim.file.split("/")[0] for claim in claims()}
    found = found[found.verdict != "not run"]
    return {
        str(name): counted(each) for name, each in found.groupby(found.claim.map(texts)).verdict
    }


def ledger(found: pd.DataFrame) -> str:
    """The claims as :func:`decided` returns them, in a Markdown table."""
    rows = [["claim", "where", "verdict", "difference", "decidable", "unit", "seeds", "p"]]
    for row in found.itertuples():
        tested = [
            with_interval(row.difference, row.ci_low, row.ci_high).replace(
                " ", "\N{NO-BREAK SPACE}"
            ),
            f"{row.decidable:.2f}",
            row.unit,
            str(row.n_seeds),
            f"{row.p:.3f}",
        ]
        cells = (
            ["" if cell == "nan" else cell for cell in tested]
            if row.n_seeds
            else [""] * len(tested)
        )
        rows.append([row.claim, row.where, row.verdict, *cells])
    return markdown(rows)


def counted(verdicts: pd.Series) -> str:
    """How many there are of each verdict, without "not run", such as "2 reproduced, 1
    undecided".
    """
    return ", ".join(
        f"{n} {verdict}"
        for verdict, n in verdicts[verdicts != "not run"].value_counts(sort=False).items()
    )


def holm(p: pd.Series, family: int | None = None) -> pd.Series:
    """p-values corrected for their number, so that the chance of one false verdict is at most the
    level; NaN stays.

    Args:
        family: how many questions were asked, also those without a p-value; by default as many as
            have one.
    """
    known = p.dropna().sort_values()
    most = family or len(known)
    return (
        (known * list(range(most, most - len(known), -1))).cummax().clip(upper=1.0).reindex(p.index)
    )


def selected(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """The rows that ``where`` selects, such as "public=voc algorithm='fedmuscle, tuned'".

    Raises:
        KeyError, ValueError: there is no such column, or its value should be a number.
    """
    for column, value in (part.split("=", 1) for part in shlex.split(where)):
        rows = rows[rows[column] == (value if rows[column].dtype.kind in "OUT" else float(value))]
    return rows


def _contrasts(path: Path, claim: Claim) -> list[pd.Series]:
    """The value of each contrast on every seed that all of its rows have; none if a row is not
    there.
    """
    if not path.exists():
        return []
    rows, found = pd.read_csv(path), []
    for contrast in claim.contrasts:
        terms = []
        for term in contrast:
            own = selected(rows, term[1:])
            if own.empty:
                return []
            terms.append(
                (-1 if term[0] == "-" else 1) * own.set_index("seed")[claim.column].astype(float)
            )
        found.append(pd.concat(terms, axis="columns", join="inner").sum(axis="columns"))
    return found


def _tested(values: pd.Series, within: float | None) -> _Tested:
    n, mean, error = len(values), values.mean(), values.sem()
    holds = mean > 0 if within is None else abs(mean) < within
    far = (
        abs(mean) if within is None else abs(abs(mean) - within)
    )  # from the border between the claim and its contrary
    sides = 2 if within is None else 1
    p = float(sides * student.sf(far / error, n - 1)) if error > 0 else nan
    return _Tested(mean, error, n, bool(holds), p)


def _verdict(holds: bool | None, p: float) -> str:
    if holds is None:
        return "not run"
    if isnan(p):
        return "untested"
    return ("reproduced" if holds else "contradicted") if p < LEVEL else "undecided"
