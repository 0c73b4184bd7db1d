"""Directed peers: who predicts whom, who listens to whom, and what each user decided."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fedmuscle_lib.runs.history import History

_KEEPS, _GAIN = "keeps a copy", "gain in rehearsal"  # measures of ``algorithms.directed``


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
        algorithm, seed, user, model, task, listens_to (peers, with commas between them), keeps_a_copy, gain_in_rehearsal (points of
        its metric, NaN without a rehearsal).
    """
    heard = listening(histories)
    rows = []
    for history, of in _measured(histories):
        for user in history.settings.members:
            mine = heard[(heard.algorithm == history.arm) & (heard.seed == history.settings.seed) & (heard.user == user.number)]
            about = {"algorithm": history.arm, "seed": history.settings.seed, "user": user.number, "model": user.model, "task": user.task}
            peers = {"listens_to": ", ".join(map(str, mine.peer[mine.listens]))}
            own = {"keeps_a_copy": bool(of[user.number, _KEEPS]), "gain_in_rehearsal": of.get((user.number, _GAIN), float("nan"))}
            rows.append(about | peers | own)
    return pd.DataFrame(rows)


def _measured(histories: Sequence[History]) -> list[tuple[History, dict[tuple[int, str], float]]]:
    found = [(history, history.measures) for history in histories]
    return [
        (history, {(row.user, row.measure): row.value for row in measures.itertuples()})
        for history, measures in found
        if (measures.measure == _KEEPS).any()
    ]
