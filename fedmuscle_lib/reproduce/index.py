"""The index page of a folder of notebooks' results, from what lies there and nothing else."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmuscle_lib.documents import read_json
from fedmuscle_lib.reproduce.children import write

_MOMENTS = {"after_alignment": "After the last alignment", "after_local": "After the last local update"}
_UNFINISHED = ("missing", "failed")


@dataclass(frozen=True)
class Made:
    """Who made a notebook's results, and when.

    Attributes:
        state: "shipped" (every run came with the repository), "computed here", "missing" (a run is not stored) or "failed".
        when: the newest run was finished or, where no run is named, the notebook was executed, in UTC; empty if unknown.
        runs: how many runs stand behind the results, by origin, such as "28 shipped, 2 computed"; empty if none is named.
    """

    state: str
    when: str
    runs: str


def made(entry: Path) -> Made:
    """Read who made the results in ``entry`` from its ``result.json`` (of an execution) and ``provenance.json`` (of its runs)."""
    result, provenance = _read(entry / "result.json"), _read(entry / "provenance.json")
    if result.get("failure") or result.get("missing"):
        return Made("failed" if result.get("failure") else "missing", _minute(result.get("finished", "")), "")
    runs = provenance.get("runs", [])
    origins = [run.get("origin", "computed") for run in runs]
    when = max((run["finished"] for run in runs), default=result.get("finished", ""))
    shipped = provenance.get("shipped") or (runs and set(origins) == {"shipped"})
    counts = ", ".join(f"{origins.count(origin)} {origin}" for origin in ("shipped", "computed") if origin in origins)
    return Made("shipped" if shipped else "computed here", _minute(when), f"{len(runs)} shipped" if shipped and runs else counts)


def index(folder: Path) -> Path:
    """Write ``<folder>/index.html``: a section for each notebook's folder below it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    entries = sorted(path for path in folder.iterdir() if (path / "result.json").exists() or (path / "table.csv").exists())
    page = folder / "index.html"
    write(page, environment.get_template("index.html.j2").render(profile=folder.name, sections=[_section(entry) for entry in entries]))
    return page


def _section(entry: Path) -> dict[str, Any]:
    """What the template shows of one notebook. What else lies beside a failed or missing one is of an earlier run, and is not shown."""
    result, by = _read(entry / "result.json"), made(entry)
    done = by.state not in _UNFINISHED
    files = ["executed.html", "executed.ipynb", *sorted(path.name for path in entry.glob("*.csv"))] if done else ["executed.part.ipynb"]
    return {
        "name": entry.name,
        "made": by,
        "seconds": result.get("seconds"),
        "claim": _claim(entry),
        "parameters": json.dumps(result["parameters"]) if result.get("parameters") else "",
        "reason": result.get("failure") or result.get("missing") or "",
        "tables": _tables(entry) if done else [],
        "figures": sorted(path.stem for path in entry.glob("*.png")) if done else [],
        "departures": _departures(entry) if done else "",
        "files": [name for name in files if (entry / name).exists()],
    }


def _claim(entry: Path) -> str:
    """The notebook's first cell as HTML: its title and what it claims."""
    import nbformat
    from nbconvert.filters import markdown2html

    for name in ("executed.ipynb", "executed.part.ipynb"):
        if (entry / name).exists():
            cells = nbformat.read(entry / name, as_version=4).cells
            return next((markdown2html(c.source) for c in cells if c.cell_type == "markdown" and c.source.startswith("# ")), "")
    return f"<h1>{html.escape(entry.name)}</h1>"


def _tables(entry: Path) -> list[tuple[str, str]]:
    """Caption and HTML of the table of each moment that there are CSV files of, and of a notebook's own ``overview.csv``."""
    import pandas as pd

    from fedmuscle_lib import report

    shown = []
    if (overview := entry / "overview.csv").exists():
        shown.append(("Overview", pd.read_csv(overview, dtype=str, keep_default_na=False).to_html(border=0, index=False)))
    for phase in (report.HEADLINE, report.OTHER_MOMENT):
        paths, caption = [entry / report.file_of(name, phase) for name in ("table", "delta")], f"{_MOMENTS[phase]}: ours | the paper's"
        if all(path.exists() for path in paths):
            shown.append((caption, report.side_by_side(*map(pd.read_csv, paths)).to_html(border=0)))
    return shown


def _departures(entry: Path) -> str:
    import pandas as pd

    path = entry / "departures.csv"
    if not path.exists():
        return ""
    with pd.option_context("display.max_colwidth", None):
        return pd.read_csv(path, keep_default_na=False).to_html(border=0, index=False)


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _minute(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC" if moment else ""
