"""The tables of a page of FedMuscle's runs, from the tidy frame, and the files that they are in.

What an ablation varies stands in columns of its own behind ``public``; at each of its points a
baseline is that of the point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.data.public import PUBLIC_SETS
from fedmuscle_lib.fedmuscle.ablations import UNCONNECTED, Point, runs_of
from fedmuscle_lib.fedmuscle.algorithms import PHASES, Phase
from fedmuscle_lib.fedmuscle.arms import (
    BASELINE,
    HEADLINE,
    TUNED,
    TUNED_BASELINE,
    is_blind,
    label,
)
from fedmuscle_lib.fedmuscle.profiles import numbers_of
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import task_of
from fedmuscle_lib.report import frame, provenance
from fedmuscle_lib.report.costs import costs
from fedmuscle_lib.report.departures import departures
from fedmuscle_lib.report.paper import PAPER, cells, printed
from fedmuscle_lib.report.provenance import option, save, write_results
from fedmuscle_lib.report.statistics import wide_intervals
from fedmuscle_lib.runs.history import History

Runs = Sequence[History] | Sequence[Point]
USER = ["user", "model", "task", "metric"]
EVERYONE = "all"  # as a task: over the users of all tasks
USUAL_SETUP: str = Settings.model_fields["setup"].default
_TIDY = {*USER, "public", "round", "phase", "algorithm", "seed", "value"}
_TIDY |= {"local", "tuned", "gain", "gain_tuned"}
_OVER_TUNED = {"mean": "delta_tuned", "ci_low": "ci_low_tuned", "ci_high": "ci_high_tuned"}
_DELTA = ["delta", "delta_std", "n_seeds", "ci_low", "ci_high", *_OVER_TUNED.values()]
_DELTA += ["delta_of_means", "paper_delta"]
_TIDY |= {*_DELTA}
_OWN_CONTROL = {"feddf": "own_teacher", "feddf, tuned": "own_teacher, tuned"}


def points_of(runs: Runs) -> list[Point]:
    """The points of an ablation; histories are those of one point, at which nothing is varied."""
    points = [one for one in runs if isinstance(one, Point)]
    return points or [Point({}, tuple(one for one in runs if isinstance(one, History)))]


def tidy(runs: Runs) -> pd.DataFrame:
    """``frame.tidy`` of histories or, with what is varied in columns of its own, of the points of
    an ablation.
    """
    each = [frame.tidy(one.histories).assign(**one.varied) for one in points_of(runs)]
    return pd.concat(each, ignore_index=True)


def ends(rows: pd.DataFrame, phase: Phase = HEADLINE) -> pd.DataFrame:
    """The last evaluations of the runs at this moment of the round, with their gains."""
    return frame.gains(frame.last(rows, phase))


def point(rows: pd.DataFrame) -> list[str]:
    """The columns that say where a row stands: public, and what is varied."""
    return ["public", *(name for name in rows if name not in _TIDY)]


def metrics(rows: pd.DataFrame, theirs: pd.DataFrame | None = None) -> pd.DataFrame:
    """Each user's metric over seeds, in per cent, beside the paper's cells.

    Args:
        rows: as :func:`ends` returns them.
        theirs: as ``paper.cells`` returns them.

    Returns:
        :func:`point`'s columns, user, model, task, metric, algorithm, mean, std, n_seeds,
        paper_mean, paper_std.
    """
    by = [*point(rows), *USER, "algorithm"]
    found = frame.over_seeds(rows, by, "value")
    found = found if theirs is None else found.merge(theirs, how="left")
    return found.reindex(columns=[*by, "mean", "std", "n_seeds", "paper_mean", "paper_std"])


def deltas(rows: pd.DataFrame, theirs: pd.DataFrame | None = None) -> pd.DataFrame:
    """Delta over seeds in per cent, with its 95 % interval, beside the paper's.

    ``delta`` is over local training, ``delta_tuned`` over tuned local training. Both are the mean
    over seeds of each seed's Delta. ``delta_of_means`` is the paper's formula: the mean over users
    of the gain of one cell of the table over another, each of which is a mean over seeds.

    Args:
        rows: as :func:`ends` returns them.
        theirs: as ``paper.printed`` returns them.

    Returns:
        :func:`point`'s columns, algorithm, delta, delta_std, n_seeds, ci_low, ci_high, delta_tuned,
        ci_low_tuned, ci_high_tuned, delta_of_means, paper_delta. An arm that lacks a user has no
        row.
    """
    by = [*point(rows), "algorithm"]
    found = frame.over_seeds(frame.delta(rows, by), by, "delta")
    found = found.rename(columns={"mean": "delta", "std": "delta_std"})
    tuned = frame.delta(rows[rows.tuned.notna()], by, "gain_tuned")
    tuned = frame.over_seeds(tuned, by, "delta")[[*by, *_OVER_TUNED]].rename(columns=_OVER_TUNED)
    means = rows.groupby([*by, *USER], sort=False)[["value", "local"]].mean().reset_index()
    means["delta_of_means"] = frame.gain(means, means.local)
    of_means = means.groupby(by).delta_of_means.mean(skipna=False).reset_index()
    found = found.merge(tuned, how="left", on=by).merge(of_means, on=by)
    found = found if theirs is None else found.merge(theirs, how="left")
    return found.reindex(columns=[*by, *_DELTA])


def by_seed(rows: pd.DataFrame) -> pd.DataFrame:
    """Delta of every run, over all users and by task: :func:`point`'s columns, task (``EVERYONE``
    or one), algorithm, seed, delta.
    """
    by, found = point(rows), []
    for _, own in rows.groupby(by[1:] or (lambda _: 0), sort=False):
        found.append(frame.delta(own, [*by, "algorithm"]).assign(task=EVERYONE))
        found.append(frame.delta(own, [*by, "task", "algorithm"]))
    return pd.concat(found, ignore_index=True)[[*by, "task", "algorithm", "seed", "delta"]]


def moved(rows: pd.DataFrame, panel: Sequence[str] = ()) -> pd.DataFrame:
    """FedMuscle's Delta at every point minus that at the first of its panel, on the same seeds and
    over the first point's users.

    Args:
        rows: as :func:`ends` returns them.
        panel: of what is varied, what a panel has in common.

    Returns:
        what is varied, public, difference (points), std, n_seeds, ci_low, ci_high.
    """
    own, found = rows[rows.algorithm == "fedmuscle"], []
    by = [*point(rows)[1:], "public"]
    for _, each in own.groupby(list(panel) or (lambda _: 0), sort=False):
        first = each.merge(each[by].head(1))
        values = frame.delta(each[each.user.isin(first.user)], by)
        pairs = values.merge(frame.delta(first, by), on=["public", "seed"], suffixes=("", "_first"))
        pairs = pairs[(pairs[by] != first.loc[0, by]).any(axis="columns")]
        pairs["difference"] = pairs.delta - pairs.delta_first
        found.append(frame.over_seeds(pairs, by, "difference"))
    return pd.concat(found, ignore_index=True).rename(columns={"mean": "difference"})


def paired_deltas(rows: pd.DataFrame) -> pd.DataFrame:
    """FedMuscle's Delta minus that of every other arm on the same seeds, and FedDF's minus its
    control's, over all users and by task.

    Returns:
        public, task, algorithm, over (the other arm), difference (points), n_seeds, ci_low,
        ci_high.
    """
    values = by_seed(rows)
    no_other = ("fedmuscle", BASELINE, TUNED_BASELINE)
    pairs = [("fedmuscle", arm) for arm in values.algorithm.unique() if arm not in no_other]
    found = frame.paired(values, [*pairs, *_OWN_CONTROL.items()], ["public", "task"], "delta")
    return found.rename(columns={"a": "algorithm", "b": "over"}).drop(columns="std")


def over_rivals(rows: pd.DataFrame) -> pd.DataFrame:
    """FedMuscle's Delta minus that of arms without live peers on the same seeds, laid out for
    reading: a row a point, a column another arm.

    Args:
        rows: as :func:`ends` returns them.
    """
    by = point(rows)
    values = frame.delta(rows, [*by, "algorithm"])
    found = frame.paired(values, [("fedmuscle", arm) for arm in UNCONNECTED], by, "delta")
    found["over"] = "FedMuscle − " + found.b.map(label)
    return wide_intervals(found, "difference", by, "over")


def by_point(rows: pd.DataFrame) -> pd.DataFrame:
    """:func:`deltas` of an ablation laid out for reading: a row a point, a column an arm with its
    interval, and the paper's Delta.
    """
    where = point(rows)[1:]
    numbers = rows[where].select_dtypes("float").columns
    rows = rows.assign(**{name: rows[name].map("{:g}".format) for name in numbers})
    found = wide_intervals(rows, "delta", where, "algorithm")
    found = found.drop(columns=BASELINE, errors="ignore").rename(columns=label)
    theirs = rows.dropna(subset="paper_delta").set_index(where).paper_delta
    if len(theirs):
        found["FedMuscle in the paper"] = theirs[~theirs.index.duplicated()].reindex(found.index)
    return found.fillna("")


def references(histories: Sequence[History]) -> pd.DataFrame:
    """Metrics that need no backbone, whatever the algorithm: reference, user, model, task, metric,
    mean, std, n_seeds.

    "trivial" is the metric of an answer that looks at no input, such as the most frequent class
    (``Task.trivial``). "tfidf", for users who classify texts, is that of their words alone
    (``TextClassification.by_words``). Both are made from the training set that the seed drew.
    """
    parts = []
    for history in histories:
        rows = history.final().assign(seed=history.settings.seed)
        for name in ("trivial", "tfidf"):
            reached = {int(user): one for user, one in history.provenance.get(name, {}).items()}
            parts.append(rows.assign(reference=name, value=rows.user.map(reached)))
    by = ["reference", *USER]
    values = pd.concat(parts)[[*by, "seed", "value"]].dropna().drop_duplicates()
    return frame.over_seeds(values, by, "value").drop(columns=["ci_low", "ci_high"])


def file_of(table: str, phase: Phase) -> str:
    """Name of the CSV file that holds ``table`` at the moment ``phase``: the headline moment's is
    not named.
    """
    return f"{table}.csv" if phase == HEADLINE else f"{table}_{phase}.csv"


def write(
    runs: Runs,
    folder: Path,
    paper: Sequence[str] = PAPER,
    others: Sequence[History] = (),
    panel: Sequence[str] = (),
    called: Mapping[str, str] | None = None,
) -> None:
    """Write a page's CSV files, and where they come from.

    ``table.csv``, ``delta.csv`` and ``delta_by_seed.csv`` are about the moment ``HEADLINE``,
    ``table_<moment>.csv`` and so on about the other one. ``minus_first.csv`` is :func:`moved`.
    ``provenance.json`` holds the command that makes the folder, the machine, the versions and every
    run, also of ``others``, which the folder's other files are about.

    Args:
        runs: histories, or the points of an ablation.
        paper: tables of the paper whose cells stand beside ours.
        panel: as of :func:`moved`.
        called: what columns are called in the files, where a name is taken.
    """
    rows, points = tidy(runs), points_of(runs)
    first = points[0].histories[0].settings
    for phase in PHASES:
        end = ends(rows, phase)
        for name, found in _files(end, first, paper, panel):
            save(found.rename(columns=called or {}), folder / file_of(name, phase))
    if points[0].varied:
        overview = by_point(deltas(ends(rows), printed(first, paper)))
        overview = overview.reset_index().rename(columns=called or {})
        save(overview, folder / "overview.csv")
    where = [name for name in point(rows) if name != "public"]
    each = [costs(one.histories).assign(**one.varied) for one in points]
    spent = pd.concat(each, ignore_index=True)
    spent = spent[[*where, *spent.columns.drop(where)]].rename(columns=called or {})
    write_results(
        {"costs": spent, "departures": departures(points[0].histories)},
        provenance_of([*runs_of(points), *others], folder.name),
        folder,
    )


def _files(
    end: pd.DataFrame, settings: Settings, paper: Sequence[str], panel: Sequence[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    yield "table", metrics(end, cells(settings, paper))
    yield "delta", deltas(end, printed(settings, paper))
    yield "delta_by_seed", by_seed(end)
    if len(point(end)) > 1:
        yield "minus_first", moved(end, panel)
        return
    by = ["public", "task", "algorithm"]
    found = frame.over_seeds(frame.delta(end, by), by, "delta")
    yield "delta_by_task", found.rename(columns={"mean": "delta", "std": "delta_std"})
    if len(paired := paired_deltas(end)):
        yield "paired_deltas", paired


def provenance_of(histories: Sequence[History], folder: str) -> dict[str, Any]:
    """Return what ``provenance.provenance_of`` says of the runs, and what the manifests of their
    data say.

    A setup that the folder does not name is the notebook's own; a public set that it names is not.
    """
    s = histories[0].settings
    usual = Settings(profile=s.profile, setup=s.setup, backbones=s.backbones).model_dump(
        mode="json"
    )
    usual |= {
        "setup": USUAL_SETUP if s.setup in folder else s.setup,
        "backbones": numbers_of(s.profile, s.setup).get("backbones", {}),
    }
    told = provenance.provenance_of(histories, folder, usual, s.aside(), data_manifests(histories))
    if f"public={s.public}" in folder:
        told["command"] += option("public", s.public)
    protocols = {h.settings.protocol for h in histories}
    if len(protocols) > 1 and (
        chosen := protocols - {TUNED, usual["protocol"]}
    ):  # tuned arms have their own, so it is not shared
        told["command"] += option("protocol", *chosen)
    return told


def data_manifests(histories: Sequence[History]) -> dict[str, dict[str, Any]]:
    """Return what ``provenance.manifests`` finds for the users' data and the public sets."""
    folders = {
        task_of(user).folder
        for h in histories
        for user in h.settings.members
        if user.folder is None
    }
    folders |= {PUBLIC_SETS[h.settings.public] for h in histories if not is_blind(h.arm)}
    return provenance.manifests(histories[0].settings.data_dir, folders)
