"""One arm against another: differences paired over seeds, and whether Delta orders the algorithms
as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from fedmuscle_lib.fedmuscle.algorithms import Phase
from fedmuscle_lib.fedmuscle.arms import (
    BASELINE,
    HEADLINE,
    TUNED,
    TUNED_BASELINE,
    baseline_of,
    is_blind,
)
from fedmuscle_lib.report.delta import delta, delta_by_seed
from fedmuscle_lib.report.paper import PAPER, beside_paper, paper_gains
from fedmuscle_lib.report.scores import USER, relative, scores
from fedmuscle_lib.report.statistics import (
    paired_difference,
    paired_differences,
    rank_correlation,
    spearman,
)
from fedmuscle_lib.runs.history import History, algorithm_of

_GAINING = ("fedmuscle", "anchored", f"fedmuscle, {TUNED}", f"anchored, {TUNED}")
_WITHOUT_LIVE_MATCHED_PEERS = ("self", "frozen_peers", "shuffled", "head_only")
_UNTRAINED = ("head_only", "probe")
_OWN_CONTROL = {
    "feddf": "own_teacher"
}  # an algorithm's own control, where that is none of FedMuscle's
EVERYONE = "all"  # as a task: over the users of all tasks


def per_user_difference(histories: Sequence[History], a: str, b: str) -> pd.DataFrame:
    """Metric of ``a`` minus that of ``b`` on the same seeds, for each user.

    Returns:
        public, user, model, task, metric, difference (percentage points), std, n_seeds, ci_low,
        ci_high.

    Raises:
        ValueError: the two have no seed and public set in common.
    """
    return paired_difference(scores(histories), a, b, USER, "value")


def gain_difference(
    histories: Sequence[History], a: str, b: str, paper: Sequence[str] = PAPER
) -> pd.DataFrame:
    """Improvement of ``a`` over local training, in per cent, minus that of ``b`` on the same seeds,
    for each user.

    Returns:
        public, user, model, task, metric, difference (percentage points), std, n_seeds, ci_low,
        ci_high, paper_difference: the same of the tables ``paper``, where each gain is over local
        training in its own table, so that ``a`` and ``b`` may stand in two.

    Raises:
        ValueError: the two have no seed and public set in common.
    """
    ours = paired_difference(relative(scores(histories)), a, b, USER, "value")
    theirs = (
        paper_gains(*paper)
        .pivot(index=["setup", "public", "user"], columns="algorithm", values="gain")
        .reindex(columns=[a, b])
    )
    return beside_paper(
        ours, (theirs[a] - theirs[b]).rename("paper_difference").reset_index(), histories
    )


def over_baseline(histories: Sequence[History]) -> pd.DataFrame:
    """:func:`per_user_difference` of every algorithm from local training, one after the other, with
    a column ``algorithm``.
    """
    arms = list(dict.fromkeys(one.arm for one in histories))
    pairs = [(name, baseline) for name in arms if (baseline := baseline_of(name, arms)) != name]
    found = paired_differences(scores(histories), pairs, USER, "value")
    return found.drop(columns=["a", "b"]).assign(algorithm=found.a)


def delta_difference(
    histories: Sequence[History], a: str, b: str, phase: Phase = HEADLINE
) -> pd.DataFrame:
    """Delta of ``a`` minus that of ``b`` on the same seeds: public, difference (percentage points),
    std, n_seeds, ci_low, ci_high.

    Raises:
        ValueError: the two have no seed and public set in common.
    """
    return paired_difference(delta_by_seed(histories, phase), a, b, ["public"], "delta")


def public_difference(histories: Sequence[History], reference: str) -> pd.DataFrame:
    """Delta of each arm that looks at public data on each public set minus its Delta on the set
    ``reference``, on the same seeds.

    Returns:
        algorithm, public, over (the reference), difference (points), std, n_seeds, ci_low, ci_high.

    Raises:
        ValueError: a set has no seed in common with the reference.
    """
    rows = delta_by_seed(histories)
    rows = rows[~rows.algorithm.map(is_blind)].rename(
        columns={"algorithm": "arm", "public": "algorithm"}
    )
    sets = [name for name in dict.fromkeys(rows.algorithm) if name != reference]
    parts = [
        paired_difference(rows, name, reference, ["arm"], "delta").assign(
            public=name, over=reference
        )
        for name in sets
    ]
    found = pd.concat(parts, ignore_index=True).rename(columns={"arm": "algorithm"})
    return found[
        ["algorithm", "public", "over", "difference", "std", "n_seeds", "ci_low", "ci_high"]
    ]


def delta_over(histories: Sequence[History], reference: str) -> pd.DataFrame:
    """:func:`delta_difference` of every algorithm that has a Delta from ``reference``, one after
    the other, with a column ``algorithm``.
    """
    rows = delta_by_seed(histories)
    pairs = [(name, reference) for name in dict.fromkeys(rows.algorithm) if name != reference]
    found = paired_differences(rows, pairs, ["public"], "delta")
    return found.drop(columns=["a", "b"]).assign(algorithm=found.a)


def by_seed(histories: Sequence[History], phase: Phase = HEADLINE) -> pd.DataFrame:
    """Delta of every run, over all users and by task: public, task (``EVERYONE`` or one),
    algorithm, seed, delta.
    """
    rows = pd.concat(
        [
            delta_by_seed(histories, phase).assign(task=EVERYONE),
            delta_by_seed(histories, phase, ["task"]),
        ],
        ignore_index=True,
    )
    return rows[["public", "task", "algorithm", "seed", "delta"]]


def paired_deltas(histories: Sequence[History], phase: Phase = HEADLINE) -> pd.DataFrame:
    """FedMuscle's Delta minus that of every other arm on the same seeds, and FedDF's minus its
    control's, over all users and by task.

    Returns:
        public, task (``EVERYONE`` or one), algorithm, over (the other arm), difference (points),
        n_seeds, ci_low, ci_high. Local training is no other arm, since Delta is over it. Two arms
        without a common seed, or one without a Delta over these users, have no row.
    """
    rows = by_seed(histories, phase)
    cells = {
        name: set(own[["public", "task", "seed"]].itertuples(index=False))
        for name, own in rows.groupby("algorithm", sort=False)
    }
    pairs = [
        ("fedmuscle", name) for name in cells if name not in ("fedmuscle", BASELINE, TUNED_BASELINE)
    ]
    pairs += [
        (name, _OWN_CONTROL[of] + name.removeprefix(of))
        for name in cells
        if (of := algorithm_of(name)) in _OWN_CONTROL
    ]
    pairs = [(a, b) for a, b in pairs if cells.get(a, set()) & cells.get(b, set())]
    found = paired_differences(rows, pairs, ["public", "task"], "delta").rename(
        columns={"a": "algorithm", "b": "over"}
    )
    return found[
        ["public", "task", "algorithm", "over", "difference", "n_seeds", "ci_low", "ci_high"]
    ]


def in_short(histories: Sequence[History]) -> pd.DataFrame:
    """Delta taken to pieces, for each public set: what FedMuscle gains, how much of it peers give,
    and what local training destroys.

    Returns:
        public, question ("gain", "peers" or "destroyed"), arm, over (what it is compared with),
        difference, n_seeds, ci_low, ci_high. A gain, and what is destroyed, is a Delta in per cent.
        "Peers" has differences of FedMuscle's Delta from that of each arm without live, matched
        peers, on the same seeds, in points. An arm that was not run has no row.
    """
    deltas = delta(histories).rename(columns={"algorithm": "arm"})
    over_tuned = {"delta_tuned": "difference", "ci_low_tuned": "ci_low", "ci_high_tuned": "ci_high"}
    as_tuned = (
        deltas.drop(columns=["ci_low", "ci_high"])
        .rename(columns=over_tuned)
        .assign(over=TUNED_BASELINE)
    )
    as_fixed = deltas.rename(columns={"delta": "difference"}).assign(over=BASELINE)
    gain = pd.concat([rows[rows.arm.isin(_GAINING)] for rows in (as_fixed, as_tuned)]).assign(
        question="gain"
    )
    destroyed = as_fixed[as_fixed.arm.isin(_UNTRAINED)].assign(question="destroyed")
    peers = paired_differences(
        delta_by_seed(histories),
        [("fedmuscle", name) for name in _WITHOUT_LIVE_MATCHED_PEERS],
        ["public"],
        "delta",
    )
    peers = peers.rename(columns={"a": "arm", "b": "over"}).assign(question="peers")
    rows = pd.concat([gain, peers, destroyed], ignore_index=True).dropna(subset="difference")
    return rows[["public", "question", "arm", "over", "difference", "n_seeds", "ci_low", "ci_high"]]


def rank_agreement(histories: Sequence[History]) -> pd.DataFrame:
    """For each public set, whether Delta orders the algorithms as in the paper: those that it has a
    Delta for, local training at 0 too.

    Returns:
        public, n_algorithms, rho (Spearman's), rho_p, tau (Kendall's tau-b), tau_p, n_seeds,
        rho_lowest and rho_highest (over single seeds that every algorithm was run on; NaN for fewer
        than two). The p-values (:func:`rank_correlation`) are of our order having nothing to do
        with the paper's. All of it is NaN where there is no order: fewer than two algorithms, or
        one and the same Delta for all.
    """
    by_seed = delta_by_seed(histories)
    rows = []
    for public, both in beside_papers_delta(histories):
        single = (
            by_seed[by_seed.public == public]
            .pivot(index="algorithm", columns="seed", values="delta")
            .loc[both.index]
        )
        rhos = pd.Series(
            [
                spearman(deltas, both.paper_delta)
                for _, deltas in single.dropna(axis="columns").items()
            ],
            dtype=float,
        )
        lowest, highest = (
            (rhos.min(), rhos.max()) if len(rhos) > 1 else (float("nan"), float("nan"))
        )
        rows.append(
            {"public": public, "n_algorithms": len(both)}
            | rank_correlation(both.delta, both.paper_delta)
            | {"n_seeds": len(rhos), "rho_lowest": lowest, "rho_highest": highest}
        )
    return pd.DataFrame(rows)


def beside_papers_delta(histories: Sequence[History]) -> Iterable[tuple[str, pd.DataFrame]]:
    """For each public set, by algorithm, the rows of :func:`delta` that have both ours and the
    paper's.
    """
    for public, rows in delta(histories).set_index("algorithm").groupby("public", sort=False):
        yield public, rows.dropna(subset=["delta", "paper_delta"])
