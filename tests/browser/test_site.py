"""The site from disk, with the network off: whole pages on a desk and in a hand, links, formulas,
search, light and dark.
"""

from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/site"
both_widths = pytest.mark.parametrize("width", [1280, 390])

# What a page says of itself, once its formulas are set.
ASK = """async () => {
    if (document.querySelector(".math")) await MathJax.startup.promise
    return {
        beyond: document.documentElement.scrollWidth - innerWidth,
        formulas: document.querySelectorAll(".math").length,
        rendered: document.querySelectorAll(".math mjx-container").length,
        wrong: [...document.querySelectorAll("mjx-merror")].map(element => element.textContent),
        blank: [...document.images].filter(image => !image.naturalWidth && image.checkVisibility()).map(image => image.src),
        links: [...document.links].map(link => link.href),
        ids: [...document.querySelectorAll("[id]")].map(element => element.id),
    }
}"""


@pytest.fixture
def offline(open_page):
    """Makes a page without a network: ``offline(width)`` gives it and the list of what it asked a
    network for.
    """

    def opened(width, **options):
        page, asked = open_page(width, offline=True, **options), []
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "blob:"))
                else asked.append(request.url)
            ),
        )
        return page, asked

    return opened


def pages():
    found = sorted(SITE.rglob("*.html"))
    assert SITE / "index.html" in found, "make site builds the site"
    return found


@both_widths
def test_every_page_is_whole(width, offline, screenshot):
    page, asked = offline(width)
    said = {}
    for path in pages():
        page.goto(path.as_uri())
        said[path] = page.evaluate(ASK)
        screenshot(page, f"site-{width}/{path.relative_to(SITE).with_suffix('')}")
    problems = [
        f"{path.relative_to(SITE)}: {problem}"
        for path in said
        for problem in problems_of(path, said)
    ]
    assert not problems, "\n".join(problems)
    assert not asked


def problems_of(path, said):
    """What is wrong with the page ``path``, as far as the pages' own words tell."""
    own = said[path]
    if own["beyond"] > 0:
        yield f"is {own['beyond']} pixels wider than the screen"
    if own["rendered"] != own["formulas"] or own["wrong"]:
        yield f"{own['rendered']} of {own['formulas']} formulas are rendered; {own['wrong']}"
    yield from (f"has no image {url}" for url in own["blank"])
    for url in own["links"]:
        address, fragment = urldefrag(url)
        to = Path(unquote(urlparse(address).path))
        if address.startswith("file:") and (
            not to.is_file()
            or (fragment and to in said and unquote(fragment) not in said[to]["ids"])
        ):
            yield f"leads to {url}, which is not there"


@both_widths
def test_search_finds_a_word_and_leads_to_its_page(width, offline, screenshot):
    page, asked = offline(width)
    page.goto((SITE / "index.html").as_uri())
    if width < 1000:
        page.locator(
            "label.nav-overlay-icon[for=__navigation]"
        ).first.click()  # the sidebar is in a drawer
    page.locator(".sidebar-search").fill("contraction")
    page.locator(".sidebar-search").press("Enter")
    found = page.locator(
        "#search-results li a", has_text="3. The sum that nobody has to write"
    ).first
    found.wait_for()
    screenshot(page, f"site-{width}/search-contraction")
    found.click()
    page.wait_for_url("**/lessons/3_contraction.html*")
    assert not asked
