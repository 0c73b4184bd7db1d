"""Pages say what the CSV files say: their tables, and the cells on which prose relies."""

import tomllib
from math import isnan

import pytest
from draw_worlds import ABOUT, worlds

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.core.style import save
from fedmuscle_lib.report.results import TABLES, cell, delta_of_worlds, page

CELLS = tomllib.loads((ROOT / "docs/findings.toml").read_text(encoding="utf8"))["cells"]


@pytest.mark.parametrize(("file", "row", "side"), CELLS)
def test_a_cell_is_on_the_side_on_which_prose_relies(file, row, side):
    found = cell(FIGURES / file, row)
    value = found["delta"] if "delta" in found else found["difference"]
    low, high = found["ci_low"], found["ci_high"]
    low, high = (value, value) if isnan(low) else (low, high)
    assert side == ("+" if low > 0 else "-" if high < 0 else "0")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_numbers_of_the_csv_files(name):
    """``python -m fedmuscle_lib.report.results`` writes it."""
    assert (ROOT / name).read_text(encoding="utf8") == page(name)


def test_the_figure_of_worlds_is_that_of_the_csv_files(tmp_path):
    """``python scripts/draw_worlds.py`` draws it."""
    path = save(worlds(delta_of_worlds()), tmp_path, "worlds", ABOUT)
    assert path.read_bytes() == (FIGURES / "worlds.svg").read_bytes()
