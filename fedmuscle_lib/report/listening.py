"""Directed peers: who predicts whom, who listens to whom, what each user decided, and who is better
or worse off by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations

import pandas as pd
from scipy.stats import t as student

from fedmuscle_lib.fedmuscle.ablations import Point
from fedmuscle_lib.fedmuscle.arms import BASELINE, label
from fedmuscle_lib.report.claims import LEVEL, holm
from fedmuscle_lib.report.delta import delta_by_seed
from fedmuscle_lib.report.scores import USER, scores
from fedmuscle_lib.report.statistics import (
    over_seeds,
    paired_differences,
    spearman,
    wide,
    with_interval,
)
from fedmuscle_lib.report.world_table import shipped_one_shot
from fedmuscle_lib.runs.history import History

_KEEPS, _GAIN, _LISTENS = (
    "keeps a copy",
    "gain in rehearsal",
    "listens to ",
)  # measures of ``algorithms.directed``
_RUN = ["algorithm", "seed", "user"]
_SAME = 1e-9  # points; a deviation up to here is rounding, and no t test exists


def listening(histories: Sequence[History]) -> pd.DataFrame:
    """Every pair of users of every run that measured it.

    Returns:
        algorithm, seed, user, peer, r2 (how well the peer's representations predict the user's),
        r2_back (the other way round), listens (whether the user listens to the peer).
    """
    rows = []
    for history, of in _measured(histories):
        for user, peer in permutations([user.number for user in history.settings.members], 2):
            r2 = {"r2": of[user, f"R2 from {peer}"], "r2_back": of[peer, f"R2 from {user}"]}
            about = {
                "algorithm": history.arm,
                "seed": history.settings.seed,
                "user": user,
                "peer": peer,
            }
            rows.append(about | r2 | {"listens": bool(of[user, f"{_LISTENS}{peer}"])})
    return pd.DataFrame(rows)


def heard(points: Iterable[Point], peer: int) -> pd.DataFrame:
    """Who listens to a peer in each run that measured it: what is varied, seed, heard_by (users,
    with commas between them).
    """
    rows = []
    for point in points:
        for history, of in _measured(point.histories):
            users = [
                str(user)
                for (user, measure), value in of.items()
                if value and measure == f"{_LISTENS}{peer}"
            ]
            rows.append(
                {**point.varied, "seed": history.settings.seed, "heard_by": ", ".join(users)}
            )
    return pd.DataFrame(rows).drop_duplicates(
        ignore_index=True
    )  # whether the server is robust changes nothing


def beside_first(points: Sequence[Point]) -> pd.DataFrame:
    """How far the order at each point is that at the first one, on the same seed.

    Returns:
        what is varied, seed, listens (ordered pairs of which one listens), kept (of these, those of
        the first point), new (the others), rho (Spearman's, of R2 over all pairs).
    """
    found, pair = [], ["seed", "user", "peer"]
    first = listening(points[0].histories)
    for point in points:
        both = listening(point.histories).merge(first, on=pair, suffixes=("", "_first"))
        for seed, own in both.groupby("seed"):
            kept, listens = (own.listens & own.listens_first).sum(), own.listens.sum()
            counts = {"listens": listens, "kept": kept, "new": listens - kept}
            found.append(
                {**point.varied, "seed": seed, **counts, "rho": spearman(own.r2, own.r2_first)}
            )
    return pd.DataFrame(found)


def decisions(histories: Sequence[History]) -> pd.DataFrame:
    """What each user decided in every run in which there was something to decide.

    Returns:
        algorithm, seed, user, model, task, listens_to (peers, with commas between them),
        keeps_a_copy, vetoes, gain_in_rehearsal (points of its metric by which alignment makes it
        better, the mean over rehearsals), ci_low, ci_high (over rehearsals, which share most
        labels, so that the interval is too short). The last three are NaN where there are too few
        rehearsals.
    """
    rows, gains = [], []
    for history, of in _measured(histories):
        for user in history.settings.members:
            run = {"algorithm": history.arm, "seed": history.settings.seed, "user": user.number}
            own = {measure: value for (n, measure), value in of.items() if n == user.number}
            peers = ", ".join(
                measure.removeprefix(_LISTENS)
                for measure, value in own.items()
                if value and measure.startswith(_LISTENS)
            )
            gained = [value for measure, value in own.items() if measure.startswith(_GAIN)]
            decided = {
                "listens_to": peers,
                "keeps_a_copy": bool(own[_KEEPS]),
                "vetoes": sum(gained) < 0,
            }
            rows.append({**run, "model": user.model, "task": user.task, **decided})
            gains += [{**run, "gain": gain} for gain in gained]
    if not rows:
        return pd.DataFrame()
    rehearsed = over_seeds(pd.DataFrame(gains, columns=[*_RUN, "gain"]), _RUN, "gain").rename(
        columns={"mean": "gain_in_rehearsal"}
    )
    return pd.DataFrame(rows).merge(
        rehearsed[[*_RUN, "gain_in_rehearsal", "ci_low", "ci_high"]], "left", _RUN
    )


def without_alignment(histories: Sequence[History]) -> list[History]:
    """What each user's decision on its copy would be worth without any alignment: ``head_only,
    decided``.

    A user that keeps its copy with ``directed`` trains its head alone, since that was as good on
    labels that it held out. Another one trains as alone. No run is made: the metrics are those of
    ``head_only`` and ``local`` on the same seed; one that lacks them is left out.
    """
    runs = {(history.arm, history.settings.seed): history for history in histories}
    found = []
    for history, of in _measured([history for history in histories if history.arm == "directed"]):
        frozen, local = (
            runs.get((name, history.settings.seed)) for name in ("head_only", BASELINE)
        )
        if frozen and local:
            keeps = [user for (user, measure), value in of.items() if measure == _KEEPS and value]
            metrics = [
                frozen.metrics[frozen.metrics.user.isin(keeps)],
                local.metrics[~local.metrics.user.isin(keeps)],
            ]
            found.append(replace(frozen, setting="decided", metrics=pd.concat(metrics)))
    return found


def decisions_in_words(decisions: pd.DataFrame) -> str:
    """A line a user of one run's :func:`decisions`: to whom it listens, whether it keeps a copy,
    and its veto.
    """
    return "\n".join(
        f"user {row.user} listens to {row.listens_to or 'nobody'} and keeps"
        f" {'a' if row.keeps_a_copy else 'no'} copy of itself"
        + "; it vetoes its alignment"
        * row.vetoes
        for row in decisions.itertuples()
    )


def quality(histories: Sequence[History]) -> dict[int, float]:
    """One-shot accuracy of each user's checkpoint in per cent, by user; empty where
    ``shipped_one_shot`` has none.
    """
    settings, shots = histories[0].settings, shipped_one_shot(histories)
    return (
        {user.number: shots[settings.backbones[user.model]] for user in settings.members}
        if shots
        else {}
    )


def user_by_user(histories: Sequence[History], pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Differences between arms for each user on the same seeds, with p-values that are corrected
    for the number of all of them.

    Args:
        pairs: of arms, the first minus the second; a pair of which one is missing is left out.

    Returns:
        public, user, model, task, metric, a, b, difference (points), std, n_seeds, ci_low, ci_high,
        p (Student's t over seeds, two-sided, corrected by Holm 1979; NaN on one seed, and where all
        seeds have the same difference; 1 if that is 0).
    """
    return _tested(paired_differences(scores(histories), pairs, USER, "value"))


def delta_by_pair(histories: Sequence[History], pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """:func:`user_by_user` of Delta over all users: public, a, b, difference (points), std,
    n_seeds, ci_low, ci_high, p.
    """
    return _tested(paired_differences(delta_by_seed(histories), pairs, ["public"], "delta"))


def _tested(rows: pd.DataFrame) -> pd.DataFrame:
    t = rows.difference.abs() / (rows["std"].where(rows["std"] > _SAME) / (rows.n_seeds - 1) ** 0.5)
    p = pd.Series(2 * student.sf(t, rows.n_seeds - 1), rows.index).mask(
        (rows.difference == 0) & (rows["std"] == 0), 1.0
    )
    return rows.assign(p=holm(p, len(rows)))


def users_beside(rows: pd.DataFrame) -> pd.DataFrame:
    """What :func:`user_by_user` or ``honest_users`` found, a pair a row and a user a column; a star
    says that p < ``claims.LEVEL``.
    """
    cells = [
        with_interval(row.difference, row.ci_low, row.ci_high, digits=1)
        + " *" * bool(row.p < LEVEL)
        for row in rows.itertuples()
    ]
    pair = rows.a.map(label) + " − " + rows.b.map(label)
    found = rows.assign(cell=cells, points=pair)
    return wide(
        found, [name for name in ("lie", "points") if name in found], ["user", "model", "task"]
    )


def _measured(histories: Sequence[History]) -> list[tuple[History, dict[tuple[int, str], float]]]:
    """The runs that measured who listens to whom, each with its last values by user and measure."""
    return [
        (history, {(row.user, row.measure): row.value for row in history.measures.itertuples()})
        for history in histories
        if (history.measures.measure == _KEEPS).any()
    ]
