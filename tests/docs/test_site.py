"""The site: it has every document, lesson and notebook, its pages show what is kept, and it builds
without a warning.
"""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from site_pages import lay, references

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def laid(tmp_path_factory):
    """The folder of the site's sources."""
    target = tmp_path_factory.mktemp("site") / "sources"
    lay(target)
    return target


def test_every_document_lesson_and_notebook_is_a_page(laid):
    places = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("notebooks/**/*.ipynb"),
        *ROOT.glob("figures/*/*.md"),
    ]
    pages = {
        "index.md" if path == ROOT / "README.md" else path.relative_to(ROOT).as_posix()
        for path in places
    }
    contents = (laid / "index.md").read_text()
    for page in pages:
        assert (laid / page).is_file()
        assert page == "index.md" or re.search(
            rf"(^|<){re.escape(page)}>?$", contents, re.MULTILINE
        ), f"{page} is in no table of contents"


def test_every_reference_is_on_a_page_with_its_figures(laid):
    folders = {path.parent for path in ROOT.glob("figures/*/*/provenance.json")}
    assert folders == {reference.folder for reference in references()}
    for reference in references():
        page = laid / reference.page.relative_to(ROOT)
        title, text = page.read_text().split("\n", 1)
        assert title.startswith("# ") and title.endswith(f"`{reference.profile}`)")
        linked = set(re.findall(r"!\[[^]]*\]\((\w+\.svg)\)", text))
        assert linked == {path.name for path in reference.folder.glob("*.svg")}, reference.folder
        assert all((page.parent / name).is_file() for name in linked)
        assert "<table" in text


def test_links_to_folders_of_results_lead_to_their_pages(laid):
    results = (laid / "RESULTS.md").read_text()
    assert (
        "](figures/mini/controls/README.md" in results
        and "](figures/small/controls_setup1_vit/README.md" in results
    )


@pytest.mark.slow
def test_the_site_builds_without_a_warning(laid, tmp_path):
    pytest.importorskip(
        "myst_nb", reason="the site's packages are not installed: make site installs them"
    )
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-c",
        ROOT / "docs/site",
        laid,
        tmp_path / "site",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/index.html").is_file()


def test_slides_of_a_lesson_load_nothing_from_a_network():
    lesson = ROOT / "notebooks/lessons/1_two_models.ipynb"
    page = runpy.run_path(str(ROOT / "scripts/slides.py"))["slides"](lesson)
    assert re.findall(r'(?:src|href)="(https?://[^"]*\.(?:js|css))"', page) == []
    cells = nbformat.read(lesson, as_version=4).cells
    pictures = sum(
        "image/png" in one.get("data", {}) for c in cells for one in c.get("outputs", [])
    )
    assert page.count("<section") > sum(c.source.startswith("#") for c in cells) + pictures
