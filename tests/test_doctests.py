"""The examples in docstrings give what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {
    path: path.read_text()
    for package in ("fedmuscle_lib", "data_prep")
    for path in sorted((ROOT / package).rglob("*.py"))
}
EXAMPLES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): source.count(
        ">>> "
    )
    for path, source in SOURCES.items()
    if ">>> " in source
}


@pytest.mark.parametrize("module", EXAMPLES)
def test_every_example_of_a_docstring_gives_what_it_says(module):
    outcome = doctest.testmod(import_module(module))
    assert outcome.failed == 0 and outcome.attempted == EXAMPLES[module]
