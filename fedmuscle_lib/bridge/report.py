"""From runs of the bridge to its tables: accuracies by head and group of classes, and paired
differences over seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib import report
from fedmuscle_lib.bridge.arms import ARMS, Run
from fedmuscle_lib.bridge.heads import HEADS
from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.report import verdict
from fedmuscle_lib.report import costs, departures
from fedmuscle_lib.report.provenance import described, named, origins, spread, write_results
from fedmuscle_lib.report.statistics import (
    over_seeds,
    paired_difference,
    wide,
    wide_intervals,
    with_std,
)

# A minuend and a subtrahend, each (algorithm, head).
Pair = tuple[tuple[str, str], tuple[str, str]]
PEERS: tuple[Pair, ...] = tuple(
    (("fedmuscle", head), (other, head)) for other in ("local", "self") for head in HEADS
)
REALIGNMENTS: tuple[Pair, ...] = tuple(
    ((arm, f"{head}, realigned"), (arm, head)) for head in ("own", "linear") for arm in ARMS
)
_USER = ["user", "model", "task"]
_GROUPS = (ALL, "head", "middle", "tail")  # in the order of columns


def _scores(histories: Sequence[Run]) -> pd.DataFrame:
    """The runs' metrics with algorithm and seed."""
    ends = [
        history.metrics.assign(algorithm=history.settings.algorithm, seed=history.settings.seed)
        for history in histories
    ]
    return pd.concat(ends, ignore_index=True)


def table(histories: Sequence[Run]) -> pd.DataFrame:
    """Every accuracy over seeds: user, model, task, algorithm, head, group, mean, std, n_seeds,
    ci_low, ci_high.
    """
    return over_seeds(_scores(histories), [*_USER, "algorithm", "head", "group"], "value")


def samples(histories: Sequence[Run]) -> pd.DataFrame:
    """Return what the groups are, of the first run: user, model, task, group, classes, samples
    (local, for training), tested.
    """
    columns = [*_USER, "group", "classes", "samples", "tested"]
    return histories[0].metrics[columns].drop_duplicates(ignore_index=True)


def differences(
    histories: Sequence[Run], pairs: Iterable[Pair] = (*PEERS, *REALIGNMENTS)
) -> pd.DataFrame:
    """Paired differences on the same seeds of the mean over the users who have the group.

    Returns:
        a, a_head, b, b_head, group, difference (of a minus b, percentage points), std, n_seeds,
        ci_low, ci_high.
    """
    means = (
        _scores(histories)
        .groupby(["algorithm", "seed", "head", "group"], sort=False)
        .value.mean()
        .reset_index()
    )
    return _differences(means, pairs, ["group"])


def differences_by_user(histories: Sequence[Run]) -> pd.DataFrame:
    """The same of ``PEERS`` user by user: user, model and task stand beside the group."""
    return _differences(_scores(histories), PEERS, [*_USER, "group"])


def _differences(scores: pd.DataFrame, pairs: Iterable[Pair], by: list[str]) -> pd.DataFrame:
    arms = scores.assign(algorithm=scores.algorithm + ", " + scores["head"])
    names = ["a", "a_head", "b", "b_head"]
    found = [
        paired_difference(arms, ", ".join(a), ", ".join(b), by, "value").assign(
            **dict(zip(names, (*a, *b), strict=True))
        )
        for a, b in pairs
    ]
    return pd.concat(found, ignore_index=True)[
        [*names, *by, "difference", "std", "n_seeds", "ci_low", "ci_high"]
    ]


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """:func:`table` laid out for reading: a row a user and head, a column a group and algorithm."""
    cells = [with_std(*cell) for cell in table[["mean", "std"]].to_numpy()]
    rows = table.assign(cell=cells, algorithm=table.algorithm.map(report.label))
    return _in_order(wide(rows, [*_USER, "head"], ["group", "algorithm"]))


def _told(row: Any) -> str:
    """Such as "FedMuscle − Local training" or, of one algorithm, "FedMuscle: realigned − own"."""
    if row.a != row.b:
        return f"{report.label(row.a)} − {report.label(row.b)}"
    return f"{report.label(row.a)}: realigned − as trained"


def laid_out(differences: pd.DataFrame) -> pd.DataFrame:
    """:func:`differences` laid out for reading: a row a difference and head, a column a group,
    points with their interval in a cell.
    """
    rows = differences.assign(
        difference_of=[_told(row) for row in differences.itertuples()],
        by_head=differences.b_head,  # "head" is a group of classes, too
    )
    return _in_order(wide_intervals(rows, "difference", ["difference_of", "by_head"], "group"))


def _in_order(cells: pd.DataFrame) -> pd.DataFrame:
    return cells[[name for name in _GROUPS if name in cells]].fillna("")


def verdicts(differences: pd.DataFrame) -> str:
    """Markdown, an item a difference: what minus what, by which head, and its verdict on each group
    of classes.
    """
    items = []
    for _, rows in differences.groupby(["a", "a_head", "b", "b_head"], sort=False):
        first = next(rows.itertuples())
        items.append(
            f"- {_told(first)}, head `{first.b_head}`:"
            f" {'; '.join(map(verdict, rows.itertuples()))}."
        )
    return "\n".join(items)


def about(histories: Sequence[Run]) -> str:
    """The line above a figure: world, users, public set, seeds and what its bars are."""
    s = histories[0].settings
    return described(
        histories,
        "users with one label a sample",
        f"imbalance {s.imbalance:g}",
        f"public set {NAMES[s.public]}",
    )


def note(histories: Sequence[Run]) -> str:
    """A Markdown line under a table: whose numbers these are, what ± and brackets mean, and where
    the runs come from.
    """
    s, seeds = histories[0].settings, sorted({history.settings.seed for history in histories})
    which = (
        f"Profile `{s.profile}`, public set `{s.public}`, imbalance {s.imbalance:g},"
        f" {named(seeds)}."
    )
    return " ".join(
        ["Accuracies in per cent after the last round.", which, spread(seeds), *origins(histories)]
    )


def write(histories: Sequence[Run], folder: Path) -> None:
    """Write tables, differences, costs and departures as CSV files, and where they come from."""
    found = differences(histories)
    frames = {
        "table": table(histories),
        "samples": samples(histories),
        "differences": found,
        "differences_by_user": differences_by_user(histories),
        "overview": laid_out(found).reset_index(),
        "costs": costs(histories),
        "departures": departures(histories),
    }
    write_results(frames, report.provenance_of(histories, folder.name), folder)
