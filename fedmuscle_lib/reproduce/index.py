"""The index page of a folder of notebooks' results, from what lies there and nothing else."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmuscle_lib.core.errors import DataError, line_of, shown
from fedmuscle_lib.core.files import read_bytes, read_json, write
from fedmuscle_lib.core.notebooks import FIGURES, OUTCOME, PROVENANCE, fits, runs_of
from fedmuscle_lib.core.ownership import refuse_other_file

if TYPE_CHECKING:
    import pandas as pd

_MOMENTS = {
    "after_alignment": "After the last alignment",
    "after_local": "After the last local update",
}
_TEMPLATE = Path(__file__).with_name("index.html.j2")
START = _TEMPLATE.read_bytes().partition(b"{{")[0]  # of every page


@dataclass(frozen=True)
class Made:
    """The origin of a notebook's results: who made them, and when.

    Attributes:
        state: "shipped" (every run came with the repository), "computed here", "missing" (a run is
            not stored), "failed" or, on the page, "unreadable".
        when: the newest run was finished or, where no run is named, the notebook was executed, in
            UTC; empty if unknown.
        runs: how many runs stand behind the results, by origin, such as "28 shipped, 2 computed";
            empty if none is named.
    """

    state: str
    when: str
    runs: str


def made(entry: Path) -> Made:
    """Read who made the results in ``entry`` from its ``result.json`` (of an execution) and
    ``provenance.json`` (of its runs).

    Raises:
        DataError: naming the one that can't be read or says something else.
    """
    with _blamed(path := entry / OUTCOME):
        result = _read(path)
        executed = _minute(result.get("finished", ""))
    if result.get("failure") or result.get("missing"):
        return Made("failed" if result.get("failure") else "missing", executed, "")
    with _blamed(path := entry / PROVENANCE):
        provenance, runs = _read(path), runs_of(entry)
        when = _minute(max(run["finished"] for run in runs)) if runs else executed
    origins = [run.get("origin", "computed") for run in runs]
    shipped = provenance.get("shipped") or (runs and all(origin == "shipped" for origin in origins))
    counts = ", ".join(
        f"{origins.count(origin)} {origin}"
        for origin in ("shipped", "computed")
        if origin in origins
    )
    return Made(
        "shipped" if shipped else "computed here",
        when,
        f"{len(runs)} shipped" if shipped and runs else counts,
    )


def index(folder: Path) -> Path:
    """Write ``<folder>/index.html``: a section for each notebook's folder below it, which says so
    where a file of it can't be read.

    Raises:
        NotOurs: another page lies in its place.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    entries = sorted(
        path
        for path in folder.iterdir()
        if any(os.path.exists(path / name) for name in (OUTCOME, "table.csv"))
    )
    refuse_other_file(page := folder / "index.html", START)
    text = environment.get_template(_TEMPLATE.name).render(
        profile=folder.name, sections=[_section(entry) for entry in entries]
    )
    write(page, text.encode("utf8", "replace").decode("utf8"))  # JSON can hold half a character
    return page


def _section(entry: Path) -> dict[str, Any]:
    """Return what the template shows of one notebook, or why it shows nothing."""
    try:
        return _contents(entry)
    except DataError as error:
        return {
            "name": entry.name,
            "made": Made("unreadable", "", ""),
            "time": "",
            "title": "",
            "verdict": "",
            "reason": str(error),
        }


def _contents(entry: Path) -> dict[str, Any]:
    """Return what the template shows of a readable one. Other files beside a failed or missing one
    are of an earlier run; it shows none.

    What made the numbers is what their provenance says. An execution of other seeds, after which
    somebody drew them again, is not shown.
    """
    by, result, provenance = made(entry), _read(entry / OUTCOME), _read(entry / PROVENANCE)
    done = by.state not in ("missing", "failed")
    with _blamed(entry / OUTCOME):
        if (seconds := result.get("seconds")) is not None and not fits(seconds, "float"):
            raise DataError(f"its seconds are {shown(seconds)}, not a number")
        given = result.get("parameters", {})
        seeds = sorted({run["settings"]["seed"] for run in runs_of(entry) if "settings" in run})
        executed = not (seeds and "seeds" in given) or sorted(given["seeds"]) == seeds
        time = f"{seconds:.0f} s" if seconds is not None and (executed or not done) else ""
    origin = provenance.get("command", "") if done else ""
    pages = ["executed.html", "README.md", "executed.ipynb"] if executed else []
    files = (
        [*pages, *sorted(path.name for path in entry.glob("*.csv"))]
        if done
        else ["executed.part.ipynb"]
    )
    return {
        "name": entry.name,
        "made": by,
        "time": time,
        "verdict": _verdict(entry, by),
        "title": _title(claim := _claim(entry)),
        "claim": claim,
        "origin": origin or (json.dumps(given) if given else ""),
        "reason": result.get("failure") or result.get("missing") or "",
        "tables": _tables(entry) if done else [],
        "figures": sorted(path.stem for path in entry.glob("*.svg")) if done else [],
        "departures": _departures(entry) if done else "",
        "files": [name for name in files if (entry / name).exists()],
    }


def _verdict(entry: Path, by: Made) -> str:
    """The verdicts on the paper's claims that the notebook's tables decide: the folder's own or, of
    shipped runs, the reference's.
    """
    from fedmuscle_lib.report.claims import words

    own = entry.parent / "claims" / "claims.csv"
    with _blamed(own):
        return (
            words(entry.parent)
            or (words(FIGURES / entry.parent.name) if by.state == "shipped" else {})
        ).get(entry.name, "")


def _title(claim: str) -> str:
    found = re.search(r"<h1[^>]*>(.*?)(<a|</h1>)", claim)
    return html.unescape(found[1]) if found else ""


def _claim(entry: Path) -> str:
    """The notebook's first cell as HTML: its title, with the world, so that one notebook's results
    are told apart, and what it claims.
    """
    import nbformat
    from nbconvert.filters import markdown2html

    from fedmuscle_lib.report import world_in_words

    for name in ("executed.ipynb", "executed.part.ipynb"):
        if (path := entry / name).exists():
            with _blamed(path):
                cells = nbformat.reads(read_bytes(path).decode("utf8"), as_version=4).cells
                text = next(
                    (
                        cell.source
                        for cell in cells
                        if cell.cell_type == "markdown" and cell.source[:2] == "# "
                    ),
                    "",
                )
                title, _, rest = text.partition("\n")
                return markdown2html(f"{title} ({world_in_words(entry)})\n{rest}") if text else ""
    return f"<h1>{html.escape(entry.name)}</h1>"


def _tables(entry: Path) -> list[tuple[str, str]]:
    """Caption and HTML of the table of each moment that there are CSV files of, and of a notebook's
    own ``overview.csv``.
    """
    from fedmuscle_lib import report

    found = []
    if (overview := entry / "overview.csv").exists():
        found.append(
            (
                "Overview",
                _frame(overview, dtype=str, keep_default_na=False).to_html(border=0, index=False),
            )
        )
    for phase in (report.HEADLINE, report.OTHER_MOMENT):
        paths = [entry / report.file_of(name, phase) for name in ("table", "delta")]
        if all(path.exists() for path in paths):
            tables = [_frame(path) for path in paths]
            with _blamed(*paths):
                if (
                    not tables[1].duplicated(["public", "algorithm"]).any()
                ):  # else an ablation's, whose overview has its points
                    found.append(
                        (
                            f"{_MOMENTS[phase]}: ours, and below it the paper's",
                            report.side_by_side(*tables).page(),
                        )
                    )
    return found


def _departures(entry: Path) -> str:
    path = entry / "departures.csv"
    return (
        _frame(path, keep_default_na=False).to_html(border=0, index=False) if path.exists() else ""
    )


@contextmanager
def _blamed(*paths: Path) -> Iterator[None]:
    """Whatever goes wrong inside is a DataError that names the files, as they lie beside the page,
    and says why in one line.
    """
    try:
        yield
    except Exception as error:  # a reader's errors depend on the damage
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        names = " or ".join(f"{path.parent.name}/{path.name}" for path in paths)
        raise DataError(f"{names} ({line_of(reason.removeprefix(f'{paths[0]}: '))})") from None


def _frame(path: Path, **options: Any) -> pd.DataFrame:
    """A CSV file's table, as ``pd.read_csv`` reads it with these options; a pipe would be waited
    for there.
    """
    import pandas as pd

    with _blamed(path):
        return pd.read_csv(BytesIO(read_bytes(path)), **options)


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _minute(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC" if moment else ""
