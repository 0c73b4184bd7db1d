"""Reports of CreamFL's runs: recalls as rows of the tidy frame, the paper's cells, departures, and
the layout of Table 3. The notebook ``table3`` has the tables themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedmuscle_lib.creamfl import algorithms
from fedmuscle_lib.creamfl.arms import BASELINE, Run
from fedmuscle_lib.creamfl.kinds import folders
from fedmuscle_lib.creamfl.networks import PIE, SCRATCH
from fedmuscle_lib.creamfl.retrieval import FOLD, FOLDS, WHOLE
from fedmuscle_lib.report.frame import tidy
from fedmuscle_lib.report.paper import paper_table
from fedmuscle_lib.report.provenance import (
    Sentences,
    changed,
    described,
    noted,
    write_by_algorithm,
)
from fedmuscle_lib.report.statistics import beside, wide, wide_intervals, with_intervals, with_std

# a row of the contract's table: gallery, recall, "server", "retrieval", "recall"
CELL = ["public", "user", "model", "task", "metric"]
_PAPER = {"1K test images": FOLD, "5K test images": WHOLE}
_SHOWN, _DELTA = ("i2t_R@1", "i2t_R@10", "t2i_R@1", "t2i_R@10"), " Δ (%)"
# What the paper or the code has, and is no setting here: what, ours, theirs.
_CHOICES = (
    (
        "public pairs",
        "images with their first caption",
        "the code: captions, drawn from all five of an image",
    ),
    (
        "division of pairs",
        "shards of neighbouring captions, as in the code",
        'the paper: "Dirichlet"',
    ),
    ("Adam", "torch's, in float32", "the code: AdamP, in float16"),
    (
        "weight of the distillation",
        "0.6",
        "the code: 0.3 for clients with one modality, and 0.3 more for those with two",
    ),
    ("augmentation of private data", "none", "the code: crops, flips, erased parts, dropped words"),
    ("dropout", "none", "the code: BERT's, of 0.1"),
    (
        "networks of clients when they embed for the server",
        "in evaluation mode",
        "the code: in training mode with images or texts alone",
    ),
    (
        "samples of clients with images or texts",
        "the pool that data_prep writes",
        "the code: 50,000 of CIFAR-100, 120,000 of AG's News",
    ),
    ("words", "tokens of the tokenizer", "the code: 11,755 words with GloVe's vectors for clients"),
    ("ReLU of text clients' embeddings", "none", "the code: before they are normalised"),
    ("samples of a client with texts", "10 at least", "the code: 3,000 at least"),
    ("which round is reported", "the last one", "the code: the best one, chosen on the test set"),
)


def recalls(histories: Sequence[Run]) -> pd.DataFrame:
    """Recalls of every evaluated round: ``CELL``, algorithm, seed, round, value and chance (per
    cent). A user is a direction and k, such as "i2t_R@1".
    """
    rows = tidy(histories)
    rows = rows.assign(
        public=rows.gallery,
        user=rows.direction + "_R@" + rows.k.astype(str),
        model="server",
        task="retrieval",
        metric="recall",
    )
    return rows[["seed", "algorithm", *CELL, "value", "chance", "round"]]


def printed() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The paper's Table 3: public, user, algorithm, paper_mean and paper_std (none is printed); and
    its Delta: public, algorithm, paper_delta.
    """
    names = {"mean": "paper_mean", "std": "paper_std", "delta_paper": "paper_delta"}
    cells, deltas = (
        paper_table(name).replace({"public": _PAPER}).rename(columns=names)
        for name in ("table3", "table3_delta")
    )
    return (
        cells[["public", "user", "algorithm", "paper_mean", "paper_std"]],
        deltas[["public", "algorithm", "paper_delta"]],
    )


def departures(histories: Sequence[Run]) -> pd.DataFrame:
    """Return settings and options that are not the paper's or the code's, and what both leave to
    us: setting, ours, theirs.
    """
    scratch = {
        name.removesuffix(PIE) in SCRATCH for name in histories[0].settings.networks.values()
    }
    said = {True: "random", False: "those of checkpoints, adapted by LoRA"}
    ours = " and ".join(text for each, text in said.items() if each in scratch)
    weights = ("initial weights", ours, 'the paper: "trained from scratch"; the code: pretrained')
    rows = [*changed(histories, algorithms.get), weights, *_CHOICES]
    return Sentences(rows, columns=["setting", "ours", "theirs"])


def label(arm: str) -> str:
    """The algorithm's name in figures and headings."""
    return algorithms.get(arm).label


def side_by_side(table: pd.DataFrame, delta: pd.DataFrame) -> pd.DataFrame:
    """Table 3 and its Delta laid out for reading: a row an algorithm, a column a
    gallery's R@1, R@10 or Delta.

    A cell is "ours | the paper's"; the last row is chance.
    """
    cells = table[table.user.isin(_SHOWN)].assign(method=lambda rows: rows.algorithm.map(label))
    cells["column"] = cells.public + " " + cells.user.str.replace("_", " ")
    numbers = cells[["mean", "std", "paper_mean"]].to_numpy()
    cells["cell"] = [with_std(mean, std) + beside(paper, ".2f") for mean, std, paper in numbers]
    chance = cells.drop_duplicates("column").assign(method="chance")
    chance["cell"] = chance.chance.map("{:.1f}".format)
    gains = delta[delta.algorithm != BASELINE]
    gains = gains.assign(method=gains.algorithm.map(label), column=gains.public + _DELTA)
    ours = zip(with_intervals(gains, "delta"), gains.paper_delta, strict=True)
    gains["cell"] = [cell + beside(paper, "+.2f") for cell, paper in ours]
    found = wide(pd.concat([cells, gains, chance]), "method", "column").fillna("")
    shown = [*(f" {name.replace('_', ' ')}" for name in _SHOWN), _DELTA]
    order = [gallery + each for gallery in (FOLD, WHOLE) for each in shown]
    found = found.loc[[*dict.fromkeys(cells.method), "chance"]].rename_axis(columns=None)
    return found[[name for name in order if name in found]]


def laid_out(differences: pd.DataFrame) -> pd.DataFrame:
    """Paired differences laid out for reading: a row a difference and gallery, a column Delta or a
    recall, points with their interval.
    """
    rows = differences[differences.user.isin(["delta", *_SHOWN])].rename(
        columns={"public": "gallery"}
    )
    rows["arms"] = rows.a.map(label) + " \N{MINUS SIGN} " + rows.b.map(label)
    rows["user"] = rows.user.replace("delta", "Δ").str.replace("_", " ")
    return wide_intervals(rows, "difference", ["arms", "gallery"], "user").fillna("")


def about(histories: Sequence[Run]) -> str:
    """The line above a figure: world, clients, public pairs, seeds and what its bars are."""
    s = histories[0].settings
    clients = ", ".join(f"{n} with {kind}" for kind, n in s.clients.items())
    sizes = f"{s.public_size:,} public pairs", f"{s.test_size:,} test images"
    return described(histories, f"clients: {clients}", *sizes)


def note(histories: Sequence[Run], when: str = "after the last round") -> str:
    """A Markdown line under a table: what its numbers are, and what :func:`noted` says."""
    return noted(
        histories,
        f"Ours | the paper's. Recall in per cent {when}.",
        f"`whole` ranks {histories[0].settings.test_size:,} test images (the paper's 5K),",
        f"`fold` is the mean over {FOLDS} folds of them (its 1K).",
    )


def write(histories: Sequence[Run], folder: Path, frames: Mapping[str, pd.DataFrame]) -> None:
    """Write frames by name and the departures as CSV files, and where they come from."""
    told = {**frames, "departures": departures(histories)}
    write_by_algorithm(told, histories, folder, folders(histories[0].settings))
