"""Tidy tables laid out for reading, as the paper prints them: "ours | paper" in a cell, intervals
in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.fedmuscle.arms import added, label
from fedmuscle_lib.report.statistics import beside, wide, with_intervals, with_std
from fedmuscle_lib.report.tables import USER
from fedmuscle_lib.tasks import direction

ORIGINS = ("the paper's algorithms", "controls and ours")
_REFERENCES = {"trivial": "Trivial answer", "tfidf": "TF-IDF"}


class SideBySide(pd.DataFrame):
    """A table of "ours | the paper's" cells, which pages show as two lines."""

    def page(self) -> str:
        """Return HTML in which names wrap but no value, Delta is bold and the paper's value is a
        second, smaller and grey line.

        Public sets and kinds of algorithms are lines across the table, so that a narrow screen
        shows algorithms and Delta.
        """
        head, body = self.droplevel(["public", "kind"]).to_html(border=0).split("<tbody>")
        head = re.sub(r"    <tr[^>]*>\s*<th>algorithm</th>(\s*<th></th>)*\s*</tr>\n", "", head)
        rows, groups = (
            re.findall(r"    <tr>.*?</tr>\n", body, re.DOTALL),
            self.index.droplevel("algorithm"),
        )
        for i in reversed(
            [i for i, group in enumerate(groups) if i == 0 or group != groups[i - 1]]
        ):
            rows.insert(
                i,
                f'    <tr><th colspan="{self.shape[1] + 1}"'
                f' align="left">{": ".join(groups[i])}</th></tr>\n',
            )
        text = f"{head}<tbody>\n{''.join(rows)}  </tbody>\n</table>"
        text = re.sub(
            r"<td>([^<|]*?)(?: \| ([^<]*))?</td>", _lines, text.replace(", for ", ",<br>for ")
        )
        first = re.sub(r"(?<=</th>)(\s*<td>)(.*?)(?=<br>|</td>)", r"\1<b>\2</b>", text)
        return first.replace("<td>", "<td nowrap>")

    _repr_html_ = page


def side_by_side(
    table: pd.DataFrame,
    delta: pd.DataFrame,
    references: pd.DataFrame | None = None,
    models: Mapping[str, str] | None = None,
) -> SideBySide:
    """Tidy tables laid out for reading: a row an algorithm, Delta in the first column and a user in
    each other, "ours | paper" in a cell.

    Where there is tuned local training, another column has Delta over that. The rows have three
        levels: the public set, what kind the
    algorithm is, and its name. The paper's algorithms come first, controls and ours after them, and
    last what ``report.references`` gives. What was not run on a public set has no row there.

    Args:
        models: as ``report.models`` returns them.
    """
    users = table.assign(
        cell=[_cell(r.mean, r.std, r.paper_mean, r.paper_std) for r in table.itertuples()]
    )
    users["metric"] = users.metric.map(with_unit)
    every = wide(users.replace({"model": dict(models or {})}), ["public", *USER], "algorithm")
    blocks = {}
    for public, block in every.groupby(level="public", sort=False):
        deltas = _delta_rows(delta[delta.public == public].set_index("algorithm"))
        deltas.index = pd.MultiIndex.from_tuples(
            [(name, "", "", "") for name in deltas.index], names=USER
        )
        found = pd.concat(
            [deltas.reindex(columns=every.columns), block.droplevel("public")]
        ).fillna("")[sorted(every.columns, key=added)]
        found = found.set_axis(
            pd.MultiIndex.from_tuples([(ORIGINS[added(name)], label(name)) for name in found]),
            axis="columns",
        )
        for name, reached in (
            () if references is None else references.groupby("reference", sort=False)
        ):
            cells = {r.user: with_std(r.mean, r.std) for r in reached.itertuples()}
            found["without a backbone", _REFERENCES[name]] = [
                cells.get(user, "") for user in found.index.get_level_values("user")
            ]
        blocks[NAMES.get(public, public)] = found.T[found.ne("").any()]
    return SideBySide(pd.concat(blocks, names=["public", "kind", "algorithm"]))


def with_unit(metric: str) -> str:
    """Such as "accuracy (%)"; a perplexity has no unit."""
    return metric + " (%)" * (direction(metric) > 0)


def _lines(cell: re.Match[str]) -> str:
    return (
        f"<td>{cell[1]}"
        + (f'<br><sub style="color: grey">{cell[2]}</sub>' if cell[2] else "")
        + "</td>"
    )


def _delta_rows(deltas: pd.DataFrame) -> pd.DataFrame:
    """A row for Delta, and one for Delta over tuned local training if there is any; a column an
    algorithm.
    """
    both = zip(
        with_intervals(deltas, "delta"),
        deltas.reindex(columns=["paper_delta"]).paper_delta,
        strict=True,
    )
    rows = {"Δ (%)": [ours + beside(theirs, "+.2f") for ours, theirs in both]}
    if "delta_tuned" in deltas and deltas.delta_tuned.notna().any():
        rows["Δ over tuned (%)"] = with_intervals(
            deltas, "delta_tuned", "ci_low_tuned", "ci_high_tuned"
        )
    return pd.DataFrame(rows, index=deltas.index).T


def _cell(mean: float, std: float, paper_mean: float, paper_std: float) -> str:
    ours = with_std(mean, std)
    return ours if pd.isna(paper_mean) else f"{ours} | {with_std(paper_mean, paper_std, digits=2)}"
