"""Slides of the lessons for a projector without a network: ``make slides`` writes build/slides/.

    python scripts/slides.py FOLDER

A heading begins a slide, and so does a picture; the arrow down goes through a section. Code that
the lessons fold is left out.
"""

from __future__ import annotations

import argparse
import shutil
from importlib.resources import files
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter

from fedmuscle_lib.core.files import ROOT

LESSONS = ROOT / "notebooks" / "lessons"
TEMPLATES = ROOT / "docs" / "site" / "templates"


def slides(path: Path) -> str:
    """A lesson as a page of slides."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        pictures = [one for one in cell.get("outputs", []) if "image/png" in one.get("data", {})]
        kind = "slide" if cell.source.startswith("#") else "subslide" if pictures else "-"
        cell.metadata["slideshow"] = {"slide_type": kind}
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata["transient"] = {"remove_source": True}
    exporter = SlidesExporter(
        template_name="offline",
        extra_template_basedirs=[str(TEMPLATES)],
        reveal_url_prefix="reveal",
    )
    page: str = exporter.from_notebook_node(notebook)[0]
    return page


def main(folder: Path) -> None:
    """Write a page a lesson, and beside them what the pages load."""
    static = {"reveal/dist": files("sphinx_revealjs") / "_static/revealjs/dist"}
    static["mathjax"] = files("sphinx-mathjax-offline") / "static/mathjax"
    for name, source in static.items():
        shutil.copytree(str(source), folder / name, dirs_exist_ok=True)
    for path in sorted(LESSONS.glob("*.ipynb")):
        (folder / f"{path.stem}.html").write_text(slides(path), encoding="utf8")
        print(folder / f"{path.stem}.html")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
