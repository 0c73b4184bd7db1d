"""Reports of CreamFL's runs: Table 3 beside the paper's cells, Delta, paired differences, costs,
and departures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.creamfl import algorithms, kinds
from fedmuscle_lib.creamfl.arms import BASELINE, CONTROLS, Run
from fedmuscle_lib.creamfl.build import SERVER
from fedmuscle_lib.creamfl.networks import PIE, SCRATCH
from fedmuscle_lib.creamfl.retrieval import FOLD, WHOLE
from fedmuscle_lib.report.paper import paper_table
from fedmuscle_lib.report.provenance import (
    Sentences,
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
    paired_differences,
    side_of_zero,
    wide,
    wide_intervals,
    with_intervals,
    with_std,
)

CELL = [
    "public",
    "user",
    "model",
    "task",
    "metric",
]  # a row of the contract's table: gallery, column, "server", "retrieval", "recall"
LAST, BEST = "last round", "best round"
PAPER = {"1K test images": FOLD, "5K test images": WHOLE}
# What is subtracted from what: minuend and subtrahend.
PAIRS = (
    *((arm, BASELINE) for arm in ("creamfl", "creamfl_muscle", *CONTROLS)),
    *(("creamfl_muscle", other) for other in ("creamfl", *CONTROLS)),
    *(("pairwise", other) for other in ("creamfl", "own")),
    *(("creamfl", other) for other in ("momentum", "own")),
)
_SHOWN = ("i2t_R@1", "i2t_R@10", "t2i_R@1", "t2i_R@10")
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


def scores(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Recalls of each run: seed, algorithm, ``CELL``, value and chance (per cent), and the round
    that they are of.

    Args:
        moment: ``LAST``, or ``BEST``: the round whose sum of the four R@1 is largest, as the
            authors choose it. That is a choice on the test set, and higher than what a run would
            show on others.
    """
    found = []
    for history in histories:
        rows = history.final()
        if moment == BEST:
            best = history.metrics[history.metrics.k == 1].groupby("round").value.sum().idxmax()
            rows = history.metrics[history.metrics["round"] == best]
        found.append(rows.assign(seed=history.settings.seed, algorithm=history.settings.algorithm))
    every = pd.concat(found, ignore_index=True)
    every["user"] = every.direction + "_R@" + every.k.astype(str)
    every = every.assign(public=every.gallery, model="server", task="retrieval", metric="recall")
    return every[["seed", "algorithm", *CELL, "value", "chance", "round"]]


def table(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Recalls over seeds: ``CELL``, algorithm, mean, std, n_seeds, ci_low, ci_high, chance,
    paper_mean, paper_std (none is printed).
    """
    rows = scores(histories, moment)
    ours = over_seeds(rows, [*CELL, "algorithm"], "value").merge(
        rows[[*CELL, "chance"]].drop_duplicates(CELL), on=CELL
    )
    theirs = (
        paper_table("table3")
        .rename(columns={"mean": "paper_mean", "std": "paper_std"})
        .replace({"public": PAPER})
    )
    return ours.merge(
        theirs[["public", "user", "algorithm", "paper_mean", "paper_std"]], how="left"
    )


def by_seed(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Delta of each run, the mean of the six relative gains over server alone in per cent: public
    (the gallery), algorithm, seed, delta.

    It is undefined, NaN, where a recall of the server alone is 0.
    """
    rows = scores(histories, moment)
    base = rows[rows.algorithm == BASELINE].set_index(["seed", *CELL]).value
    under = base.reindex(pd.MultiIndex.from_frame(rows[["seed", *CELL]])).to_numpy()
    gains = rows.assign(gain=100 * (rows.value / under - 1).where(under > 0))
    return (
        gains.groupby(["public", "algorithm", "seed"], sort=False)
        .gain.mean(skipna=False)
        .rename("delta")
        .reset_index()
    )


def delta(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Delta as Table 3's, for each seed and then over seeds.

    Returns:
        public (the gallery), algorithm, delta, delta_std, n_seeds, ci_low, ci_high, paper_delta.
    """
    rows = by_seed(histories, moment)
    ours = over_seeds(rows, ["public", "algorithm"], "delta").rename(
        columns={"mean": "delta", "std": "delta_std"}
    )
    theirs = (
        paper_table("table3_delta")
        .rename(columns={"delta_paper": "paper_delta"})
        .replace({"public": PAPER})
    )
    columns = [
        "public",
        "algorithm",
        "delta",
        "delta_std",
        "n_seeds",
        "ci_low",
        "ci_high",
        "paper_delta",
    ]
    return ours.merge(theirs[["public", "algorithm", "paper_delta"]], how="left")[columns]


def differences(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Paired differences on the same seeds, of those of :data:`PAIRS` of which both were run.

    Returns:
        public, user, a, b, difference (of a minus b, percentage points), std, n_seeds, ci_low,
        ci_high. User "delta" is Delta's.
    """
    of_recall = paired_differences(scores(histories, moment), PAIRS, ["public", "user"], "value")
    of_delta = paired_differences(by_seed(histories, moment), PAIRS, ["public"], "delta").assign(
        user="delta"
    )
    return pd.concat([of_recall, of_delta], ignore_index=True)


def curve(histories: Sequence[Run]) -> pd.DataFrame:
    """R@1 of the whole test set over rounds and seeds: algorithm, direction, round, mean, std,
    n_seeds, ci_low, ci_high, chance.
    """
    every = pd.concat(
        [h.metrics.assign(algorithm=h.settings.algorithm) for h in histories], ignore_index=True
    )
    rows = every[(every.gallery == WHOLE) & (every.k == 1)]
    by = ["algorithm", "direction", "round"]
    return over_seeds(rows, by, "value").merge(rows[[*by, "chance"]].drop_duplicates(by), on=by)


def costs(histories: Sequence[Run]) -> pd.DataFrame:
    """Return what a round costs a party that takes part in it, the mean over parties, rounds and
    seeds; and the run's seconds.

    Returns:
        algorithm, kind, samples (private ones of a client, the mean over those that took part; NaN
        for the server), uplink_mb and downlink_mb (10^6 bytes; the server's are all participants'
        together), gflop (of training), trained (parameters that the party can train), seconds (of
        the whole run).
    """
    found, sent = [], ["uplink_bytes", "downlink_bytes"]
    for history in histories:
        rows = history.costs.assign(samples=history.costs.party.map(history.provenance["samples"]))
        each = rows.groupby("kind", sort=False)[["samples", *sent, "flops"]].mean().reset_index()
        each.loc[each.kind == SERVER, sent] = (
            history.costs.groupby("round")[sent].sum().mean().to_numpy()
        )
        told = {"algorithm": history.settings.algorithm, "seconds": history.provenance["seconds"]}
        found.append(each.assign(trained=each.kind.map(history.provenance["trained"]), **told))
    rows = (
        pd.concat(found, ignore_index=True)
        .groupby(["algorithm", "kind"], sort=False)
        .mean()
        .reset_index()
    )
    rows = rows.assign(
        uplink_mb=rows.uplink_bytes / 1e6,
        downlink_mb=rows.downlink_bytes / 1e6,
        gflop=rows.flops / 1e9,
    )
    return rows[
        ["algorithm", "kind", "samples", "uplink_mb", "downlink_mb", "gflop", "trained", "seconds"]
    ]


def departures(histories: Sequence[Run]) -> pd.DataFrame:
    """Return settings and options that are not the paper's or the code's, and what both leave to
    us: setting, ours, theirs.
    """
    scratch = {
        name.removesuffix(PIE) in SCRATCH for name in histories[0].settings.networks.values()
    }
    ours = " and ".join(
        ["random"] * (True in scratch)
        + ["those of checkpoints, adapted by LoRA"] * (False in scratch)
    )
    weights = ("initial weights", ours, 'the paper: "trained from scratch"; the code: pretrained')
    return Sentences(
        [*changed(histories, algorithms.get), weights, *_CHOICES],
        columns=["setting", "ours", "theirs"],
    )


def label(arm: str) -> str:
    """The algorithm's name in figures and headings."""
    return algorithms.get(arm).label


def side_by_side(table: pd.DataFrame, delta: pd.DataFrame) -> pd.DataFrame:
    """:func:`table` and :func:`delta` laid out for reading: a row an algorithm, a column a
    gallery's R@1, R@10 or Delta.

    A cell is "ours | the paper's"; the last row is chance.
    """
    rows = table[table.user.isin(_SHOWN)]
    cells = rows.assign(
        method=rows.algorithm.map(label),
        column=rows.public + " " + rows.user.str.replace("_", " "),
        cell=[
            with_std(row.mean, row.std) + beside(row.paper_mean, ".2f")
            for row in rows[["mean", "std", "paper_mean"]].itertuples()
        ],
    )
    chance = cells.drop_duplicates("column").assign(method="chance")
    chance["cell"] = [f"{value:.1f}" for value in chance.chance]
    gains = delta[delta.algorithm != BASELINE]
    gains = gains.assign(
        method=gains.algorithm.map(label),
        column=gains.public + " Δ (%)",
        cell=[
            cell + beside(paper, "+.2f")
            for cell, paper in zip(with_intervals(gains, "delta"), gains.paper_delta, strict=True)
        ],
    )
    found = (
        wide(pd.concat([cells, gains, chance]), "method", "column")
        .fillna("")
        .rename_axis(columns=None)
    )
    order = [
        f"{gallery} {name}"
        for gallery in (FOLD, WHOLE)
        for name in (*(shown.replace("_", " ") for shown in _SHOWN), "Δ (%)")
    ]
    return found.loc[
        [*dict.fromkeys(cells.method), "chance"], [name for name in order if name in found]
    ]


def laid_out(differences: pd.DataFrame) -> pd.DataFrame:
    """:func:`differences` laid out for reading: a row a difference and gallery, a column Delta or a
    recall, points with their interval.
    """
    rows = differences[differences.user.isin(["delta", *_SHOWN])]
    rows = rows.assign(
        arms=[f"{label(row.a)} − {label(row.b)}" for row in rows.itertuples()], gallery=rows.public
    )
    rows["user"] = rows.user.replace("delta", "Δ").str.replace("_", " ")
    return (
        wide_intervals(rows, "difference", ["arms", "gallery"], "user")
        .fillna("")
        .rename_axis(columns=None)
    )


def verdicts(differences: pd.DataFrame) -> str:
    """Markdown, an item a difference of the whole test set's R@1: what its intervals allow one to
    say.
    """
    rows = differences[(differences.public == WHOLE) & differences.user.str.endswith("_R@1")]
    arms = rows.groupby(["a", "b"], sort=False)
    return "\n".join(
        f"- {label(a)} instead of {label(b)}: {'; '.join(map(_verdict, own.itertuples()))}."
        for (a, b), own in arms
    )


def _verdict(row: Any) -> str:
    what = row.user.replace("_", " ")
    if pd.isna(row.ci_low):
        return f"{what} undecided ({row.difference:+.2f} points on one seed)"
    side = {1: "higher", -1: "lower", 0: "undecided"}[side_of_zero(row.ci_low, row.ci_high)]
    return f"{what} {side} ({row.difference:+.2f} points {interval(row.ci_low, row.ci_high)})"


def about(histories: Sequence[Run]) -> str:
    """The line above a figure: world, clients, public pairs, seeds and what its bars are."""
    s = histories[0].settings
    clients = ", ".join(f"{n} with {kind}" for kind, n in s.clients.items())
    return described(
        histories,
        f"clients: {clients}",
        f"{s.public_size:,} public pairs",
        f"{s.test_size:,} test images",
    )


def note(histories: Sequence[Run], moment: str = LAST) -> str:
    """A Markdown line under a table: what its numbers are, profile and seeds, the meaning of ± and
    brackets, where the runs come from.
    """
    s, seeds = histories[0].settings, sorted({history.settings.seed for history in histories})
    when = (
        "after the last round"
        if moment == LAST
        else "of each run's best round, chosen on the test set"
    )
    of = (
        f"`whole` ranks {s.test_size:,} test images (the paper's 5K), `fold` is the mean over"
        f" {s.folds} folds of them (its 1K)."
    )
    sentences = [
        (
            f"Ours | the paper's. Recall in per cent {when}. {of} Profile `{s.profile}`,"
            f" {named(seeds)}."
        ),
        spread(seeds),
    ]
    return " ".join([*sentences, *origins(histories)])


def write(histories: Sequence[Run], folder: Path, overview: pd.DataFrame) -> None:
    """Write tables of both moments, Deltas, differences, costs and departures as CSV files,
    ``overview.csv``, and where they come from.

    Args:
        overview: the notebook's table as it is to be read, which the page of results and the index
            show.
    """
    frames = {
        "table": table(histories),
        "table_best_round": table(histories, BEST),
        "delta": delta(histories),
        "delta_best_round": delta(histories, BEST),
        "delta_by_seed": by_seed(histories),
        "differences": differences(histories),
        "differences_best_round": differences(histories, BEST),
        "best_rounds": scores(histories, BEST)[["algorithm", "seed", "round"]].drop_duplicates(),
        "curve": curve(histories),
        "costs": costs(histories),
        "departures": departures(histories),
        "overview": overview.reset_index(),
    }
    s = histories[0].settings
    data = manifests(s.data_dir, kinds.folders(s))
    write_results(frames, provenance_by_algorithm(histories, folder.name, data), folder)
