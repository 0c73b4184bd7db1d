"""Which runs the notebooks need, which of them are stored, and how long the others would take.

What a notebook needs is read from the notebook itself: its statements are followed as far as they ask for runs, and nothing is computed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import partial
from math import isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from fedmuscle_lib.reproduce.plan import NOTEBOOKS, select

if TYPE_CHECKING:
    import pandas as pd

    from fedmuscle_lib.runs import RunSettings, Store

_RUNNER = re.compile(r"run(_\w+)?")  # names of the library's functions that ask for runs
_DRAWN = {"seed", "public"}  # settings that hardly change what a run costs


def needs(profiles: Iterable[str], folder: Path = NOTEBOOKS, store: Store | None = None) -> pd.DataFrame:
    """Count the runs that each notebook of ``folder`` needs with its own parameters.

    Args:
        store: by default ``default_store()``.

    Returns:
        profile, notebook, runs, shipped, computed (here), minutes (of all its runs, one after the other) and minutes_left (of those that
        are not stored). A stored run takes as long as it took; another takes as long as the median of the stored ones that differ from it
        in seed and public set alone. NaN where there is none, and for a notebook that can't run in this profile.
        Notebooks that ask for no runs are left out.
    """
    import pandas as pd

    from fedmuscle_lib.runs import default_store

    stock = _Stock(store or default_store())
    rows = [
        {"profile": profile, "notebook": path.stem} | ({} if asked is None else stock.counts(asked))
        for profile in profiles
        for path in select(None, folder)
        if (asked := asked_for(path, profile=profile)) != []
    ]
    return pd.DataFrame(rows, columns=["profile", "notebook", "runs", "shipped", "computed", "minutes", "minutes_left"])


def needs_in_words(counts: pd.DataFrame) -> str:
    """Lay :func:`needs` out as a Markdown table with a row a notebook and a column a profile, for a notebook beside these."""
    profiles = list(dict.fromkeys(counts.profile))
    cells = counts.assign(cell=[_told(row) for row in counts.itertuples()])
    wide = cells.pivot_table(index="notebook", columns="profile", values="cell", aggfunc="first", sort=False)
    lines = [["notebook", *(f"`{profile}`" for profile in profiles)], ["---"] * (1 + len(profiles))]
    lines += [[f"[{name}]({name}.ipynb)", *wide.loc[name, profiles]] for name in wide.index]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _told(row: Any) -> str:
    """Such as "19 runs, 217 min: 15 shipped, 4 to compute in 49 min"."""
    if isnan(row.runs):
        return "can't run in this profile"
    left = row.runs - row.shipped - row.computed
    to_compute = "to compute" + ("" if isnan(row.minutes_left) else f" in {_minutes(row.minutes_left)}")
    counts = {"shipped": row.shipped, "computed here": row.computed, to_compute: left}
    whole = "" if isnan(row.minutes) else f", {_minutes(row.minutes)}"
    return f"{row.runs:.0f} runs{whole}: " + ", ".join(f"{count:.0f} {text}" for text, count in counts.items() if count)


def _minutes(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes >= 1 else "under a minute"


def asked_for(path: Path, **parameters: Any) -> list[RunSettings] | None:
    """The runs that a notebook asks for; None if it can't, such as for settings that no run can have.

    Args:
        parameters: in place of those that the notebook declares.
    """
    import nbformat

    from fedmuscle_lib.runs import asked_by

    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    names: dict[str, Any] = {}
    asked: list[RunSettings] = []
    for statement in _asking(cells):
        code = compile(ast.Module([statement], []), str(path), "exec")
        try:
            asked += asked_by(partial(exec, code, names))
        except Exception:  # a reader's notebook may be wrong in any way
            return None
        names |= {name: value for name, value in parameters.items() if name in names}
    return asked


def _asking(cells: Iterable[str]) -> list[ast.stmt]:
    """The statements that call a function that asks for runs and, before them, those that bind the names that these use."""
    kept: list[ast.stmt] = []
    used: set[str] = set()
    for statement in reversed([statement for cell in cells for statement in _statements(cell)]):
        nodes = list(ast.walk(statement))
        if any(map(_asks, nodes)) or used & set(_bound(nodes)):
            kept.append(statement)
            used |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return kept[::-1]


def _statements(cell: str) -> list[ast.stmt]:
    """A cell's statements; none of one with a magic, which is no Python."""
    try:
        return ast.parse(cell).body
    except SyntaxError:
        return []


def _asks(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return bool(_RUNNER.fullmatch(name))


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


class _Stock:
    """What is stored, read once."""

    def __init__(self, store: Store) -> None:
        records = {entry.address: record for entry in store.entries() if (record := entry.read())}
        self._store = store
        self._questions = {address.partition("-")[0] for address in records}
        self._took = [(record.provenance.get("settings", {}), record.provenance["seconds"]) for record in records.values()]
        self._found: dict[str, tuple[str, float]] = {}  # by question

    def counts(self, runs: Iterable[RunSettings]) -> dict[str, float]:
        """The numbers of one row of :func:`needs`."""
        from fedmuscle_lib.runs.address import question_of

        found = {question: self._look(question, settings) for settings in runs if (question := question_of(settings))}.values()
        origins = [origin for origin, _ in found]
        return {
            "runs": len(origins),
            "shipped": origins.count("shipped"),
            "computed": origins.count("computed"),
            "minutes": sum(seconds for _, seconds in found) / 60,
            "minutes_left": sum(seconds for origin, seconds in found if not origin) / 60,
        }

    def _look(self, question: str, settings: RunSettings) -> tuple[str, float]:
        """Whose the stored run is, empty if there is none, and its seconds or those of one like it."""
        from fedmuscle_lib.runs import stored

        if question not in self._found:
            history = stored(settings, self._store) if question in self._questions else None
            self._found[question] = (history.origin, history.provenance["seconds"]) if history else ("", self._like(settings))
        return self._found[question]

    def _like(self, settings: RunSettings) -> float:
        """Seconds of a run like this one: the median of those that were measured, or NaN."""
        own = settings.recorded()
        took = [seconds for said, seconds in self._took if said and all(said[name] == own.get(name) for name in said.keys() - _DRAWN)]
        return median(took) if took else float("nan")
