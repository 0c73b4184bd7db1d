"""Links of Markdown pages: each leads to a file and, where it names one, to a heading of it;
nothing is asked of a network.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for place in ("*.md", "docs/*.md", "figures/*/*.md", "figures/*/*/*.md", ".github/**/*.md")
    for path in sorted(ROOT.glob(place))
]
_LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf8"), flags=re.MULTILINE | re.DOTALL
    )
    titles = [
        re.sub(r"<!--.*?-->|\[([^]]*)\]\([^)]*\)", r"\1", title)
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page):
    broken = []
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf8"))):
        if re.match(r"\w+:", link):
            continue
        place, _, heading = link.partition("#")
        to = (page.parent / place).resolve() if place else page
        within = not os.path.normpath(page.parent.relative_to(ROOT) / place).startswith(
            ".."
        )  # else it holds on this machine alone
        if (
            not within
            or not to.exists()
            or heading
            and to.suffix == ".md"
            and heading not in anchors(to)
        ):
            broken.append(link)
    assert not broken
