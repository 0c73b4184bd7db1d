"""A browser for the tests that look at pages: the machine's Chromium, driven by playwright, with an
empty profile each time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
FLAGS += ["--disable-component-update", "--disable-sync"]
# milliseconds for anything to happen, on a machine that is busy with something else
PATIENCE = 300_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.exit("playwright is not installed: make browser-test installs it", returncode=1)
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        pytest.exit(
            f"no Chromium on the PATH ({', '.join(NAMES)}): apt-get install chromium", returncode=1
        )
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium, args=FLAGS, timeout=PATIENCE
        )
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Page]]:
    """Makes an empty page in a context of its own: ``open_page(width, **options of the
    context)``.
    """
    contexts = []

    def opened(width: int = 1280, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        return context.new_page()

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def screenshot() -> Callable[[Page, str], None]:
    """Saves the whole page as ``build/screenshots/<name>.png``."""
    folder = ROOT / "build/screenshots"

    def save(page: Page, name: str) -> None:
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=path, full_page=True, timeout=PATIENCE)

    return save
