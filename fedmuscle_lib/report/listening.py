"""Directed peers: who predicts whom, who listens to whom, and what each user decided."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fedmuscle_lib.report.statistics import over_seeds
from fedmuscle_lib.runs.history import History

_KEEPS, _GAIN = "keeps a copy", "gain in rehearsal"  # measures of ``algorithms.directed``
_RUN = ["algorithm", "seed", "user"]


def listening(histories: Sequence[History]) -> pd.DataFrame:
    """Every pair of users of every run that measured it.

    Returns:
        algorithm, seed, user, peer, r2 (how well the peer's representations predict the user's), r2_back (the other way round), listens
        (whether the user listens to the peer).
    """
    rows = []
    for history, of in _measured(histories):
        users = [user.number for user in history.settings.members]
        for user, peer in ((n, m) for n in users for m in users if n != m):
            r2 = {"r2": of[user, f"R2 from {peer}"], "r2_back": of[peer, f"R2 from {user}"]}
            about = {"algorithm": history.arm, "seed": history.settings.seed, "user": user, "peer": peer}
            rows.append(about | r2 | {"listens": bool(of[user, f"listens to {peer}"])})
    return pd.DataFrame(rows)


def decisions(histories: Sequence[History]) -> pd.DataFrame:
    """What each user decided in every run in which there was something to decide.

    Returns:
        algorithm, seed, user, model, task, listens_to (peers, with commas between them), keeps_a_copy, gain_in_rehearsal (points of its
        metric, the mean over rehearsals), ci_low, ci_high (over rehearsals: half of their distance is the least loss that a user can
        see). The last three are NaN where there are too few rehearsals.
    """
    heard = listening(histories)
    rows, gains = [], []
    for history, of in _measured(histories):
        for user in history.settings.members:
            mine = heard[(heard.algorithm == history.arm) & (heard.seed == history.settings.seed) & (heard.user == user.number)]
            run = {"algorithm": history.arm, "seed": history.settings.seed, "user": user.number}
            peers = ", ".join(map(str, mine.peer[mine.listens]))
            decided = {"listens_to": peers, "keeps_a_copy": bool(of[user.number, _KEEPS])}
            rows.append({**run, "model": user.model, "task": user.task, **decided})
            gains += [{**run, "gain": value} for (n, measure), value in of.items() if n == user.number and measure.startswith(_GAIN)]
    if not rows:
        return pd.DataFrame()
    rehearsed = over_seeds(pd.DataFrame(gains, columns=[*_RUN, "gain"]), _RUN, "gain").rename(columns={"mean": "gain_in_rehearsal"})
    return pd.DataFrame(rows).merge(rehearsed[[*_RUN, "gain_in_rehearsal", "ci_low", "ci_high"]], "left", _RUN)


def _measured(histories: Sequence[History]) -> list[tuple[History, dict[tuple[int, str], float]]]:
    found = [(history, history.measures) for history in histories]
    return [
        (history, {(row.user, row.measure): row.value for row in measures.itertuples()})
        for history, measures in found
        if (measures.measure == _KEEPS).any()
    ]
