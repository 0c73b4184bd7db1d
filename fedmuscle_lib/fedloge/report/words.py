"""What the numbers say, in Markdown: what an interval allows one to say of a difference, and the line under a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedmuscle_lib.fedloge.report.authors import CELL, DATA, cells, logs
from fedmuscle_lib.fedloge.report.tables import GLOBAL_REALIGNMENT, Run, label
from fedmuscle_lib.report.provenance import named, origins, spread
from fedmuscle_lib.report.statistics import interval, side_of_zero

_MEASURES = {"global": "global model", "personal": "personal models"}


def verdict(row: Any) -> str:
    """What a row of ``differences`` says, such as "raises the tail by 3.10 points [1.00, 5.20]".

    Where the interval contains 0, or there is none, it "leaves the tail undecided".
    """
    what = "accuracy" if row.group == "all" else f"the {row.group}"
    if pd.isna(row.ci_low):
        return f"leaves {what} undecided ({row.difference:+.2f} points on one seed, without an interval)"
    side = side_of_zero(row.ci_low, row.ci_high)
    if not side:
        return f"leaves {what} undecided ({row.difference:+.2f} points {interval(row.ci_low, row.ci_high)})"
    low, high = sorted((abs(row.ci_low), abs(row.ci_high)))
    return f"{'raises' if side > 0 else 'lowers'} {what} by {abs(row.difference):.2f} points [{low:.2f}, {high:.2f}]"


def verdicts(differences: pd.DataFrame) -> str:
    """Markdown, an item a difference: which models, what minus what, and its verdict on each group of classes."""
    items = []
    for (scope, a, b, masked), rows in differences.groupby(["scope", "a", "b", "masked"], sort=False):
        which = _MEASURES[scope] + (", masked" if masked else "")
        items.append(f"- {which}, {label(a)} instead of {label(b)}: {'; '.join(map(verdict, rows.itertuples()))}.")
    return "\n".join(items)


def hypothesis(differences: pd.DataFrame) -> str:
    """A Markdown sentence: whether global realignment raises the tail and lowers the head, as the intervals have it.

    Both must hold for "supported"; "contradicted" takes one interval on the other side of 0.
    """
    scope, a, b = GLOBAL_REALIGNMENT
    rows = differences[(differences.scope == scope) & (differences.a == a) & (differences.b == b)].set_index("group")
    expected = {"tail": 1, "head": -1}
    if missing := [name for name in expected if name not in rows.index]:
        return f"The hypothesis can't be tested: no class is in the {' or the '.join(missing)}."
    agreeing = [sign * side_of_zero(rows.ci_low[name], rows.ci_high[name]) for name, sign in expected.items()]
    outcome = "supported" if min(agreeing) > 0 else "contradicted" if min(agreeing) < 0 else "undecided"
    said = "; ".join(verdict(row) for row in rows.loc[list(expected)].reset_index().itertuples())
    return f"Hypothesis, that global realignment raises the tail and lowers the head: **{outcome}**. It {said}."


def note(histories: Sequence[Run]) -> str:
    """A Markdown line under a table: whose numbers these are, what ± and brackets mean, and where the runs come from."""
    s, seeds = histories[0].settings, sorted({history.settings.seed for history in histories})
    sentences = [f"Ours | the authors'. Accuracies in per cent after the last round. Profile `{s.profile}`, {named(seeds)}.", spread(seeds)]
    return " ".join([*sentences, *_authors(histories), *origins(histories)])


def _authors(histories: Sequence[Run]) -> list[str]:
    """Sentences: which logs the authors' figures are of, and what choosing the best round on the test set would add to them."""
    s = histories[0].settings
    beside = cells(s)
    beside = beside[beside.algorithm.isin([history.settings.algorithm for history in histories])]
    if beside.empty:
        return [f"The authors have no log of `{s.data}` with alpha = {s.alpha:g} and imbalance = {s.imbalance:g}."]
    known = logs().rename(columns={"log": "authors_log"}).merge(beside, on=[*CELL, "authors_log", "authors_mean"])
    settings = [
        f"`{row.authors_log}` ({row.clients} clients, {100 * row.participation:g} % of them in a round)"
        for row in known.drop_duplicates("authors_log").itertuples()
    ]
    gain = (known.best - known.authors_mean).max()
    whose = DATA[s.data].replace("cifar", "CIFAR-") + "-LT"
    stands_in = [] if s.data.startswith("cifar") else [f"`{s.data}` is no {whose}, and its numbers are not expected to be."]
    return [
        f"The authors' are the last rounds of their logs {' and '.join(settings)} of {whose}, alpha = {s.alpha:g}, "
        f"imbalance = {s.imbalance:g}, one run each. Their best rounds, chosen on the test set, are up to {gain:.1f} points higher.",
        *stands_in,
    ]
