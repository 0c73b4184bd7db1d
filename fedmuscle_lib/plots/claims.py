"""The ledger of claims."""

from __future__ import annotations

from textwrap import fill

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import Look, forest, housed, legend

_VERDICTS: dict[str, Look] = {
    "reproduced": ("#009E73", "o"),
    "contradicted": ("#D55E00", "X"),
    "undecided": ("#777777", "s"),
    "untested": ("#AAAAAA", "d"),
}

_LETTERS = 44  # of a line of text


@housed
def claims(rows: pd.DataFrame) -> Figure:
    """A line a claim that was run: the contrast that decides it, with its 95 % interval, in the
    colour of the verdict; a panel a unit.

    The legend has the verdicts that there are.

    Args:
        rows: as ``report.claims.decided`` returns them.
    """
    rows = rows[rows.verdict != "not run"]
    lines = [
        fill(f"{row.claim} ({row.where.replace(' ', chr(0xA0))})", _LETTERS)
        for row in rows.itertuples()
    ]
    rows = rows.assign(panel=rows.unit, line=lines, arm=rows.verdict, value=rows.difference)
    figure = forest(rows, _VERDICTS, share=False)
    for ax in figure.axes:
        ax.set_title("")
    legend(
        figure,
        "upper center",
        {verdict: look for verdict, look in _VERDICTS.items() if verdict in set(rows.verdict)},
    )
    return figure
