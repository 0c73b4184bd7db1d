"""Tables of FedLoGe's runs: accuracies beside the authors' logs, paired differences, costs,
departures from the authors' settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from fedmuscle_lib.data.labelled_sets import FOLDER
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.arms import Run
from fedmuscle_lib.fedloge.authors import CELL, cells
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
    over_seeds,
    paired_difference,
    wide,
    wide_intervals,
    with_std,
)

STATISTICS = ["std", "n_seeds", "ci_low", "ci_high"]
TABLE_COLUMNS = [*CELL, "mean", *STATISTICS, "authors_mean", "authors_log"]
# What is subtracted from what: scope, minuend, subtrahend, each "<algorithm>, <head>".
REALIGNMENTS = (
    ("global", "fedloge, realigned", "fedloge, shared"),
    ("personal", "fedloge, local + realigned", "fedloge, local + shared"),
)
HEADS = (
    # the README's way of predicting, and the code's
    ("personal", "fedloge, shared + realigned", "fedloge, local + realigned"),
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
MEASURES = {
    ("global", False): "GM",
    ("personal", False): "PM",
    ("personal", True): "PM, masked",
}  # by scope, and whether it is masked


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
    arms = {run.arm: run for run in histories if run.settings.algorithm == "fedloge"}
    pairs = [
        (scope, a.replace("fedloge", arm, 1), b) for arm in arms for scope, a, b in OVER_OTHERS
    ]
    found = differences(histories, pairs)
    rounds = _paired(every_round(histories), pairs, ["round", "masked", "group"])
    by = ["scope", "a", "b", "masked", "group"]
    since = [
        (*key, _since(rows.sort_values("round"))) for key, rows in rounds.groupby(by, sort=False)
    ]
    return found.merge(pd.DataFrame(since, columns=[*by, "since"]), on=by, how="left")


def _since(rounds: pd.DataFrame) -> float:
    """The first round after which the interval's side of 0 was that of the end; NaN if the end has
    none.
    """
    sides = rounds.ci_low.gt(0).astype(int) - rounds.ci_high.lt(0)
    others = rounds["round"][sides != sides.iloc[-1]]
    later = rounds["round"][rounds["round"] > others.max()] if len(others) else rounds["round"]
    return later.iloc[0] if sides.iloc[-1] else float("nan")


def _paired(
    rows: pd.DataFrame, pairs: Iterable[tuple[str, str, str]], by: list[str]
) -> pd.DataFrame:
    """Paired differences of arms with their heads within each group of ``by``."""
    rows, found = rows.assign(algorithm=rows.algorithm + ", " + rows["head"]), []
    for scope, a, b in pairs:
        own = rows[rows.scope == scope]
        if {a, b} <= set(own.algorithm):
            found.append(paired_difference(own, a, b, by, "value").assign(scope=scope, a=a, b=b))
    columns = ["scope", "a", "b", *by, "difference", *STATISTICS]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def swept(histories: Sequence[Run], option: str) -> pd.DataFrame:
    """GM after the last round over all classes and in the tail, of runs that differ in an option:
    the option, head, group, value.
    """
    ends = [
        history.final().assign(**{option: history.settings.options[f"fedloge.{option}"]})
        for history in histories
    ]
    every = pd.concat(ends, ignore_index=True)
    rows = every[(every.scope == "global") & every.group.isin([ALL, "tail"])]
    return rows[[option, "head", "group", "value"]].reset_index(drop=True)


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
    numbers = table[["mean", "std", "authors_mean"]].to_numpy()
    groups = table.group.map(lambda name: "" if name == ALL else f": {name}")
    rows = table.assign(
        method=(table.algorithm + ", " + table["head"]).map(label),
        column=_measures(table) + groups,
        cell=[with_std(mean, std) + beside(theirs, ".1f") for mean, std, theirs in numbers],
    )
    found = wide(rows, "method", "column")
    groups = ["", ": head", ": middle", ": tail"]
    order = [name + group for name in MEASURES.values() for group in groups]
    return found[[name for name in order if name in found]].fillna("").rename_axis(columns=None)


def laid_out(differences: pd.DataFrame) -> pd.DataFrame:
    """:func:`differences` laid out for reading: a row a difference, a column a group of classes,
    points with their interval in a cell.
    """
    what = differences.a.map(label) + " − " + differences.b.map(label)
    rows = differences.assign(measure=_measures(differences), difference_of=what)
    return wide_intervals(rows, "difference", ["measure", "difference_of"], "group").fillna("")


def _measures(rows: pd.DataFrame) -> pd.Series:
    return pd.Series(
        [MEASURES[key] for key in zip(rows.scope, rows.masked, strict=True)], rows.index, dtype=str
    )


def about(histories: Sequence[Run]) -> str:
    """The line above a figure: world, data, clients and seeds."""
    s = histories[0].settings
    data = f"{s.data}, alpha {s.alpha:g}, imbalance {s.imbalance:g}"
    return described(histories, data, f"{s.clients} clients")


def note(histories: Sequence[Run]) -> str:
    """A Markdown line under a table: profile, seeds, the authors' logs, and the runs' origins."""
    s, seeds = histories[0].settings, sorted({history.settings.seed for history in histories})
    logs = sorted(set(table(histories).authors_log.dropna()))
    sentences = [
        "Accuracies in per cent after the last round, ours | the authors'"
        + (f" (log {', '.join(logs)})." if logs else ", who have no log of these settings."),
        f"Profile `{s.profile}`, {named(seeds)}.",
        spread(seeds),
        *origins(histories),
    ]
    return " ".join(sentences)


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
