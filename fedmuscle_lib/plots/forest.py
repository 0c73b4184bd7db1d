"""Deltas, or differences of Deltas, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core import style
from fedmuscle_lib.core.style import housed
from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.fedmuscle.arms import label
from fedmuscle_lib.plots.palette import styles


@housed
def forest(
    rows: pd.DataFrame,
    panel: str = "public",
    lines: Sequence[str] = (),
    unit: str = "Δ over local training (%)",
    share: bool = True,
) -> Figure:
    """A line an arm, or a difference of two, with its 95 % interval; the paper's Delta is hollow.

    Args:
        rows: public, algorithm, delta, ci_low, ci_high and, where it is printed, paper_delta; or
            differences as ``frame.paired`` and ``tables.moved`` return them.
        panel: the column that has a panel for each of its values.
        lines: columns whose values name a line; by default the arms do.
        unit: of the axis.
        share: whether all panels have the same lines.
    """
    of_pairs = "a" in rows
    arms = rows.b if of_pairs else rows.get("algorithm", pd.Series("fedmuscle", rows.index))
    names = arms.map(label)
    if of_pairs:
        names = rows.a.map(label) + " − " + names
    if lines:
        names = rows[list(lines)].agg(
            lambda row: ", ".join(
                value if isinstance(value, str) else f"{name.replace('_', ' ')} = {value:g}"
                for name, value in row.items()
            ),
            axis="columns",
        )
    drawn = rows.assign(
        panel=rows[panel].replace(NAMES).astype(str), line=names, arm=arms, unit=unit
    )
    drawn["value"] = rows["difference" if "difference" in rows else "delta"]
    if "paper_delta" in rows and rows.paper_delta.notna().any():
        drawn["theirs"] = rows.paper_delta
    theirs, look = "the paper's" if "theirs" in drawn else "", styles(arms)
    figure = style.forest(drawn.dropna(subset="value"), look, share, theirs, clip=share)
    if lines and len(look) > 1:
        style.legend(figure, "upper center", {label(arm): each for arm, each in look.items()})
    return figure


def in_short(rows: pd.DataFrame) -> Figure:
    """``in_short.csv`` of the notebook ``controls``, one panel a question."""
    pairs = rows.rename(columns={"arm": "a", "over": "b"})
    return forest(pairs, panel="question", unit="points of Δ", share=False)
