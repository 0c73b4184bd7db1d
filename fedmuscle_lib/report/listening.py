"""Directed peers: who listens to whom, what each user decided, and who is better or worse off by
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd
from scipy.stats import t as student

from fedmuscle_lib.fedmuscle.arms import HEADLINE, label
from fedmuscle_lib.report.claims import LEVEL, holm
from fedmuscle_lib.report.frame import delta, last, paired
from fedmuscle_lib.report.statistics import wide, with_interval
from fedmuscle_lib.report.tables import USER, ends, tidy
from fedmuscle_lib.runs.history import History

_KEEPS, _LISTENS = "keeps a copy", "listens to "  # measures of ``algorithms.directed``
_SAME = 1e-9  # points; a deviation up to here is rounding, and no t test exists


def decisions(histories: Sequence[History]) -> pd.DataFrame:
    """What each user decided in every run in which there was something to decide.

    Returns:
        algorithm, seed, user, model, task, listens_to (peers, with commas between them),
        keeps_a_copy.
    """
    rows = []
    for history in histories:
        if not (history.measures.measure == _KEEPS).any():
            continue
        for user in history.settings.members:
            measures = history.measures[history.measures.user == user.number]
            true = measures[measures.value == 1].measure
            peers = true[true.str.startswith(_LISTENS)].str.removeprefix(_LISTENS)
            rows.append(
                {
                    "algorithm": history.arm,
                    "seed": history.settings.seed,
                    "user": user.number,
                    "model": user.model,
                    "task": user.task,
                    "listens_to": ", ".join(peers),
                    "keeps_a_copy": (true == _KEEPS).any(),
                }
            )
    return pd.DataFrame(rows)


def decisions_in_words(decisions: pd.DataFrame) -> str:
    """A line a user of one run's :func:`decisions`."""
    return "\n".join(
        f"user {row.user} listens to {row.listens_to or 'nobody'} and keeps"
        f" {'a' if row.keeps_a_copy else 'no'} copy of itself"
        for row in decisions.itertuples()
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
    return _tested(paired(last(tidy(histories), HEADLINE), pairs, ["public", *USER], "value"))


def delta_by_pair(histories: Sequence[History], pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """:func:`user_by_user` of Delta over all users: public, a, b, difference (points), std,
    n_seeds, ci_low, ci_high, p.
    """
    values = delta(ends(tidy(histories)), ["public", "algorithm"])
    return _tested(paired(values, pairs, ["public"], "delta"))


def _tested(rows: pd.DataFrame) -> pd.DataFrame:
    t = rows.difference.abs() / (rows["std"].where(rows["std"] > _SAME) / (rows.n_seeds - 1) ** 0.5)
    p = pd.Series(2 * student.sf(t, rows.n_seeds - 1), rows.index).mask(
        (rows.difference == 0) & (rows["std"] == 0), 1.0
    )
    return rows.assign(p=holm(p))


def users_beside(rows: pd.DataFrame) -> pd.DataFrame:
    """What :func:`user_by_user` found, a pair a row and a user a column; a star says that p <
    ``claims.LEVEL``.
    """
    cells = [
        with_interval(row.difference, row.ci_low, row.ci_high, digits=1)
        + " *" * bool(row.p < LEVEL)
        for row in rows.itertuples()
    ]
    pair = rows.a.map(label) + " − " + rows.b.map(label)
    found = rows.assign(cell=cells, points=pair)
    return wide(found, ["points"], ["user", "model", "task"])
