"""Reports of CreamFL's runs: Table 3 beside the paper's cells, Delta, paired differences, costs,
and departures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedmuscle_lib.creamfl import algorithms
from fedmuscle_lib.creamfl.arms import BASELINE, CONTROLS, Run
from fedmuscle_lib.creamfl.build import SERVER
from fedmuscle_lib.creamfl.kinds import folders
from fedmuscle_lib.creamfl.networks import PIE, SCRATCH
from fedmuscle_lib.creamfl.retrieval import FOLD, FOLDS, WHOLE
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
    over_seeds,
    paired_differences,
    wide,
    wide_intervals,
    with_intervals,
    with_std,
)

# a row of the contract's table: gallery, column, "server", "retrieval", "recall"
CELL = ["public", "user", "model", "task", "metric"]
LAST, BEST = "last round", "best round"
PAPER = {"1K test images": FOLD, "5K test images": WHOLE}
# What is subtracted from what: minuend and subtrahend.
PAIRS = (
    *((arm, BASELINE) for arm in ("creamfl", "creamfl_muscle", *CONTROLS)),
    *(("creamfl_muscle", other) for other in ("creamfl", *CONTROLS)),
    *(("pairwise", other) for other in ("creamfl", "own")),
    *(("creamfl", other) for other in ("momentum", "own")),
)
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
        rows, s = history.metrics, history.settings
        score = rows[rows.k == 1].groupby("round").value.sum()
        rows = rows[rows["round"] == (score.idxmax() if moment == BEST else score.index.max())]
        found.append(rows.assign(seed=s.seed, algorithm=s.algorithm))
    rows = pd.concat(found, ignore_index=True)
    rows = rows.assign(user=rows.direction + "_R@" + rows.k.astype(str), public=rows.gallery)
    rows = rows.assign(model="server", task="retrieval", metric="recall")
    return rows[["seed", "algorithm", *CELL, "value", "chance", "round"]]


def table(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Recalls over seeds: ``CELL``, algorithm, mean, std, n_seeds, ci_low, ci_high, chance,
    paper_mean, paper_std (none is printed).
    """
    rows = scores(histories, moment)
    chance = rows[[*CELL, "chance"]].drop_duplicates(CELL)
    ours = over_seeds(rows, [*CELL, "algorithm"], "value").merge(chance, on=CELL)
    names = {"mean": "paper_mean", "std": "paper_std"}
    theirs = paper_table("table3").rename(columns=names).replace({"public": PAPER})
    return ours.merge(theirs[["public", "user", "algorithm", *names.values()]], how="left")


def by_seed(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Delta of each run, the mean of the six relative gains over server alone in per cent: public
    (the gallery), algorithm, seed, delta.

    It is undefined, NaN, where a recall of the server alone is 0.
    """
    rows = scores(histories, moment)
    base = rows[rows.algorithm == BASELINE].set_index(["seed", *CELL]).value
    under = base.reindex(pd.MultiIndex.from_frame(rows[["seed", *CELL]])).to_numpy()
    gains = rows.assign(delta=100 * (rows.value / under - 1).where(under > 0))
    by = gains.groupby(["public", "algorithm", "seed"], sort=False)
    return by.delta.mean(skipna=False).reset_index()


def delta(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Delta as Table 3's, for each seed and then over seeds.

    Returns:
        public (the gallery), algorithm, delta, delta_std, n_seeds, ci_low, ci_high, paper_delta.
    """
    ours = over_seeds(by_seed(histories, moment), ["public", "algorithm"], "delta")
    theirs = paper_table("table3_delta").rename(columns={"delta_paper": "paper_delta"})
    return ours.rename(columns={"mean": "delta", "std": "delta_std"}).merge(
        theirs.replace({"public": PAPER})[["public", "algorithm", "paper_delta"]], how="left"
    )


def differences(histories: Sequence[Run], moment: str = LAST) -> pd.DataFrame:
    """Paired differences on the same seeds, of those of :data:`PAIRS` of which both were run.

    Returns:
        public, user, a, b, difference (of a minus b, percentage points), std, n_seeds, ci_low,
        ci_high. User "delta" is Delta's.
    """
    of_recall = paired_differences(scores(histories, moment), PAIRS, ["public", "user"], "value")
    of_delta = paired_differences(by_seed(histories, moment), PAIRS, ["public"], "delta")
    return pd.concat([of_recall, of_delta.assign(user="delta")], ignore_index=True)


def curve(histories: Sequence[Run]) -> pd.DataFrame:
    """R@1 of the whole test set over rounds and seeds: algorithm, direction, round, mean, std,
    n_seeds, ci_low, ci_high, chance.
    """
    rows = pd.concat([h.metrics.assign(algorithm=h.settings.algorithm) for h in histories])
    rows = rows[(rows.gallery == WHOLE) & (rows.k == 1)]
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
    found, sent = [], ["uplink_mb", "downlink_mb"]
    for history in histories:
        facts, rows = history.provenance, history.costs
        rows = rows.assign(
            samples=rows.party.map(facts["samples"]),
            uplink_mb=rows.uplink_bytes / 1e6,
            downlink_mb=rows.downlink_bytes / 1e6,
            gflop=rows.flops / 1e9,
        )
        each = rows.groupby("kind", sort=False)[["samples", *sent, "gflop"]].mean().reset_index()
        each.loc[each.kind == SERVER, sent] = rows.groupby("round")[sent].sum().mean().to_numpy()
        each["trained"] = each.kind.map(facts["trained"])
        found.append(each.assign(algorithm=history.settings.algorithm, seconds=facts["seconds"]))
    by = pd.concat(found, ignore_index=True).groupby(["algorithm", "kind"], sort=False)
    return by.mean().reset_index()


def departures(histories: Sequence[Run]) -> pd.DataFrame:
    """Return settings and options that are not the paper's or the code's, and what both leave to
    us: setting, ours, theirs.
    """
    scratch = {
        name.removesuffix(PIE) in SCRATCH for name in histories[0].settings.networks.values()
    }
    adapted = "those of checkpoints, adapted by LoRA"
    ours = " and ".join(["random"] * (True in scratch) + [adapted] * (False in scratch))
    weights = ("initial weights", ours, 'the paper: "trained from scratch"; the code: pretrained')
    rows = [*changed(histories, algorithms.get), weights, *_CHOICES]
    return Sentences(rows, columns=["setting", "ours", "theirs"])


def label(arm: str) -> str:
    """The algorithm's name in figures and headings."""
    return algorithms.get(arm).label


def side_by_side(table: pd.DataFrame, delta: pd.DataFrame) -> pd.DataFrame:
    """:func:`table` and :func:`delta` laid out for reading: a row an algorithm, a column a
    gallery's R@1, R@10 or Delta.

    A cell is "ours | the paper's"; the last row is chance.
    """
    cells = table[table.user.isin(_SHOWN)].assign(method=lambda rows: rows.algorithm.map(label))
    cells["column"] = cells.public + " " + cells.user.str.replace("_", " ")
    each = zip(cells["mean"], cells["std"], cells.paper_mean, strict=True)
    cells["cell"] = [with_std(mean, std) + beside(paper, ".2f") for mean, std, paper in each]
    chance = cells.drop_duplicates("column").assign(method="chance")
    chance["cell"] = chance.chance.map("{:.1f}".format)
    gains = delta[delta.algorithm != BASELINE]
    gains = gains.assign(method=gains.algorithm.map(label), column=gains.public + _DELTA)
    ours = zip(with_intervals(gains, "delta"), gains.paper_delta, strict=True)
    gains["cell"] = [cell + beside(paper, "+.2f") for cell, paper in ours]
    found = wide(pd.concat([cells, gains, chance]), "method", "column").fillna("")
    shown = [*(f" {name.replace('_', ' ')}" for name in _SHOWN), _DELTA]
    order = [gallery + each for gallery in (FOLD, WHOLE) for each in shown]
    order = [name for name in order if name in found]
    return found.loc[[*dict.fromkeys(cells.method), "chance"], order].rename_axis(columns=None)


def laid_out(differences: pd.DataFrame) -> pd.DataFrame:
    """:func:`differences` laid out for reading: a row a difference and gallery, a column Delta or a
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


def note(histories: Sequence[Run], moment: str = LAST) -> str:
    """A Markdown line under a table: what its numbers are, profile and seeds, the meaning of ± and
    brackets, where the runs come from.
    """
    s, seeds = histories[0].settings, sorted({history.settings.seed for history in histories})
    when = "after the last round"
    if moment == BEST:
        when = "of each run's best round, chosen on the test set"
    return " ".join(
        [
            f"Ours | the paper's. Recall in per cent {when}.",
            f"`whole` ranks {s.test_size:,} test images (the paper's 5K),",
            f"`fold` is the mean over {FOLDS} folds of them (its 1K).",
            f"Profile `{s.profile}`, {named(seeds)}.",
            spread(seeds),
            *origins(histories),
        ]
    )


def write(histories: Sequence[Run], folder: Path, overview: pd.DataFrame) -> None:
    """Write tables of both moments, Deltas, differences, costs and departures as CSV files,
    ``overview.csv``, and where they come from.

    Args:
        overview: the notebook's table as it is to be read, which the page of results and the index
            show.
    """
    frames = {
        "best_rounds": scores(histories, BEST)[["algorithm", "seed", "round"]].drop_duplicates(),
        "curve": curve(histories),
        "costs": costs(histories),
        "departures": departures(histories),
        "delta_by_seed": by_seed(histories),
        "overview": overview.reset_index(),
    }
    for moment, suffix in ((LAST, ""), (BEST, "_best_round")):
        for measure in (table, delta, differences):
            frames[measure.__name__ + suffix] = measure(histories, moment)
    s = histories[0].settings
    data = manifests(s.data_dir, folders(s))
    write_results(frames, provenance_by_algorithm(histories, folder.name, data), folder)
