"""The ledger: the registered claims, each decided by a test on committed CSV files.

``figures/<profile>/claims/registered.toml`` lists the claims and says how they are tested; it was
committed before the runs that decide them. A claim is about contrasts: sums and differences of
single rows' values on the same seeds. It says that each of them is above 0, or within a margin of
0.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isnan, nan, sqrt
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import t as student

from fedmuscle_lib.core.files import Stamp, stamp_of
from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.report.statistics import markdown, with_interval

LEVEL = 0.05
NOTHING = 2.0  # points of Delta within which two arms do not differ
POINTS = "points of Δ"
_MOST_SEEDS = 1000  # a search for more is in vain
_TOLD = ["difference", "ci_low", "ci_high", "paper"]
_COLUMNS = ["claim", "family", "where", "by", "unit", *_TOLD[:3], "n_seeds"]
_COLUMNS += ["p", "word", "paper", "size", "seeds_needed"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is claimed, and the rows that decide it.

    Attributes:
        text: the claim in a sentence.
        family: p-values are corrected within the claims of one family.
        where: its place in the paper.
        by: "paper" or "ours".
        file: CSV file below the folder of a profile, with a row a seed.
        contrasts: each a list of rows such as "+public=voc algorithm=fedmuscle", whose sign begins
            it; a row of another file begins with that file's name.
        seeds: those that decide.
        within: how far from 0 a contrast may be that the claim calls small; None if the claim is
            that contrasts are above 0.
        paper: what the paper prints for each contrast, if it does.
        seen: seeds whose values had been seen when the claim was registered.
        column: of the file.
        unit: of the column.
    """

    text: str
    family: str
    where: str
    by: str
    file: str
    contrasts: Sequence[Sequence[str]]
    seeds: Sequence[int]
    within: float | None = None
    paper: Sequence[float] = ()
    seen: Sequence[int] = ()
    column: str = "delta"
    unit: str = POINTS


@dataclass(frozen=True)
class _Contrast:
    mean: float
    deviation: float  # over seeds, ddof = 1
    paper: float

    def p_above(self, border: float, n: int) -> float:
        """The p-value of Student's t that the mean is above ``border``."""
        return float(student.sf((self.mean - border) / self.error(n), n - 1))

    def p_below(self, border: float, n: int) -> float:
        return 1 - self.p_above(border, n)

    def p_within(self, border: float, n: int) -> float:
        """Below 5 % if the 90 % interval lies within ``border`` of 0."""
        return max(self.p_above(-border, n), self.p_below(border, n))

    def error(self, n: int) -> float:
        return max(self.deviation / sqrt(n), 1e-12)

    def told(self, n: int) -> tuple[float, float, float, float]:
        """The columns ``_TOLD`` of the ledger."""
        half = float(student.ppf(1 - LEVEL / 2, n - 1)) * self.error(n)
        return self.mean, self.mean - half, self.mean + half, self.paper


def registered(folder: Path) -> list[Claim]:
    """The claims that are registered for a profile, by the folder of its pages."""
    path = folder / "claims" / "registered.toml"
    return _registered(path, stamp_of(path))


@lru_cache(maxsize=2)
def _registered(path: Path, stamp: Stamp | None) -> list[Claim]:
    """The claims of a file while its stamp stays the same; an index asks for each notebook's."""
    return [Claim(**one) for one in tomllib.loads(path.read_text(encoding="utf8"))["claim"]]


def decided(folder: Path, claims: Iterable[Claim]) -> pd.DataFrame:
    """Decide each claim on the CSV files below a profile's folder.

    Returns:
        claim, family, where, by, unit; difference, ci_low, ci_high (95 %, not corrected) of the
        contrast that decides; n_seeds; p (of the claim's side, corrected within its family unless
        the claim is about a margin); word, "holds", "opposite", "no difference" or "open", or ""
        unless all of its seeds are there; paper and size ("excluded" if what the paper prints for
        this contrast lies outside the interval, else "compatible"); and for an open claim
        seeds_needed, with which this mean and deviation would decide it.
    """
    rows = [_tested(folder, claim) for claim in claims]
    out = pd.DataFrame(rows)
    for p in ("p_holds", "p_opposite"):
        corrected = out.groupby("family", sort=False)[p].transform(holm)
        out[p] = corrected.where(~out.margin | (p == "p_opposite"), out[p])
    known = out.p_holds.notna()
    out["word"] = ""
    out.loc[known, "word"] = "open"
    out.loc[known & out.nothing, "word"] = "no difference"
    out.loc[out.p_opposite < LEVEL, "word"] = "opposite"
    out.loc[out.p_holds < LEVEL, "word"] = "holds"
    out["p"] = out.p_opposite.where(out.word == "opposite", out.p_holds)
    decides = out.against.where(out.word == "opposite", out.decides)
    out[_TOLD] = [
        one.told(n) if one else [nan] * 4 for one, n in zip(decides, out.n_seeds, strict=True)
    ]
    printed = out.paper.notna() & known
    excluded = (out.paper < out.ci_low) | (out.paper > out.ci_high)
    out["size"] = excluded.map({True: "excluded", False: "compatible"}).where(printed, "")
    out["seeds_needed"] = out.seeds_needed.where(out.word == "open").astype("Int64")
    return out[_COLUMNS]


def ledger(folder: Path, found: pd.DataFrame) -> str:
    """Claims of a profile's folder as :func:`decided` returns them, in a Markdown table; ``fresh``
    are seeds whose values nobody had seen when the claim was registered.
    """
    seen = {(claim.text, claim.family): claim.seen for claim in registered(folder)}
    head = ["claim", "where", "word", "size", f"difference ({POINTS})", "paper", "seeds", "fresh"]
    rows = [[*head, "p"]]
    for one in found.itertuples():
        word = one.word or ("not all seeds yet" if one.n_seeds else "no run yet")
        word += f" ({one.seeds_needed:.0f} seeds)" if word == "open" else ""
        fresh = max(0, one.n_seeds - len(seen[one.claim, one.family]))
        difference = paper = p = ""
        if one.n_seeds > 1:
            unit = "" if one.unit == POINTS else f" {one.unit}"
            difference = with_interval(one.difference, one.ci_low, one.ci_high) + unit
            paper = "" if isnan(one.paper) else f"{one.paper:+.2f}"
            p = "" if isnan(one.p) else f"{one.p:.3f}" if one.p >= 0.001 else "< 0.001"
        numbers = [difference.replace(" ", "\N{NO-BREAK SPACE}"), paper, one.n_seeds, fresh, p]
        rows.append([one.claim, place_of(one), word, one.size, *map(str, numbers)])
    return markdown(rows)


def place_of(claim: Any) -> str:
    """A claim's place, by its family where this says more."""
    return claim.family if claim.family.startswith(claim.where) else claim.where


def verdicts(folder: Path) -> str:
    """What the committed ledger says of the tables in a folder of results, as Markdown."""
    profile = FIGURES / folder.parent.name
    found = of_notebook(profile, folder.name)
    if not len(found):
        return "The ledger has no claim about these settings."
    return ledger(profile, found)


def holm(p: pd.Series) -> pd.Series:
    """p-values corrected for their number (Holm 1979), so that the chance of one false word is at
    most the level. A NaN stays, and counts: its question was asked too.
    """
    known = p.dropna().sort_values()
    factors = range(len(p), len(p) - len(known), -1)
    return (known * list(factors)).cummax().clip(upper=1.0).reindex(p.index)


def of_notebook(folder: Path, notebook: str) -> pd.DataFrame:
    """The committed ledger's rows of a profile that are about a notebook's table or decided by its
    files; none where the profile has no ledger.
    """
    if not (path := folder / "claims" / "claims.csv").exists():
        return pd.DataFrame(columns=_COLUMNS)
    ledger = pd.read_csv(path, dtype={"word": str, "size": str})
    ledger = ledger.fillna({"word": "", "size": ""})
    own = {
        (claim.text, claim.family)
        for claim in registered(folder)
        if notebook in (claim.file.split("/")[0], claim.family.replace(" ", "").lower())
    }
    return ledger[[key in own for key in zip(ledger.claim, ledger.family, strict=True)]]


def _tested(folder: Path, claim: Claim) -> dict[str, Any]:
    row: dict[str, Any] = {"claim": claim.text, "margin": claim.within is not None}
    row |= {name: getattr(claim, name) for name in ("family", "where", "by", "unit")}
    row |= dict.fromkeys(["p_holds", "p_opposite", "seeds_needed"], nan)
    values = _values(folder, claim)
    row |= {"nothing": False, "decides": None, "against": None, "n_seeds": (n := len(values))}
    if n < 2:
        return row
    papers = claim.paper or [nan] * len(claim.contrasts)
    contrasts = [
        _Contrast(values[i].mean(), values[i].std(), paper) for i, paper in enumerate(papers)
    ]
    p_holds, p_opposite = _p_values(contrasts, claim.within, n)
    row["decides"] = contrasts[p_holds.index(max(p_holds))]
    row["against"] = contrasts[p_opposite.index(min(p_opposite))]
    if n < len(claim.seeds):  # a word needs all seeds that were registered
        return row
    points = claim.unit == POINTS
    nothing = points and all(one.p_within(NOTHING, n) < LEVEL for one in contrasts)
    row |= {"p_holds": max(p_holds), "p_opposite": _summed(p_opposite), "nothing": nothing}
    return row | {"seeds_needed": _seeds_needed(contrasts, claim.within, points)}


def _p_values(
    contrasts: Sequence[_Contrast], within: float | None, n: int
) -> tuple[list[float], list[float]]:
    """For each contrast, the p-value that it is as the claim says, and that it is the opposite."""
    if within is None:
        return [c.p_above(0, n) for c in contrasts], [c.p_below(0, n) for c in contrasts]
    beyond = [min(c.p_above(within, n), c.p_below(-within, n)) for c in contrasts]
    return [c.p_within(within, n) for c in contrasts], beyond


def _summed(p: Sequence[float]) -> float:
    return min(1.0, min(p) * len(p))


def _seeds_needed(contrasts: Sequence[_Contrast], within: float | None, points: bool) -> float:
    for n in range(2, _MOST_SEEDS):
        p_holds, p_opposite = _p_values(contrasts, within, n)
        nothing = [one.p_within(NOTHING, n) for one in contrasts] if points else [inf]
        if min(max(p_holds), _summed(p_opposite), max(nothing)) < LEVEL:
            return n
    return _MOST_SEEDS


def _values(folder: Path, claim: Claim) -> pd.DataFrame:
    """A column a contrast, a row a seed on which all rows of all contrasts have a value."""
    columns = {}
    for i, contrast in enumerate(claim.contrasts):
        terms = [_term(folder, claim, term) for term in contrast]
        columns[i] = pd.concat(terms, axis="columns", join="inner").sum(
            axis="columns", skipna=False
        )
    return pd.concat(columns, axis="columns", join="inner").dropna()


def _term(folder: Path, claim: Claim, term: str) -> pd.Series:
    sign, where, file = term[0], term[1:], claim.file
    if "=" not in (first := shlex.split(where)[0]):
        file, where = first, where.removeprefix(first)
    if not (folder / file).exists():
        return pd.Series(dtype=float)
    rows = pd.read_csv(folder / file)
    rows = rows[rows.seed.isin(claim.seeds)]
    for column, value in (part.split("=", 1) for part in shlex.split(where)):
        rows = rows[rows[column] == (value if rows[column].dtype.kind in "OUT" else float(value))]
    return (-1 if sign == "-" else 1) * rows.set_index("seed")[claim.column].astype(float)
