"""Who listens to whom: an arrow from each peer to who listens to it, over how much each one's
checkpoint knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import HALO, housed

_LETTERS = 14  # of a line below a user


@housed
def listening(
    pairs: pd.DataFrame,
    decided: pd.DataFrame,
    models: Mapping[str, str] | None = None,
    quality: Mapping[int, float] | None = None,
) -> Figure:
    """One circle per user, filled if it keeps a copy of itself on most seeds, at its checkpoint's
    one-shot accuracy.

    Without accuracies a circle is at the mean R2 with which its user predicts others less theirs of
    it. An arrow is as wide as the share of seeds on which its user listens.

    Args:
        pairs: rows as ``report.listening`` returns them, of one arm.
        decided: rows as ``report.decisions`` returns them, of the same arm.
        models: as ``report.models`` returns them.
        quality: as ``report.quality`` returns it.
    """
    knows = quality or (pairs.r2 - pairs.r2_back).groupby(pairs.peer).mean()
    place = {user: (x, float(knows[user])) for x, user in enumerate(decided.user.unique())}
    figure, ax = plt.subplots(figsize=(0.85 * len(place) + 0.9, 3.6))
    for (peer, user), share in pairs.groupby(["peer", "user"]).listens.mean().items():
        if share:
            bend = 0.25 if place[peer][0] < place[user][0] else -0.25
            arrow = {
                "arrowstyle": "-|>",
                "connectionstyle": f"arc3,rad={bend}",
                "shrinkA": 8,
                "shrinkB": 8,
                "mutation_scale": 11,
            }
            ax.annotate(
                "",
                place[user],
                xytext=place[peer],
                arrowprops={**arrow, "color": "#0072B2", "alpha": 0.6, "linewidth": 2 * share},
            )
    keeps = decided.groupby("user").keeps_a_copy.mean()
    for user, (x, y) in place.items():
        ax.plot(
            x,
            y,
            "o",
            markersize=13,
            markeredgecolor="#333333",
            markerfacecolor="#E69F00" if keeps[user] > 0.5 else "white",
            zorder=3,
        )
        ax.annotate(str(user), (x, y), ha="center", va="center", fontsize=8, zorder=4)
    first = decided.drop_duplicates("user").set_index("user")
    called = {
        user: fill((models or {}).get(first.model[user], first.model[user]), _LETTERS)
        for user in place
    }
    ax.set_xticks(
        range(len(place)), [f"{called[user]}\n{first.task[user]}" for user in place], fontsize=7
    )
    height = (
        "one-shot accuracy of its checkpoint (%)"
        if quality
        else "R² of the others by it\nminus R² of it by them, mean"
    )
    ax.set(ylabel=height, xlim=(-0.6, len(place) - 0.4))
    ax.margins(y=0.15)
    ax.annotate(
        "filled: keeps a copy of itself on most seeds",
        (1, 1),
        xycoords="axes fraction",
        ha="right",
        va="top",
        fontsize=7.5,
        bbox=HALO,
    )
    return figure
