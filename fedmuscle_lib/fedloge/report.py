"""Reports of FedLoGe's runs: accuracies as rows of the tidy frame, paired differences, costs,
departures, and the layout of tables. The notebooks ``fedloge`` and ``fedloge_realign`` have the
tables themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedmuscle_lib.data.labelled_sets import FOLDER
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.arms import Run
from fedmuscle_lib.fedloge.authors import CELL, cells
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.report import frame
from fedmuscle_lib.report.provenance import changed, described, noted, write_by_algorithm
from fedmuscle_lib.report.statistics import beside, wide, wide_intervals, with_std

# by scope, and whether it is masked
MEASURES = {
    ("global", False): "GM",
    ("personal", False): "PM",
    ("personal", True): "PM, masked",
}


def accuracies(histories: Sequence[Run]) -> pd.DataFrame:
    """Accuracies of every evaluated round: round, seed, ``CELL``, value (per cent).

    Scope, head, masked and group are those of ``Federation.evaluate``.
    """
    return frame.tidy(histories)[["round", "seed", *CELL, "value"]]


def differences(
    rows: pd.DataFrame, pairs: Iterable[tuple[str, str, str]], by: Sequence[str] = ()
) -> pd.DataFrame:
    """Paired differences on the same seeds, of those pairs (scope, a, b) of which both were run.

    Args:
        rows: as :func:`accuracies` returns them.
        by: columns to compare within, beside masked and group.

    Returns:
        scope, a, b, ``by``, masked, group, difference (of a minus b, percentage points), std,
        n_seeds, ci_low, ci_high.
    """
    rows = rows.assign(algorithm=rows.algorithm + ", " + rows["head"])
    within = ["scope", *by, "masked", "group"]
    parts = [
        frame.paired(rows[rows.scope == scope], [(a, b)], within, "value") for scope, a, b in pairs
    ]
    found = pd.concat(parts, ignore_index=True)
    return found[["scope", "a", "b", *within[1:], "difference", *frame.STATISTICS]]


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
    """A table of accuracies laid out for reading: a row an algorithm and head, a column a measure
    and group, "ours | the authors'" in a cell.
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
    """A Markdown line under a table: the authors' logs, and what :func:`noted` says."""
    theirs = cells(histories[0].settings)
    logs = sorted(set(theirs[theirs.algorithm.isin(h.arm for h in histories)].authors_log))
    which = f" (log {', '.join(logs)})." if logs else ", who have no log of these settings."
    what = "Accuracies in per cent after the last round, ours | the authors'"
    return noted(histories, what + which)


def write(
    histories: Sequence[Run],
    folder: Path,
    frames: Mapping[str, pd.DataFrame],
    others: Sequence[Run] = (),
) -> None:
    """Write frames by name, costs and departures as CSV files, and where they come from.

    Args:
        others: runs that some of the frames are about.
    """
    told = {**frames, "costs": costs(histories), "departures": departures(histories)}
    data = f"{FOLDER}/{histories[0].settings.data}"
    write_by_algorithm(told, [*histories, *others], folder, [data])
