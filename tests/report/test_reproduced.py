"""The table of what is reproduced says what the CSV files say, and says where there is nothing."""

from shutil import copyfile

import pandas as pd
import pytest

from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.report.claims import registered
from fedmuscle_lib.report.prose import from_csv
from fedmuscle_lib.report.reproduced import deltas_in_worlds, reproduced

DELTA = """public,algorithm,delta,ci_low,ci_high,paper_delta
voc,local,0,0,0,0
voc,fedmuscle,4.04,-1,9.06,26.7
voc,self,-2,-3,-1,
voc,head_only,1,,,
voc,"local, tuned",5,4,6,
"""
CLAIMS = [c for c in registered(FIGURES / "mini") if c.file == "table1/delta_by_seed.csv"][:3]


@pytest.fixture
def root(tmp_path):
    """A repository with Table 1 and the controls of one profile, and the claims of both."""
    for profile in ("mini", "small"):
        folder = tmp_path / "figures" / profile / "claims"
        folder.mkdir(parents=True)
        copyfile(FIGURES / "mini/claims/registered.toml", folder / "registered.toml")
        words = ["open", "", "open" if profile == "small" else "holds"]
        told = {"claim": [c.text for c in CLAIMS], "family": [c.family for c in CLAIMS]}
        pd.DataFrame({**told, "word": words, "size": ""}).to_csv(folder / "claims.csv", index=False)
    for name in ("table1", "controls"):
        (tmp_path / "figures/mini" / name).mkdir()
        (tmp_path / "figures/mini" / name / "delta.csv").write_text(DELTA)
    return tmp_path


def row(table, name):
    (found,) = (
        line[1:-1].split("|")
        for line in table.replace("\N{NO-BREAK SPACE}", " ").splitlines()
        if line.startswith(f"|{name}|")
    )
    return found


def test_a_table_has_our_delta_beside_the_papers_and_its_verdicts(root):
    _, notebook, theirs, mini, small, minutes, verdicts = row(reproduced(root), "Table 1")
    assert "notebooks/table1.ipynb" in notebook
    assert (theirs, mini, small) == (
        "+26.70",
        "[+4.0 [-1.0, +9.1]](figures/mini/table1)",
        "not run",
    )
    assert minutes == "0"
    assert verdicts == "1 holds, 1 open; 2 open"


def test_a_world_has_a_row_and_the_papers_is_first(root):
    assert deltas_in_worlds(root).replace("\N{NO-BREAK SPACE}", " ").splitlines()[2:] == [
        "|the paper|+26.7||||",
        "|generated, equal models|+4.0 [-1.0, +9.1]|-2.0 [-3.0, -1.0]|+1.0|+5.0 [+4.0, +6.0]|",
    ]


def test_a_table_is_written_between_its_marks(root):
    page = "# Page\n\n<!-- table worlds -->\n<!-- /table -->\n\nEnd.\n"
    written = from_csv(page, root)
    assert deltas_in_worlds(root) in written and written.endswith("<!-- /table -->\n\nEnd.\n")
    assert from_csv(written, root) == written
