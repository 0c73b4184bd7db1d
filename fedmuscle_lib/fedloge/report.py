"""Reports of FedLoGe's runs: accuracies beside the authors' logs, paired differences and what they
allow one to say, costs, departures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.data.labelled_sets import FOLDER
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.arms import Run
from fedmuscle_lib.fedloge.authors import CELL, DATA, cells, logs, sweep
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.report.provenance import (
    changed,
    described,
    manifests,
    named,
    origins,
    provenance_by_algorithm,
    spread,
    write_results,
)
from fedmuscle_lib.report.statistics import (
    beside,
    interval,
    over_seeds,
    paired_difference,
    side_of_zero,
    wide,
    wide_intervals,
    with_std,
)

TABLE_COLUMNS = [
    *CELL,
    "mean",
    "std",
    "n_seeds",
    "ci_low",
    "ci_high",
    "authors_mean",
    "authors_log",
]
# What is subtracted from what: scope, minuend, subtrahend, each "<algorithm>, <head>".
GLOBAL_REALIGNMENT = ("global", "fedloge, realigned", "fedloge, shared")
LOCAL_REALIGNMENT = ("personal", "fedloge, local + realigned", "fedloge, local + shared")
REALIGNMENTS = (GLOBAL_REALIGNMENT, LOCAL_REALIGNMENT)
HEADS = (
    (
        "personal",
        "fedloge, shared + realigned",
        "fedloge, local + realigned",
    ),  # the README's way of predicting, and the code's
    ("personal", "fedloge, local + shared", "fedloge, shared"),
    ("personal", "fedloge, local + shared", "fedloge, local"),
    ("global", "fedloge, sse_c", "fedloge, shared"),
)
OVER_OTHERS = (
    *(
        ("global", f"fedloge, {head}", other)
        for other in ("fedavg, head", "fedetf, etf", "fedrod, head")
        for head in ("sse_c", "realigned")
    ),
    ("personal", "fedloge, local + shared", "fedavg, head"),
    ("personal", "fedloge, local + realigned", "fedavg, head"),
    ("personal", "fedloge, local + shared", "fedrod, generic + personal"),
)
_MEASURES = {
    ("global", False): "GM",
    ("personal", False): "PM",
    ("personal", True): "PM, masked",
}  # by scope, and whether it is masked
_MODELS = {"global": "global model", "personal": "personal models"}


def scores(histories: Sequence[Run]) -> pd.DataFrame:
    """Accuracies after the last round: seed, ``CELL``, value (per cent)."""
    rows = every_round(histories)
    last = rows.groupby(["algorithm", "seed"])["round"].transform("max")
    return rows[rows["round"] == last].reset_index(drop=True)[["seed", *CELL, "value"]]


def every_round(histories: Sequence[Run]) -> pd.DataFrame:
    """Accuracies after each evaluated round: round, seed, ``CELL``, value (per cent)."""
    each = [
        history.metrics.assign(algorithm=history.arm, seed=history.settings.seed)
        for history in histories
    ]
    return pd.concat(each, ignore_index=True)[["round", "seed", *CELL, "value"]]


def table(histories: Sequence[Run]) -> pd.DataFrame:
    """``TABLE_COLUMNS``: each accuracy over seeds beside the last round of the authors' log, if it
    has the cell.

    Scope, head, masked and group are those of ``Federation.evaluate``.
    """
    found = over_seeds(scores(histories), CELL, "value")
    return found.merge(cells(histories[0].settings), on=CELL, how="left")[TABLE_COLUMNS]


def differences(
    histories: Sequence[Run], pairs: Iterable[tuple[str, str, str]] = (*REALIGNMENTS, *HEADS)
) -> pd.DataFrame:
    """Paired differences on the same seeds after the last round, of those pairs of which both were
    run.

    Returns:
        scope, a, b, masked, group, difference (of a minus b, percentage points), std, n_seeds,
        ci_low, ci_high.
    """
    return _paired(scores(histories), pairs, ["masked", "group"])


def over_others(histories: Sequence[Run]) -> pd.DataFrame:
    """:func:`differences` between FedLoGe, under each of its settings, and other methods.

    Returns:
        its columns, and since: the evaluated round from which on the interval has been on one side
            of 0; NaN if it is not at the end.
    """
    settings = dict.fromkeys(
        history.arm for history in histories if history.settings.algorithm == "fedloge"
    )
    pairs = [
        (scope, a.replace("fedloge", arm, 1), b) for arm in settings for scope, a, b in OVER_OTHERS
    ]
    found, by = differences(histories, pairs), ["scope", "a", "b", "masked", "group"]
    rounds = _paired(every_round(histories), pairs, ["round", "masked", "group"]).sort_values(
        "round"
    )
    sides = rounds.assign(
        side=[side_of_zero(*ends) for ends in rounds[["ci_low", "ci_high"]].to_numpy()]
    ).groupby(by)
    return (
        found.merge(sides.apply(_since).rename("since").reset_index(), on=by, how="left")
        if len(found)
        else found.assign(since=None)
    )


def _since(rounds: pd.DataFrame) -> float:
    """The first round after which the side was never another than at the end; NaN if there is no
    side at the end.
    """
    end = rounds.side.iloc[-1]
    last_other = max(rounds["round"][rounds.side != end], default=0)
    return min(rounds["round"][rounds["round"] > last_other]) if end else float("nan")


def _paired(
    rows: pd.DataFrame, pairs: Iterable[tuple[str, str, str]], by: list[str]
) -> pd.DataFrame:
    """Paired differences of arms with their heads within each group of ``by``."""
    rows, found = rows.assign(algorithm=rows.algorithm + ", " + rows["head"]), []
    for scope, a, b in pairs:
        own = rows[rows.scope == scope]
        if {a, b} <= set(own.algorithm):
            found.append(paired_difference(own, a, b, by, "value").assign(scope=scope, a=a, b=b))
    columns = ["scope", "a", "b", *by, "difference", "std", "n_seeds", "ci_low", "ci_high"]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def over_rounds(histories: Sequence[Run]) -> pd.DataFrame:
    """GM after each evaluated round, over seeds: algorithm, head, group, round, mean, std, n_seeds,
    ci_low, ci_high.
    """
    rows = every_round(histories)
    return over_seeds(
        rows[rows.scope == "global"], ["algorithm", "head", "group", "round"], "value"
    )


def mask_gains(histories: Sequence[Run]) -> pd.DataFrame:
    """Return how much PM over all classes rises where absent classes can't be predicted, with
    nothing else changed.

    Returns:
        arm ("<algorithm>, <head>"), difference (percentage points), std, n_seeds, ci_low, ci_high.
    """
    rows = scores(histories)
    rows = rows[(rows.scope == "personal") & (rows.group == ALL)].assign(
        arm=rows.algorithm + ", " + rows["head"]
    )
    rows["algorithm"] = rows.masked.map({True: "masked", False: "unmasked"})
    return paired_difference(rows, "masked", "unmasked", ["arm"], "value")


def swept(histories: Sequence[Run], option: str) -> pd.DataFrame:
    """GM after the last round over all classes and in the tail, of runs that differ in an option:
    the option, head, group, value.

    Of the norm also authors_mean, over all classes: it is of log h's setting, and which head it is
        of is unknown.
    """
    ends = [
        history.final().assign(**{option: history.settings.options[f"fedloge.{option}"]})
        for history in histories
    ]
    every = pd.concat(ends, ignore_index=True)
    own = every[(every.scope == "global") & every.group.isin([ALL, "tail"])][
        [option, "head", "group", "value"]
    ]
    return (
        own.merge(sweep().assign(group=ALL), on=["norm", "group"], how="left")
        if option == "norm"
        else own.reset_index(drop=True)
    )


def costs(histories: Sequence[Run]) -> pd.DataFrame:
    """Return what a run costs, the mean over seeds.

    Returns:
        algorithm, uplink_kb and downlink_kb (10^3 bytes per client and round), seconds,
        peak_memory_mb.
    """
    rows = [
        {
            "algorithm": history.arm,
            "uplink_kb": history.costs.uplink_bytes.mean() / 1e3,
            "downlink_kb": history.costs.downlink_bytes.mean() / 1e3,
            "seconds": history.provenance["seconds"],
            "peak_memory_mb": history.provenance["peak_memory_bytes"] / 1e6,
        }
        for history in histories
    ]
    return pd.DataFrame(rows).groupby("algorithm", sort=False).mean().reset_index()


def departures(histories: Sequence[Run]) -> pd.DataFrame:
    """Settings, and the algorithms' own options, that are not those of the README's command:
    setting, ours, authors.
    """
    return pd.DataFrame(changed(histories, methods.get), columns=["setting", "ours", "authors"])


def label(arm: str) -> str:
    """The name of an arm with or without its head in figures and headings, such as "FedAvg", which
    has one head, or "FedLoGe, shared".
    """
    algorithm, _, head = arm.partition(", ")
    return methods.get(algorithm).label + ("" if head in ("", "head") else f", {head}")


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """:func:`table` laid out for reading: a row an algorithm and head, a column a measure and
    group, "ours | the authors'" in a cell.
    """
    rows = table.assign(
        method=[label(f"{row.algorithm}, {row.head}") for row in table.itertuples()],
        column=[
            _MEASURES[row.scope, row.masked] + ("" if row.group == ALL else f": {row.group}")
            for row in table.itertuples()
        ],
        cell=[
            with_std(row.mean, row.std) + beside(row.authors_mean, ".1f")
            for row in table[["mean", "std", "authors_mean"]].itertuples()
        ],
    )
    found = wide(rows, "method", "column")
    order = [
        name + group
        for name in _MEASURES.values()
        for group in ("", ": head", ": middle", ": tail")
    ]
    return found[[name for name in order if name in found]].fillna("").rename_axis(columns=None)


def laid_out(differences: pd.DataFrame) -> pd.DataFrame:
    """:func:`differences` laid out for reading: a row a difference, a column a group of classes,
    points with their interval in a cell.
    """
    rows = differences.assign(
        measure=[_MEASURES[row.scope, row.masked] for row in differences.itertuples()],
        difference_of=[f"{label(row.a)} − {label(row.b)}" for row in differences.itertuples()],
    )
    return wide_intervals(rows, "difference", ["measure", "difference_of"], "group").fillna("")


def verdict(row: Any) -> str:
    """Say what a row of :func:`differences` allows one to say, such as "raises the tail by 3.10
    points [1.00, 5.20]".

    Where the interval contains 0, or there is none, it "leaves the tail undecided". Half of its
    width is the smallest difference that these seeds could have told from 0.
    """
    what = "accuracy" if row.group == ALL else f"the {row.group}"
    if pd.isna(row.ci_low):
        return (
            f"leaves {what} undecided ({row.difference:+.2f} points on one seed, without an"
            " interval)"
        )
    side = side_of_zero(row.ci_low, row.ci_high)
    if not side:
        half = (row.ci_high - row.ci_low) / 2
        return (
            f"leaves {what} undecided ({row.difference:+.2f} points"
            f" {interval(row.ci_low, row.ci_high)}; {half:.2f} would be decided)"
        )
    low, high = sorted((abs(row.ci_low), abs(row.ci_high)))
    since = (
        f", from round {row.since:.0f} on" if pd.notna(getattr(row, "since", float("nan"))) else ""
    )
    return (
        f"{'raises' if side > 0 else 'lowers'} {what} by {abs(row.difference):.2f} points"
        f" [{low:.2f}, {high:.2f}]{since}"
    )


def verdicts(differences: pd.DataFrame) -> str:
    """Markdown, an item a difference: which models, what minus what, and its verdict on each group
    of classes.
    """
    items = []
    for (scope, a, b, masked), rows in differences.groupby(
        ["scope", "a", "b", "masked"], sort=False
    ):
        which = _MODELS[scope] + (", masked" if masked else "")
        items.append(
            f"- {which}, {label(a)} instead of {label(b)}:"
            f" {'; '.join(map(verdict, rows.itertuples()))}."
        )
    return "\n".join(items)


def hypothesis(differences: pd.DataFrame) -> str:
    """A Markdown sentence: whether global realignment raises the tail and lowers the head, as the
    intervals have it.

    Both must hold for "supported"; "contradicted" takes one interval on the other side of 0.
    """
    scope, a, b = GLOBAL_REALIGNMENT
    rows = differences[
        (differences.scope == scope) & (differences.a == a) & (differences.b == b)
    ].set_index("group")
    expected = {"tail": 1, "head": -1}
    if missing := [name for name in expected if name not in rows.index]:
        return f"The hypothesis can't be tested: no class is in the {' or the '.join(missing)}."
    agreeing = [
        sign * side_of_zero(rows.ci_low[name], rows.ci_high[name])
        for name, sign in expected.items()
    ]
    outcome = (
        "supported" if min(agreeing) > 0 else "contradicted" if min(agreeing) < 0 else "undecided"
    )
    said = "; ".join(verdict(row) for row in rows.loc[list(expected)].reset_index().itertuples())
    return (
        f"Hypothesis, that global realignment raises the tail and lowers the head: **{outcome}**."
        f" It {said}."
    )


def about(histories: Sequence[Run]) -> str:
    """The line above a figure: world, data, clients, seeds and what its bars are."""
    s = histories[0].settings
    return described(
        histories,
        f"{_titled(s.data)}, alpha {s.alpha:g}, imbalance {s.imbalance:g}",
        f"{s.clients} clients",
    )


def note(histories: Sequence[Run]) -> str:
    """A Markdown line under a table: profile and seeds, the authors' logs, the meaning of ± and
    brackets, and where the runs come from.
    """
    s, seeds = histories[0].settings, sorted({history.settings.seed for history in histories})
    sentences = [
        (
            "Ours | the authors'. Accuracies in per cent after the last round. Profile"
            f" `{s.profile}`, {named(seeds)}."
        ),
        spread(seeds),
    ]
    counts = Counter(history.arm for history in histories)
    if fewer := [label(arm) for arm, count in counts.items() if count < len(seeds)]:
        sentences.append(f"{', '.join(fewer)}: fewer seeds, and no ± where there is one.")
    return " ".join([*sentences, *_authors(histories), *origins(histories)])


def _authors(histories: Sequence[Run]) -> list[str]:
    """Sentences: which logs the authors' figures are of, and what choosing the best round on the
    test set would add to them.
    """
    s = histories[0].settings
    theirs = cells(s)
    theirs = theirs[theirs.algorithm.isin([history.settings.algorithm for history in histories])]
    if theirs.empty:
        return [
            f"The authors have no log of `{s.data}` with alpha = {s.alpha:g} and imbalance ="
            f" {s.imbalance:g}."
        ]
    known = (
        logs()
        .rename(columns={"log": "authors_log"})
        .merge(theirs, on=[*CELL, "authors_log", "authors_mean"])
    )
    settings = [
        f"`{row.authors_log}` ({row.clients} clients, {100 * row.participation:g} % of them in a"
        " round)"
        for row in known.drop_duplicates("authors_log").itertuples()
    ]
    gain = (known.best - known.authors_mean).max()
    whose = _titled(f"{DATA[s.data]}_lt")
    stands_in = (
        []
        if _titled(s.data) == whose
        else [f"`{s.data}` is no {whose}, and its numbers are not expected to be."]
    )
    return [
        (
            f"The authors' are the last rounds of their logs {' and '.join(settings)} of {whose},"
            f" alpha = {s.alpha:g}, imbalance = {s.imbalance:g}, one run each. Their best rounds,"
            f" chosen on the test set, are up to {gain:.1f} points higher."
        ),
        *stands_in,
    ]


def _titled(data: str) -> str:
    """Such as "CIFAR-10-LT"; a set of one's own keeps the name of its folder."""
    return (
        data.replace("cifar", "CIFAR-").replace("_lt", "-LT") if data.startswith("cifar") else data
    )


def write(
    histories: Sequence[Run], folder: Path, overview: pd.DataFrame, others: Sequence[Run] = ()
) -> None:
    """Write table, costs and departures as CSV files, ``overview.csv``, and where they come from.

    Args:
        overview: the notebook's table as it is to be read, which the page of results and the index
            show.
        others: runs that the folder's other files are about.
    """
    frames = {
        "table": table(histories),
        "costs": costs(histories),
        "departures": departures(histories),
        "overview": overview.reset_index(),
    }
    runs, s = [*histories, *others], histories[0].settings
    write_results(
        frames,
        provenance_by_algorithm(runs, folder.name, manifests(s.data_dir, [f"{FOLDER}/{s.data}"])),
        folder,
    )
