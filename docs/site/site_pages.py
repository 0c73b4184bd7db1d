"""Lay down the pages that the site is made of: documents, lessons with their kept outputs, table notebooks with their references.

``python docs/site/site_pages.py FOLDER``. No notebook is run. Pages keep their places in the repository, so that links between them hold.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from os.path import relpath
from pathlib import Path
from types import ModuleType

import nbformat
import pandas as pd
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_output

from fedmuscle_lib.fedmuscle.profiles import PROFILES
from fedmuscle_lib.fedmuscle.settings import parse
from fedmuscle_lib.report import HEADLINE, OTHER_MOMENT, file_of
from fedmuscle_lib.report.provenance import runs_of
from fedmuscle_lib.report.write import USUAL_SETUP
from fedmuscle_lib.reproduce.children import SENTENCES
from fedmuscle_lib.reproduce.index import made

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\(([^)\s#]+)")
_FROM = re.compile(r"<!-- /?from.*?-->")  # marks of numbers that come from a CSV file
_INTERVAL = re.compile(r"(?<=\[)([+-][\d.]+), (?=[+-][\d.]+\])")  # is kept in one line


# --- which pages there are ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """What a table notebook made: ``folder``, which is ``figures/<profile>/<notebook>`` or, for another setup, ``..._<setup>``."""

    notebook: Path
    folder: Path

    @property
    def profile(self) -> str:
        return self.folder.parent.name

    @property
    def page(self) -> Path:
        """Beside the notebook, so that its links hold. A link to the notebook itself leads to the reference of ``mini``."""
        first = self.profile == "mini" and self.folder.name == self.notebook.stem
        return self.notebook if first else self.notebook.with_name(f"{self.folder.name}_{self.profile}.ipynb")


def documents(root: Path = ROOT) -> list[Path]:
    return [path for place in ("", "docs/", "figures/*/") for path in sorted(root.glob(f"{place}*.md"))]


def lessons(root: Path = ROOT) -> list[Path]:
    return [path for place in ("", "solutions/") for path in sorted(root.glob(f"notebooks/lessons/{place}*.ipynb"))]


def references(root: Path = ROOT) -> list[Reference]:
    """Each goes to the notebook with the longest name that the folder's begins with."""
    notebooks = sorted(root.glob("notebooks/*.ipynb"), key=lambda path: -len(path.stem))
    folders = sorted(path.parent for path in root.glob("figures/*/*/provenance.json"))
    owners = {folder: [path for path in notebooks if f"{folder.name}_".startswith(f"{path.stem}_")] for folder in folders}
    return [Reference(paths[0], folder) for folder, paths in owners.items() if paths]


def other_notebooks(root: Path = ROOT) -> list[Path]:
    """Those without a reference of ``mini``, shown as they are."""
    return sorted(set(root.glob("notebooks/*.ipynb")) - {reference.page for reference in references(root)})


def _contents(root: Path) -> str:
    """The tables of contents that the sidebar shows, as the first page's source has them."""
    everything = references(root)
    groups = {"Notebooks": [(path.stem, path) for path in other_notebooks(root)]}
    groups["Lessons"] = [(None, path) for path in lessons(root) if path.parent.name == "lessons"]
    for profile in PROFILES:
        groups[f"Results: {profile}"] = [(each.folder.name, each.page) for each in everything if each.profile == profile]
    groups["Solutions"] = [(None, path) for path in lessons(root) if path.parent.name == "solutions"]
    groups["Documents"] = [(None, path) for path in documents(root) if path.name != "README.md"]
    text = ""
    for caption, pages in groups.items():
        places = ((title, path.relative_to(root).as_posix()) for title, path in pages)
        lines = [f"{title} <{place}>" if title else place for title, place in places]
        text += "\n".join(["\n\n```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```"]) if lines else ""
    return text + "\n"


# --- what stands on them -----------------------------------------------------------------------------------------------------


def lay(target: Path, root: Path = ROOT) -> None:
    """Write every page, and every file that a page links to, below ``target``, which is emptied before."""
    shutil.rmtree(target, ignore_errors=True)
    moved = {root / "README.md": root / "index.md"} | {reference.folder: reference.page for reference in references(root)}

    def linked(text: str, page: Path) -> str:
        return _LINK.sub(lambda found: _led(found, page, moved, root, target), _INTERVAL.sub("\\1,\N{NO-BREAK SPACE}", _FROM.sub("", text)))

    def write(page: Path, text: str) -> None:
        place = target / moved.get(page, page).relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf8")

    def write_notebook(page: Path, notebook: NotebookNode) -> None:
        for cell in notebook.cells:
            cell.source = linked(cell.source, page) if cell.cell_type == "markdown" else cell.source
        write(page, nbformat.writes(notebook))

    for path in documents(root):
        text = linked(path.read_text(encoding="utf8"), path)
        write(path, text + _contents(root) if path == root / "README.md" else text)
    for path in [*lessons(root), *other_notebooks(root)]:
        write_notebook(path, nbformat.read(path, as_version=4))
    for reference in references(root):
        write_notebook(reference.page, filled(reference, references(root)))


def _led(link: re.Match[str], page: Path, moved: dict[Path, Path], root: Path, target: Path) -> str:
    """The link of a page, to where its target stands in the site. A file that is no page is copied there."""
    to = (page.parent / link[1]).resolve()
    if to in moved:
        return f"]({relpath(moved[to], page.parent)}"
    if to.is_file() and to.suffix not in (".md", ".ipynb"):
        copy = target / to.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(to, copy)
    return link[0]


def filled(reference: Reference, among: list[Reference]) -> NotebookNode:
    """The notebook with the outputs of the execution that made the reference or, if that was not kept, with the reference's files.

    The code is folded. A cell whose output no file holds has none.
    """
    notebook, executed = nbformat.read(reference.notebook, as_version=4), _executed(reference.folder)
    imported = re.search(
        r"^from (fedmuscle_lib[.\w]*) import .*\breport\b", "\n".join(cell.source for cell in notebook.cells), re.MULTILINE
    )
    report = import_module(f"{imported[1] if imported else 'fedmuscle_lib'}.report")  # of the notebook's system
    said = reference.folder / SENTENCES
    sentences = json.loads(said.read_text(encoding="utf8")) if said.exists() else {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata.tags = [*cell.metadata.get("tags", []), "hide-input"]
            words = [new_output("display_data", {"text/markdown": sentences[cell.id]})] if cell.id in sentences else []
            cell.outputs = executed.get((cell.id, cell.source)) or [*_kept(cell.source, report, reference.folder), *words]
    notebook.cells[0].source = re.sub("^# .*", lambda title: f"{title[0]} (`{reference.profile}`)", notebook.cells[0].source)
    notebook.cells.insert(1, new_markdown_cell(_about(reference, among, bool(executed))))
    return notebook


def _executed(folder: Path) -> dict[tuple[str, str], list[NotebookNode]]:
    """Outputs by a cell's id and source, unless a run of the folder is newer than its execution."""
    path = folder / "executed.ipynb"
    if not path.exists():
        return {}
    notebook = nbformat.read(path, as_version=4)
    ended = datetime.fromisoformat(notebook.metadata.papermill.end_time)
    if any(datetime.fromisoformat(run["finished"]) > ended for run in runs_of(folder)):
        return {}
    return {(cell.id, cell.source): cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def _kept(source: str, report: ModuleType, folder: Path) -> Iterator[NotebookNode]:
    """What the folder's files hold of a cell's output: its figures or, where it draws none, its tables as ``report`` lays them out."""
    figures = [folder / f"{name}.svg" for name in re.findall(r'plots\.save\(\w+, folder, "(\w+)"\)', source)]
    for path in filter(Path.exists, figures):
        yield new_output("display_data", {"image/svg+xml": path.read_text(encoding="utf8"), "text/plain": path.stem})
    for table in [] if figures else _tables(source, report, folder):
        html = table.round(2).to_html(border=0, index=not isinstance(table.index, pd.RangeIndex), na_rep="")
        yield new_output("display_data", {"text/html": html, "text/plain": table.to_string()})


def _tables(source: str, report: ModuleType, folder: Path) -> Iterator[pd.DataFrame]:
    """The tables that a cell shows, as far as files of the folder hold them."""

    def read(*names: str) -> list[pd.DataFrame]:
        return [pd.read_csv(folder / name) for name in names if (folder / name).exists()]

    if re.search(r"^report\.(save|write\w*)\(.*\)\Z", source, re.MULTILINE):  # the last line writes, so nothing is shown
        return
    saved = re.findall(r'folder / "(\w+\.csv)"', source)
    if re.search(r"^display\((overview|report\.map_by_place\(.*\))\)", source, re.MULTILINE):
        yield from read("overview.csv")
    if re.search(r"^(display\()?report\.side_by_side\((report\.table\(histories|\*tables)", source, re.MULTILINE):
        moment = OTHER_MOMENT if "OTHER_MOMENT" in source else HEADLINE
        yield report.side_by_side(*read(file_of("table", moment), file_of("delta", moment)))
    if paper := re.search(r'^report\.paper_deltas\("(\w+)"\)', source, re.MULTILINE):
        yield report.paper_deltas(paper[1])
    if group := re.search(r'differences_by_user\(histories\)\n.*\.group == "(\w+)"', source):
        yield from (by_user[by_user.group == group[1]].reset_index(drop=True) for by_user in read("differences_by_user.csv"))
    if "report.worlds(" in source:
        setup = folder.name.removeprefix("controls").removeprefix("_") or USUAL_SETUP
        settings = parse({"profile": folder.parent.name, "setup": setup})
        yield from (report.worlds(own, settings) for own in read("world.csv"))
    elif lay_out := re.search(r"report\.(laid_out|by_public|by_task)\(", source):
        of = saved or ["delta_by_task.csv" if lay_out[1] == "by_task" else "differences.csv"]
        yield from map(getattr(report, lay_out[1]), read(*of))
    else:
        yield from read(*saved)
    yield from read(*(f"{name}.csv" for name in re.findall(r"report\.(costs|departures|samples)\(", source)))


def _about(reference: Reference, among: list[Reference], executed: bool) -> str:
    """A note on whose results the page shows, and where others and their files are."""
    by, here = made(reference.folder), reference.notebook.parent
    others = [other for other in among if other.notebook == reference.notebook and other != reference]
    links = [f"[{other.folder.name}, {other.profile}]({other.page.name})" for other in others]
    files = [path for path in sorted(reference.folder.iterdir()) if path.suffix in (".csv", ".svg")]
    what = "It shows the figures, tables and sentences that were kept."
    lines = [f"This page has results of the profile `{reference.profile}`, runs: {by.runs}, {by.when}. {'' if executed else what}"]
    lines += [f"The same notebook elsewhere: {'; '.join(links)}."] if links else []
    lines += [f"Files: {', '.join(f'[{path.name}]({relpath(path, here)})' for path in files)}."]
    return "\n\n".join([":::{note}", *lines, ":::"])


if __name__ == "__main__":
    lay(Path(sys.argv[1]).resolve())
