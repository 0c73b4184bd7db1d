"""The table of what is reproduced says what the CSV files say, and says where there is nothing."""

import pandas as pd
import pytest

from fedmuscle_lib.report.claims import claims
from fedmuscle_lib.report.prose import from_csv
from fedmuscle_lib.report.reproduced import deltas_in_worlds, reproduced

DELTA = """public,algorithm,delta,ci_low,ci_high,paper_delta
voc,local,0,0,0,0
voc,fedmuscle,4.04,-1,9.06,26.7
voc,self,-2,-3,-1,
voc,head_only,1,,,
voc,"local, tuned",5,4,6,
"""
TEXTS = [claim.text for claim in claims() if claim.file == "table1/delta_by_seed.csv"]


@pytest.fixture
def root(tmp_path):
    """A repository with Table 1 and the controls of one profile, and the claims of both."""
    for profile in ("mini", "small"):
        (tmp_path / "figures" / profile / "claims").mkdir(parents=True)
        verdicts = ["undecided", "not run", "undecided" if profile == "small" else "reproduced"]
        table = pd.DataFrame({"claim": TEXTS, "verdict": verdicts})
        table.to_csv(tmp_path / "figures" / profile / "claims/claims.csv", index=False)
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
    assert verdicts == "1 undecided, 1 reproduced; 2 undecided"


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
