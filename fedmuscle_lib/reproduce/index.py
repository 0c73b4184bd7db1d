"""The index page of a folder of notebooks' results, from what lies there and nothing else."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.files import read_json, write
from fedmuscle_lib.core.notebooks import FIGURES, OUTCOME, PROVENANCE, runs_of
from fedmuscle_lib.core.ownership import refuse_other_file
from fedmuscle_lib.reproduce.pages import EXECUTED

_TEMPLATE = Path(__file__).with_name("index.html.j2")
START = _TEMPLATE.read_bytes().partition(b"{{")[0]  # of every page


def index(folder: Path) -> Path:
    """Write ``<folder>/index.html``: a section for each notebook's folder below it.

    Raises:
        DataError: a file there can't be read.
        NotOurs: another page lies in its place.
    """
    from jinja2 import Template

    refuse_other_file(page := folder / "index.html", START)
    files = [*folder.glob(f"*/{OUTCOME}"), *folder.glob(f"*/{PROVENANCE}")]
    entries = sorted({path.parent for path in files}, key=lambda entry: in_order(entry.name))
    text = Template(_TEMPLATE.read_text("utf8"), autoescape=True, trim_blocks=True).render(
        profile=folder.name,
        sections=[_section(entry) for entry in entries],
    )
    write(page, text)
    return page


def in_order(name: str) -> tuple[int, int, str]:
    """The place of a notebook or its folder: the paper's tables, its figures, then the others."""
    if found := re.match(r"(table|figure)(\d+)", name):
        return int(found[1] == "figure"), int(found[2]), name
    return 2, 0, name


def _section(entry: Path) -> dict[str, Any]:
    """Return what the template shows of one notebook, or why it shows nothing.

    Other files beside a failed or missing one are of an earlier execution; it shows none.
    """
    shown = {"name": entry.name, "title": entry.name}
    result = read_json(entry / OUTCOME) if (entry / OUTCOME).exists() else {}
    for state in ("failure", "missing"):
        if reason := result.get(state):
            files = _files(entry, "*.part.ipynb")
            return shown | {"state": state, "reason": reason, "files": files}
    from fedmuscle_lib.report.claims import of_notebook

    words = of_notebook(FIGURES / entry.parent.name, entry.name).word
    counts = words[words != ""].value_counts()
    runs = runs_of(entry)
    shipped = sum(run["origin"] == "shipped" for run in runs)
    minutes = sum(run["seconds"] for run in runs) / 60
    settings = entry / "departures.csv"
    title, claim = _claim(entry)
    return shown | {
        "title": title,
        "claim": claim,
        "words": ", ".join(f"{n} {word}" for word, n in counts.items()),
        "made": f"{len(runs)} runs, {shipped} of them shipped; {minutes:.0f} minutes",
        "command": read_json(entry / PROVENANCE)["command"] if runs else "",
        "figure": next(iter(_files(entry, "*.svg")), ""),
        "settings": [*csv.reader(settings.open(encoding="utf8"))] if settings.exists() else [],
        "files": _files(entry, "executed.html", "README.md", EXECUTED, "*.csv", "*.svg"),
    }


def _files(entry: Path, *patterns: str) -> list[str]:
    return [path.name for pattern in patterns for path in sorted(entry.glob(pattern))]


def _claim(entry: Path) -> tuple[str, str]:
    """The notebook's title, with what sets the folder apart from others of the notebook, and the
    first paragraph below it as HTML without links, which lead away from another place.
    """
    import nbformat
    from bs4 import BeautifulSoup
    from nbconvert.filters import markdown2html

    from fedmuscle_lib.report.provenance import world_in_words

    if not (path := entry / EXECUTED).exists():
        return entry.name, ""
    first: str = nbformat.read(path, 4).cells[0].source
    title, claim, *_ = [*first.split("\n\n"), ""]
    soup = BeautifulSoup(markdown2html(claim), "html.parser")
    for link in soup("a"):
        link.unwrap()
    short, _, long = title.removeprefix("# ").partition(": ")
    variant = world_in_words(entry).partition(", ")[2] or long
    return f"{short}: {variant}" if variant else short, str(soup)
