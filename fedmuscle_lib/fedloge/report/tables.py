"""Tidy tables of finished runs: accuracies beside the authors', paired differences, costs, and where settings are not the README's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.report.authors import CELL, cells
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.report.statistics import interval, over_seeds, paired_difference
from fedmuscle_lib.runs import History, run_all
from fedmuscle_lib.runs.settings import parse

Run = History[Settings]
TABLE_COLUMNS = [*CELL, "mean", "std", "n_seeds", "ci_low", "ci_high", "authors_mean", "authors_log"]
# What is subtracted from what: scope, minuend, subtrahend, each "<algorithm>, <head>".
GLOBAL_REALIGNMENT = ("global", "fedloge, realigned", "fedloge, shared")
LOCAL_REALIGNMENT = ("personal", "fedloge, local + realigned", "fedloge, local + shared")
REALIGNMENTS = (GLOBAL_REALIGNMENT, LOCAL_REALIGNMENT)
HEADS = (
    ("personal", "fedloge, shared + realigned", "fedloge, local + realigned"),  # the README's way of predicting, and the code's
    ("personal", "fedloge, local + shared", "fedloge, shared"),
    ("personal", "fedloge, local + shared", "fedloge, local"),
    ("global", "fedloge, sse_c", "fedloge, shared"),
)
OVER_FEDAVG = (
    ("global", "fedloge, sse_c", "fedavg, head"),
    ("global", "fedloge, realigned", "fedavg, head"),
    ("personal", "fedloge, local + shared", "fedavg, head"),
    ("personal", "fedloge, local + realigned", "fedavg, head"),
)


def run_methods(common: dict[str, Any], algorithms: Iterable[str], seeds: Sequence[int]) -> list[Run]:
    """Compute or fetch a run of each algorithm for each seed; seed after seed, so that a whole table of the first one comes first.

    Args:
        common: settings of all runs.

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    names = list(dict.fromkeys(algorithms))
    return run_all([parse(Settings, {**common, "algorithm": name, "seed": seed}) for seed in seeds for name in names])


def scores(histories: Sequence[Run]) -> pd.DataFrame:
    """Accuracies after the last round: seed, ``CELL``, value (per cent)."""
    ends = [history.final().assign(algorithm=history.settings.algorithm, seed=history.settings.seed) for history in histories]
    return pd.concat(ends, ignore_index=True)[["seed", *CELL, "value"]]


def table(histories: Sequence[Run]) -> pd.DataFrame:
    """``TABLE_COLUMNS``: each accuracy over seeds beside the last round of the authors' log, if it has the cell.

    Scope, head, masked and group are those of ``Federation.evaluate``.
    """
    found = over_seeds(scores(histories), CELL, "value")
    return found.merge(cells(histories[0].settings), on=CELL, how="left")[TABLE_COLUMNS]


def differences(histories: Sequence[Run], pairs: Iterable[tuple[str, str, str]] = (*REALIGNMENTS, *HEADS, *OVER_FEDAVG)) -> pd.DataFrame:
    """Paired differences on the same seeds, of those pairs of which both were run.

    Returns:
        scope, a, b, masked, group, difference (of a minus b, percentage points), std, n_seeds, ci_low, ci_high.
    """
    every = scores(histories)
    every["algorithm"] = every.algorithm + ", " + every["head"]
    found = []
    for scope, a, b in pairs:
        rows = every[every.scope == scope]
        if {a, b} <= set(rows.algorithm):
            found.append(paired_difference(rows, a, b, ["masked", "group"], "value").assign(scope=scope, a=a, b=b))
    columns = ["scope", "a", "b", "masked", "group", "difference", "std", "n_seeds", "ci_low", "ci_high"]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def mask_gains(histories: Sequence[Run]) -> pd.DataFrame:
    """How much PM over all classes rises where absent classes can't be predicted, with nothing else changed.

    Returns:
        arm ("<algorithm>, <head>"), difference (percentage points), std, n_seeds, ci_low, ci_high.
    """
    rows = scores(histories)
    rows = rows[(rows.scope == "personal") & (rows.group == ALL)].assign(arm=rows.algorithm + ", " + rows["head"])
    rows["algorithm"] = rows.masked.map({True: "masked", False: "unmasked"})
    return paired_difference(rows, "masked", "unmasked", ["arm"], "value")


def costs(histories: Sequence[Run]) -> pd.DataFrame:
    """What a run costs, the mean over seeds.

    Returns:
        algorithm, uplink_kb and downlink_kb (10^3 bytes per client and round), seconds, peak_memory_mb.
    """
    rows = [
        {
            "algorithm": history.settings.algorithm,
            "uplink_kb": history.costs.uplink_bytes.mean() / 1e3,
            "downlink_kb": history.costs.downlink_bytes.mean() / 1e3,
            "seconds": history.provenance["seconds"],
            "peak_memory_mb": history.provenance["peak_memory_bytes"] / 1e6,
        }
        for history in histories
    ]
    return pd.DataFrame(rows).groupby("algorithm", sort=False).mean().reset_index()


def departures(histories: Sequence[Run]) -> pd.DataFrame:
    """Settings, and the algorithms' own options, that are not those of the README's command: setting, ours, authors."""
    settings = histories[0].settings
    names = {name: field for name, field in Settings.model_fields.items() if name not in settings.aside() | {"options"}}
    rows = [
        {"setting": name, "ours": getattr(settings, name), "authors": field.default}
        for name, field in names.items()
        if getattr(settings, name) != field.default
    ]
    for one in {history.settings.algorithm: history.settings for history in histories}.values():
        usual = one.method.Options().model_dump()
        rows += [
            {"setting": f"{one.algorithm}.{option}", "ours": value, "authors": usual[option]}
            for option, value in one.own_options.items()
            if value != usual[option]
        ]
    return pd.DataFrame(rows, columns=["setting", "ours", "authors"])


def label(arm: str) -> str:
    """The name of "<algorithm>, <head>" in figures and headings, such as "FedAvg", which has one head, or "FedLoGe, local + shared"."""
    algorithm, _, head = arm.partition(", ")
    return methods.get(algorithm).label + ("" if head == "head" else f", {head}")


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """:func:`table` laid out for reading: a row an algorithm and head, a column a measure and group, "ours | the authors'" in a cell."""
    measures = {("global", False): "GM", ("personal", False): "PM", ("personal", True): "PM, masked"}
    rows = table.rename(columns={"mean": "ours", "std": "spread"})  # "mean" and "std" are methods of a row, not its fields
    columns = [measures[row.scope, row.masked] + ("" if row.group == "all" else f": {row.group}") for row in rows.itertuples()]
    names = [label(f"{row.algorithm}, {row.head}") for row in rows.itertuples()]
    cells = [_cell(row.ours, row.spread, row.authors_mean) for row in rows.itertuples()]
    tidy = pd.DataFrame({"method": names, "column": columns, "cell": cells})
    wide = tidy.pivot_table(index="method", columns="column", values="cell", aggfunc="first", sort=False)
    order = [name + group for name in measures.values() for group in ("", ": head", ": middle", ": tail")]
    return wide[[name for name in order if name in wide]].fillna("").rename_axis(columns=None)


def _cell(mean: float, std: float, authors: float) -> str:
    return f"{mean:.1f}" + (f" ± {std:.1f}" if pd.notna(std) else "") + (f" | {authors:.1f}" if pd.notna(authors) else "")


def laid_out(differences: pd.DataFrame) -> pd.DataFrame:
    """:func:`differences` laid out for reading: a row a difference, a column a group of classes, points with their interval in a cell."""
    measures = {"global": "GM", "personal": "PM"}
    rows = differences.assign(
        measure=[measures[row.scope] + (", masked" if row.masked else "") for row in differences.itertuples()],
        difference_of=[f"{label(row.a)} − {label(row.b)}" for row in differences.itertuples()],
        cell=[
            f"{row.difference:+.2f}" + (f" {interval(row.ci_low, row.ci_high)}" if pd.notna(row.ci_low) else "")
            for row in differences.itertuples()
        ],
    )
    wide = rows.pivot_table(index=["measure", "difference_of"], columns="group", values="cell", aggfunc="first", sort=False)
    return wide.fillna("").rename_axis(columns=None)
