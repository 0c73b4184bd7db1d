"""The ledger of claims."""

from __future__ import annotations

from textwrap import fill

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import Look, forest, housed, legend

_WORDS: dict[str, Look] = {
    "holds": ("#009E73", "o"),
    "opposite": ("#D55E00", "X"),
    "no difference": ("#0072B2", "D"),
    "open": ("#777777", "s"),
}

_LETTERS = 44  # of a line of text


@housed
def claims(rows: pd.DataFrame) -> Figure:
    """A line a claim that has a word: the contrast that decides it, with its 95 % interval, in the
    colour of the word; a panel a unit.

    Args:
        rows: as ``report.claims.decided`` returns them.
    """
    rows = rows[rows.word.isin(_WORDS)]
    lines = [
        fill(f"{row.claim} ({row.where.replace(' ', chr(0xA0))})", _LETTERS)
        for row in rows.itertuples()
    ]
    rows = rows.assign(panel=rows.unit, line=lines, arm=rows.word, value=rows.difference)
    figure = forest(rows, _WORDS, share=False)
    for ax in figure.axes:
        ax.set_title("")
    there = {word: look for word, look in _WORDS.items() if word in set(rows.word)}
    legend(figure, "upper center", there)
    return figure
