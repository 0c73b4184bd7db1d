"""The paper's own arithmetic: what its printed tables say about each other, without a run.

Every function returns a table with a row for each number or sentence of the paper that it checks.
"""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd

from fedmuscle_lib.fedmuscle.arms import BASELINE, label
from fedmuscle_lib.fedmuscle.setups import SETUPS
from fedmuscle_lib.muscle.wire import REPLIES, paper_cost_gb, reply_nbytes
from fedmuscle_lib.report.paper import paper_deltas, paper_gains, paper_table
from fedmuscle_lib.report.provenance import write_without_runs

_TABLES = (1, 2, 3, 4, 6, 7, 8, 9)  # those that print Delta and the cells behind it
_OF_THREE = (1, 6, 7, 8)  # those whose cells are all of three runs: see runs_behind
_KEY = ["table", "public", "algorithm"]
# Width, depth and patch in pixels, at 224 pixels, as published; the paper does not say which
# ViT-Base it has.
_VITS = {
    "ViT-Tiny": (192, 12, 16),
    "ViT-Small": (384, 12, 16),
    "ViT-Base": (768, 12, 32),
    "ViT-Large": (1024, 24, 16),
}


def write(folder: Path, profile: str) -> None:
    """Write every table of this module as ``<its function>.csv``, and a provenance without runs."""
    tables = (
        deltas,
        exchanges,
        single_cells,
        formulas,
        communication,
        vit_counts,
        teraflops,
        repeats,
        baselines,
        runs_behind,
        claims,
    )
    write_without_runs(
        {table.__name__: table() for table in tables}, folder, "paper_audit", profile
    )


# --- Delta


def deltas() -> pd.DataFrame:
    """Every printed Delta but local training's 0, beside the formula of Section 6.1 on the cells of
    the same table.

    Returns:
        table, public, algorithm, printed, of_cells (per cent), difference (of_cells - printed,
        points), agrees (to the printed digits).
    """
    rows = pd.concat(
        [paper_deltas(f"table{n}").assign(table=n) for n in _TABLES], ignore_index=True
    )
    rows = rows[rows.algorithm != BASELINE].assign(difference=rows.of_cells - rows.printed)
    agrees = rows.difference.abs() < 0.5 * 10.0 ** -rows.table.map({9: 1}).fillna(
        2
    )  # Table 9 prints one decimal, the others two
    return rows.assign(agrees=agrees)[
        [*_KEY, "printed", "of_cells", "difference", "agrees"]
    ].reset_index(drop=True)


def exchanges() -> pd.DataFrame:
    """Exchanges of a user's cells between two columns that give both printed Deltas, where neither
    agrees as the table stands.

    Returns:
        table, public, algorithm, user, printed, of_cells, of_exchanged (per cent): two rows an
            exchange.
    """
    found = []
    for (table, public), rows in deltas().query("not agrees").groupby(["table", "public"]):
        gains = (
            paper_gains(f"table{table}")
            .pivot(index=["public", "user"], columns="algorithm", values="gain")
            .loc[public]
        )
        for pair in combinations(rows.index, 2):
            both = rows.loc[list(pair)]
            first, second = both.algorithm
            for user, moved in ((gains[second] - gains[first]) / len(gains)).items():
                mended = both.assign(user=user, of_exchanged=both.of_cells + [moved, -moved])
                if (abs(mended.of_exchanged - mended.printed) < 0.005).all():
                    found.append(mended)
    return pd.concat(found)[[*_KEY, "user", "printed", "of_cells", "of_exchanged"]]


def single_cells() -> pd.DataFrame:
    """What a single cell would have to be to give a printed Delta that neither the cells nor an
    exchange of two gives.

    Returns:
        table, public, algorithm, user, mean, std (the printed cell), needed, in_stds (the distance
        in the cell's standard deviations).
    """
    mended = exchanges()[_KEY].assign(mended=True)
    left = (
        deltas()
        .query("not agrees")
        .merge(mended, how="left")
        .query("mended != True")
        .drop(columns="mended")
    )
    cells = pd.concat([_beside_local(table) for table in set(left.table)]).merge(left, on=_KEY)
    users = cells.groupby(_KEY).user.transform("size")
    needed = cells["mean"] - users * cells.difference / 100 * cells.mean_local
    return cells.assign(needed=needed, in_stds=(needed - cells["mean"]) / cells["std"])[
        [*_KEY, "user", "mean", "std", "needed", "in_stds"]
    ]


def formulas() -> pd.DataFrame:
    """Printed Deltas beside three formulas of the same runs, for the tables whose cells are all
    means of three runs.

    The exact means are known: they are over three values with one decimal, so they are multiples of
        1/30.

    Returns:
        table, public, algorithm, printed; of_cells (Delta of the printed cells), of_means (of the
        exact means), of_seeds_low and of_seeds_high (between which the mean over seeds of Delta
        is), all in per cent; cells_agree, means_agree, seeds_can_agree (with the printed digits).
    """
    cells = pd.concat(map(_beside_local, _OF_THREE))
    mean, local = (30 * cells["mean"]).round() / 30, (30 * cells.mean_local).round() / 30
    low, high = seed_bounds(mean, cells["std"], local, cells.std_local)
    gains = cells[_KEY].assign(
        of_means=100 * (mean / local - 1),
        of_seeds_low=100 * (low - 1),
        of_seeds_high=100 * (high - 1),
    )
    rows = deltas()[[*_KEY, "printed", "of_cells"]].merge(
        gains.groupby(_KEY).mean().reset_index(), on=_KEY
    )
    return rows.assign(
        cells_agree=(rows.of_cells - rows.printed).abs() < 0.005,
        means_agree=(rows.of_means - rows.printed).abs() < 0.005,
        seeds_can_agree=(rows.of_seeds_low - rows.printed < 0.005)
        & (rows.of_seeds_high - rows.printed > -0.005),
    )


def seed_bounds(
    mean: pd.Series, std: pd.Series, local: pd.Series, std_local: pd.Series
) -> tuple[pd.Series, pd.Series]:
    """Bounds of the mean over seeds of a metric over local training's, by the means and population
    deviations of both.

    It exceeds the ratio r of the means by (r std_local^2 - cov) / local^2, to second order in the
    deviations. The paper does not print the covariance over seeds, which is within +- std
    std_local.
    """
    centre, reach = mean / local * (1 + (std_local / local) ** 2), std * std_local / local**2
    return centre - reach, centre + reach


def _beside_local(table: int) -> pd.DataFrame:
    """The table's cells but local training's, with those of local training as ``mean_local`` and
    ``std_local``.
    """
    cells = paper_table(f"table{table}").assign(table=table)
    local = cells.loc[cells.algorithm == BASELINE, ["public", "user", "mean", "std"]]
    return cells[cells.algorithm != BASELINE].merge(
        local, on=["public", "user"], suffixes=("", "_local")
    )


# --- costs


def communication() -> pd.DataFrame:
    """Table 5's communication cost of a user and round, in GB of 2^30 bytes, beside the formula
    behind it and the three exact replies.

    Returns:
        M, printed, formula (``wire.paper_cost_gb``), formula_b32 (with the B = 32 of Section 6.1),
        then the replies of ``wire.REPLIES`` for the formula's batches of 20 in 16 bits, with Z^n
        up; agrees (the formula, cut off after the printed digits).
    """
    rows = paper_table("table5").rename(columns={"cost_per_round_gb": "printed"})[["M", "printed"]]
    rows["formula"] = rows.M.map(paper_cost_gb)
    rows["formula_b32"] = [paper_cost_gb(m, batch=32) for m in rows.M]
    for kind in REPLIES:
        rows[kind] = [
            250 * (20 * 256 * 2 + reply_nbytes(kind, 20, 256, m, itemsize=2)) / 2**30
            for m in rows.M
        ]
    return rows.assign(agrees=np.floor(1000 * rows.formula) / 1000 == rows.printed)


def vit_macs(
    width: int, depth: int, patch: int, *, attention: bool = False, image: int = 224
) -> int:
    """Multiply-adds of a ViT's forward pass of an image, in its patch embedding and blocks.

    Args:
        attention: count the two products inside attention too; counters of layers (linear,
            convolution) do not.
    """
    patches = (image // patch) ** 2
    products = 2 * (patches + 1) ** 2 * width if attention else 0
    return patches * 3 * patch**2 * width + depth * ((patches + 1) * 12 * width**2 + products)


def vit_counts() -> pd.DataFrame:
    """Operations that may stand behind Table 1's TeraFLOPS of local training, 29, and FedHeNN, 34,
    for both ViT-Base.

    Returns:
        base_patch (pixels), attention (are its products counted), local (a forward pass of the
        users' training samples), fedhenn (and of 32 public images, one batch, by each user), in
        10^12 operations, two a multiply-add; agrees (both, to the printed digits).
    """
    rows = []
    for patch, attention in product((32, 16), (False, True)):
        local, image = _tera(patch, attention)
        rows.append(
            {
                "base_patch": patch,
                "attention": attention,
                "local": local,
                "fedhenn": local + 32 * image,
            }
        )
    printed = paper_table("table1_teraflops").set_index("algorithm").teraflops
    found = pd.DataFrame(rows)
    return found.assign(
        agrees=(
            found[["local", "fedhenn"]].round() == printed[["local", "fedhenn"]].to_numpy()
        ).all(axis=1)
    )


def teraflops() -> pd.DataFrame:
    """Table 1's TeraFLOPS, and how many forward passes of a public image by each user they leave
    after the local training that fits.

    Returns:
        algorithm, printed, public_images: the paper's public sets have 5000. The printed digits
            leave 3 undecided.
    """
    rows = paper_table("table1_teraflops").rename(columns={"teraflops": "printed"})[
        ["algorithm", "printed"]
    ]
    local, image = _tera(patch=32, attention=False)
    return rows.assign(public_images=((rows.printed - local) / image).round().astype(int))


def _tera(patch: int, attention: bool) -> tuple[float, float]:
    """10^12 operations of Setup1's users: forward passes of their training samples, and of one
    public image by each.
    """
    shapes = {
        model: (w, d, patch if model == "ViT-Base" else p) for model, (w, d, p) in _VITS.items()
    }
    each = [
        (user.train_samples, 2 * vit_macs(*shapes[user.model], attention=attention) / 1e12)
        for user in SETUPS["setup1"]
    ]
    return sum(samples * tera for samples, tera in each), sum(tera for _, tera in each)


# --- cells


def repeats() -> pd.DataFrame:
    """Cells that should be one number a user: of the same runs in several tables, or of an
    algorithm that does not look at public data.

    Returns:
        cells (which), n, expected (how many should differ), distinct (how many do).
    """
    cells = pd.concat([paper_table(f"table{n}").assign(table=n) for n in (1, 2, 6, 7, 8)])
    table1 = cells[cells.table == 1]
    found = {
        "local training, Tables 1, 2, 6, 7 and 8": (
            cells[cells.algorithm == BASELINE].assign(public="")
        ),
        "FedMuscle, Tables 1 and 7": cells[
            cells.table.isin([1, 7]) & (cells.algorithm == "fedmuscle")
        ],
        "FedRCL, Table 1's public sets": table1[table1.algorithm == "fedrcl"].assign(public=""),
        "FedDF's user 6, Table 1's public sets": (
            table1[(table1.algorithm == "feddf") & (table1.user == 6)].assign(public="")
        ),
    }
    return pd.DataFrame(
        {
            "cells": name,
            "n": len(rows),
            "expected": len(rows[["public", "user"]].drop_duplicates()),
            "distinct": len(rows[["public", "user", "mean", "std"]].drop_duplicates()),
        }
        for name, rows in found.items()
    )


def baselines() -> pd.DataFrame:
    """Local training in Table 9 beside Table 2's, which has the same users.

    Returns:
        user, model, task, table2, std, table9, in_stds (the distance in Table 2's standard
        deviations; one of three runs is at most sqrt(2) from their mean).
    """
    names, key = ("table2", "table9"), ["user", "model", "task"]
    ours, theirs = (
        paper_table(name).query("algorithm == @BASELINE").rename(columns={"mean": name})
        for name in names
    )
    both = ours[[*key, "table2", "std"]].merge(theirs[[*key, "table9"]], on=key)
    return both.assign(in_stds=(both.table9 - both.table2) / both["std"])


def runs_behind() -> pd.DataFrame:
    """How many runs can be behind the cells: their values have one decimal, which few means and
    deviations allow.

    Returns:
        table, algorithm, cells, two, three (how many cells can be of so many runs); Table 2 column
        by column, the others whole.
    """
    cells = pd.concat([paper_table(f"table{n}").assign(table=n) for n in (1, 2, 6, 7, 8)])
    cells["algorithm"] = cells.algorithm.where(cells.table == 2, "all")
    for n, name in ((2, "two"), (3, "three")):
        cells[name] = [
            could_be(n, mean, std) for mean, std in zip(cells["mean"], cells["std"], strict=True)
        ]
    return (
        cells.groupby(["table", "algorithm"])
        .agg(cells=("mean", "size"), two=("two", "sum"), three=("three", "sum"))
        .reset_index()
    )


def could_be(n: int, mean: float, std: float) -> bool:
    """Return whether ``n`` values with one decimal can have this mean and population standard
    deviation, both with two decimals.
    """
    total = round(10 * n * mean)  # in tenths
    if abs(total / n - 10 * mean) > 0.051:
        return False
    reach = int(10 * std * (n - 1) ** 0.5) + 2  # no one of n is further from their mean
    near = np.arange(round(10 * mean) - reach, round(10 * mean) + reach + 1)
    others = np.stack(np.meshgrid(*[near] * (n - 1))).reshape(n - 1, -1)
    values = np.vstack([others, total - others.sum(axis=0)])
    return bool((abs(values.std(axis=0) - 10 * std) < 0.051).any())


# --- sentences


def claims() -> pd.DataFrame:
    """Sentences of the paper on its tables, each with the comparisons of two printed numbers that
    it stands for.

    Returns:
        section, claim (the paper's words), comparisons, hold (how many), exceptions (the others,
        each with its difference).
    """
    delta = deltas().set_index(_KEY).printed.sort_index()
    table1, table7 = (delta[n].unstack("algorithm") for n in (1, 7))
    baselines1 = table1.drop(columns="fedmuscle")
    table4 = _beside_local(4).set_index(["algorithm", "user"])
    recalls = paper_table("table3").pivot(
        index=["public", "user"], columns="algorithm", values="mean"
    )
    recalls = recalls.rename_axis(["images", "recall"])
    by_m = paper_table("table5").set_index("M").delta_paper
    by_rounds = pd.concat(
        [delta[8, "coco"], table1.fedmuscle[["coco"]].set_axis(["R = 150, T = 1"])]
    )  # Section 6.1: R = 150, T = 1
    settings = by_rounds.index.str.extract(r"R = (?P<R>\d+), T = (?P<T>\d+)").astype(int)
    by_rounds = (
        by_rounds.set_axis(pd.MultiIndex.from_frame(settings)).unstack("T").diff().stack().dropna()
    )
    found = [
        (
            "6.2",
            "consistently achieves better overall performance in terms of Δ",
            -baselines1.sub(table1.fedmuscle, axis=0).stack(),
        ),
        (
            "6.2",
            "even pairwise alignment in FedMuscle yields better performance",
            -baselines1.sub(table7.pairwise, axis=0).stack(),
        ),
        (
            "6.2",
            "improves the global model's performance",
            recalls.creamfl_muscle - recalls.creamfl,
        ),
        (
            "6.3",
            "improves the performance of each user on its respective task",
            table4["mean"] - table4.mean_local,
        ),
        ("6.3", "increasing M improves overall performance in terms of Δ", by_m.diff().dropna()),
        (
            "6.3",
            "a greater number of communication rounds leads to improved performance",
            by_rounds,
        ),
    ]
    return pd.DataFrame(
        {
            "section": section,
            "claim": words,
            "comparisons": len(better),
            "hold": (better.round(4) > 0).sum(),
            "exceptions": "; ".join(_named(better[better.round(4) <= 0])),
        }
        for section, words, better in found
    )


def _named(values: pd.Series) -> list[str]:
    """Such as "user 5 (-1.10)"."""
    keys = values.index.to_frame().itertuples(index=False, name=None)
    names = [
        ", ".join(
            f"{name} {label(str(part))}" for name, part in zip(values.index.names, key, strict=True)
        )
        for key in keys
    ]
    return [f"{name} ({value:+.2f})" for name, value in zip(names, values, strict=True)]
