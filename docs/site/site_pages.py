"""Lay down the pages that the site is made of: documents, lessons with their kept outputs,
notebooks, and their references.

``python docs/site/site_pages.py FOLDER``. No notebook is run. Pages keep their places in the
repository, so that links between them hold.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path

import nbformat

from fedmuscle_lib.fedmuscle.profiles import PROFILES
from fedmuscle_lib.report.provenance import world_in_words
from fedmuscle_lib.reproduce.index import in_order

ROOT = Path(__file__).resolve().parents[2]
_MODULES = {
    "fedmuscle_lib": "",
    "fedmuscle_lib.report": "\n   :imported-members:",
    "fedmuscle_lib.plots": "\n   :imported-members:",
}
_LINK = re.compile(r"\]\(([^)\s#]+)")
_INTERVAL = re.compile(r"(?<=\[)([+-][\d.]+), (?=[+-][\d.]+\])")  # is kept in one line


# --- which pages there are


@dataclass(frozen=True)
class Reference:
    """What a notebook made: ``folder``, such as ``figures/<profile>/<notebook>``, whose
    ``README.md`` is the executed notebook.
    """

    notebook: Path
    folder: Path

    @property
    def profile(self) -> str:
        return self.folder.parent.name

    @property
    def page(self) -> Path:
        return self.folder / "README.md"


def documents(root: Path = ROOT) -> list[Path]:
    return [
        path for place in ("", "docs/", "figures/*/") for path in sorted(root.glob(f"{place}*.md"))
    ]


def lessons(root: Path = ROOT) -> list[Path]:
    return [
        path
        for place in ("", "solutions/")
        for path in sorted(root.glob(f"notebooks/lessons/{place}*.ipynb"))
    ]


def references(root: Path = ROOT) -> list[Reference]:
    """Each goes to the notebook with the longest name that the folder's begins with."""
    notebooks = sorted(root.glob("notebooks/*.ipynb"), key=lambda path: -len(path.stem))
    folders = sorted(path.parent for path in root.glob("figures/*/*/README.md"))
    owners = {
        folder: [path for path in notebooks if f"{folder.name}_".startswith(f"{path.stem}_")]
        for folder in folders
    }
    return [Reference(paths[0], folder) for folder, paths in owners.items() if paths]


def notebooks(root: Path = ROOT) -> list[Path]:
    """Return the notebooks, shown as they are: their code, without outputs."""
    return sorted(root.glob("notebooks/*.ipynb"))


def _contents(root: Path) -> str:
    """The tables of contents that the sidebar shows, as the first page's source has them."""
    everything = references(root)
    groups: dict[str, list[tuple[str | None, Path]]] = {}
    groups["Lessons"] = [(None, path) for path in lessons(root) if path.parent.name == "lessons"]
    groups["Tables and figures of the paper"] = [
        (None, path)
        for path in sorted(notebooks(root), key=lambda path: in_order(path.stem))
        if _of_paper(path)
    ]
    groups["Other notebooks"] = [(None, path) for path in notebooks(root) if not _of_paper(path)]
    for profile in PROFILES:
        groups[f"Results: {profile}"] = [
            (each.folder.name, each.page)
            for each in sorted(everything, key=lambda each: in_order(each.folder.name))
            if each.profile == profile
        ]
    groups["Solutions"] = [
        (None, path) for path in lessons(root) if path.parent.name == "solutions"
    ]
    groups["Documents"] = [("Library reference", root / "api.md")]
    groups["Documents"] += [(None, path) for path in documents(root) if path.name != "README.md"]
    text = ""
    for caption, pages in groups.items():
        places = ((title, path.relative_to(root).as_posix()) for title, path in pages)
        lines = [f"{title} <{place}>" if title else place for title, place in places]
        text += (
            "\n".join(["\n\n```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```"])
            if lines
            else ""
        )
    return text + "\n"


def _of_paper(path: Path) -> bool:
    return re.match(r"(table|figure)\d", path.stem) is not None


# --- what stands on them


def lay(target: Path, root: Path = ROOT) -> None:
    """Write every page, and every file that a page links to, below ``target``, which is emptied
    before.
    """
    shutil.rmtree(target, ignore_errors=True)
    among = references(root)
    moved = {root / "README.md": root / "index.md"} | {
        reference.folder: reference.page for reference in among
    }

    def linked(text: str, page: Path) -> str:
        return _LINK.sub(
            lambda found: _led(found, page, moved, root, target),
            _INTERVAL.sub("\\1,\N{NO-BREAK SPACE}", text),
        )

    def write(page: Path, text: str) -> None:
        place = target / moved.get(page, page).relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf8")

    for path in documents(root):
        text = linked(path.read_text(encoding="utf8"), path)
        write(path, text + _contents(root) if path == root / "README.md" else text)
    for path in [*lessons(root), *notebooks(root)]:
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            cell.source = linked(cell.source, path) if cell.cell_type == "markdown" else cell.source
        write(path, nbformat.writes(notebook))
    (target / "api.md").write_text(_api(), encoding="utf8")
    for reference in among:
        title, text = reference.page.read_text(encoding="utf8").split("\n", 1)
        world = f"{world_in_words(reference.folder)}; `{reference.profile}`"
        write(
            reference.page,
            linked(f"{title} ({world})\n\n{_about(reference, among)}\n{text}", reference.page),
        )


def _api() -> str:
    """The reference of the library, from its docstrings."""
    parts = ["# Library reference\n\nWhat `fedmuscle_lib` offers to programs, by its docstrings."]
    for module, options in _MODULES.items():
        parts.append(
            f"## `{module}`\n\n```{{eval-rst}}\n.. automodule:: {module}\n  "
            f" :members:{options}\n```"
        )
    return "\n\n".join(parts) + "\n"


def _led(link: re.Match[str], page: Path, moved: dict[Path, Path], root: Path, target: Path) -> str:
    """The link of a page, to where its target stands in the site.

    A file that is no page is copied there.
    """
    to = (page.parent / link[1]).resolve()
    if to in moved:
        return f"]({relpath(moved[to], page.parent)}"
    if to.is_file() and to.suffix not in (".md", ".ipynb"):
        copy = target / to.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(to, copy)
    return link[0]


def _about(reference: Reference, among: list[Reference]) -> str:
    """A note on whose results the page shows, and where its notebook, others' results and its files
    are.
    """
    here = reference.folder
    others = [
        other for other in among if other.notebook == reference.notebook and other != reference
    ]
    links = [
        f"[{other.folder.name}, {other.profile}]({relpath(other.page, here)})" for other in others
    ]
    files = [path.name for path in sorted(here.iterdir()) if path.suffix in (".csv", ".svg")]
    lines = [f"This page has results of the profile `{reference.profile}`."]
    lines += [f"The code is in the [notebook]({relpath(reference.notebook, here)})."]
    lines += [f"The same notebook elsewhere: {'; '.join(links)}."] if links else []
    lines += [f"Files: {', '.join(f'[{name}]({name})' for name in files)}."]
    return "\n\n".join([":::{note}", *lines, ":::"])


if __name__ == "__main__":
    lay(Path(sys.argv[1]).resolve())
