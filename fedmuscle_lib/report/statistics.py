"""Numbers and their intervals as text, and tables of them laid out for reading."""

from __future__ import annotations

import pandas as pd


def interval(low: float, high: float, digits: int = 2) -> str:
    """Such as [+1.02, +2.50]."""
    return f"[{low:+.{digits}f}, {high:+.{digits}f}]"


def with_interval(value: float, low: float, high: float, digits: int = 2) -> str:
    """Such as "+1.76 [+1.02, +2.50]", or "+1.76" if there is no interval."""
    if pd.isna(value):
        return "undefined: a local metric is 0"
    return f"{value:+.{digits}f}" + (f" {interval(low, high, digits)}" if pd.notna(low) else "")


def with_intervals(
    rows: pd.DataFrame, value: str, low: str = "ci_low", high: str = "ci_high"
) -> list[str]:
    """:func:`with_interval` of each row, by the names of its columns."""
    return [with_interval(*cell) for cell in rows[[value, low, high]].to_numpy()]


def wide(rows: pd.DataFrame, index: str | list[str], columns: str | list[str]) -> pd.DataFrame:
    """The texts ``cell`` of the rows laid out for reading, in the order in which they come."""
    return rows.pivot_table(
        index=index, columns=columns, values="cell", aggfunc="first", sort=False
    )


def wide_intervals(
    rows: pd.DataFrame, value: str, index: str | list[str], columns: str
) -> pd.DataFrame:
    """:func:`wide` with each row's ``value`` and its interval in a cell; the columns have no
    heading of their own.
    """
    return wide(rows.assign(cell=with_intervals(rows, value)), index, columns).rename_axis(
        columns=None
    )


def with_std(mean: float, std: float, digits: int = 1) -> str:
    """Such as "61.4 ± 0.8", or "61.4" if there is no deviation."""
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if pd.notna(std) else "")


def markdown(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = (f"|{'|'.join(row)}|" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def beside(value: float, form: str) -> str:
    """What stands behind our number in a cell: " | " and another's, in the form of a format string;
    nothing where there is none.
    """
    return "" if pd.isna(value) else f" | {value:{form}}"
