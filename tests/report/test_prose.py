"""Numbers in prose are the CSV files', to the printed digits; a mark that says nothing true is
refused.
"""

import json

import pytest

from fedmuscle_lib.report.prose import false_claims, from_csv, rewrite

DELTA = """public,algorithm,delta,delta_std,n_seeds,ci_low,ci_high,paper_delta
voc,local,0.0,0.0,5,0.0,0.0,0.0
voc,fedmuscle,-0.3372,0.9086,5,-1.5985,0.9241,26.7
voc,"fedmuscle, M = 1",2.5,,1,,,
voc,diverged,nan,,5,-inf,2.0,
voc,unsure,1.5,,5,nan,nan,
"""


@pytest.fixture
def root(tmp_path):
    """A repository with one notebook's Delta."""
    folder = tmp_path / "figures/mini/controls"
    folder.mkdir(parents=True)
    (folder / "delta.csv").write_text(DELTA)
    return tmp_path


def marked(row, quoted, file="figures/mini/controls/delta.csv"):
    return f"Delta is <!-- from {file}: {row} -->{quoted}<!-- /from -->, and 5 seeds are 5 seeds."


@pytest.mark.parametrize(
    ("row", "before", "after"),
    [
        ("public=voc algorithm=fedmuscle", "+7.0 % [-9.9, +9.9]", "-0.3 % [-1.6, +0.9]"),
        ("public=voc algorithm=fedmuscle", "−7.000 %", "-0.337 %"),
        (
            "public=voc algorithm=fedmuscle show=paper_delta,n_seeds",
            "**+0.00** over 3",
            "**+26.70** over 5",
        ),
        ("algorithm='fedmuscle, M = 1'", "+0.0", "+2.5"),
        ("algorithm=unsure", "+0.0", "+1.5"),  # what is not quoted need not be finite
    ],
)
def test_numbers_are_written_with_the_digits_and_the_sign_that_they_had(root, row, before, after):
    assert from_csv(marked(row, before), root) == marked(row, after)
    assert from_csv(marked(row, after), root) == marked(row, after)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            marked("public=voc algorithm=fedmuscle", "1", file="figures/mini/controls/epsilon.csv"),
            "epsilon.csv",
        ),
        (marked("public=voc", "1"), "public=voc --> 5 rows"),
        (marked("colour=red", "1"), "colour"),
        (marked("algorithm=local", "no number"), "0 numbers for 3 columns"),
        (
            "- Delta\n  " + marked("public=voc algorithm=fedmuscle", "1").removeprefix("Delta is "),
            "1 lines begin with a mark",
        ),
        (
            marked("algorithm=diverged", "+1.0 [+0.5, +2.0]"),
            "delta.csv: algorithm=diverged --> nan, -inf, 2.0: not all finite",
        ),
        (marked("algorithm=local", "0\n0"), "not closed in their line"),
        (
            "<!-- from figures/mini/controls/delta.csv algorithm=local -->0<!-- /from -->",
            "misspelt",
        ),
    ],
)
def test_a_mark_that_leads_nowhere_is_refused(root, text, complaint):
    with pytest.raises(ValueError, match=complaint):
        from_csv(text, root)


def test_pages_and_notebooks_are_rewritten_where_they_differ(root):
    stale, true = (marked('algorithm="fedmuscle, M = 1"', number) for number in ("+9.9", "+2.5"))
    (root / "README.md").write_text(stale)
    (root / "RESULTS.md").write_text(true)
    (root / "notebooks/lessons").mkdir(parents=True)
    notebook = root / "notebooks/lessons/controls.ipynb"
    notebook.write_text(
        json.dumps({"cells": [{"cell_type": "markdown", "source": ["# Title\n", stale]}]}, indent=1)
    )
    assert rewrite(root) == [root / "README.md", notebook]
    assert (root / "README.md").read_text() == true
    assert json.loads(notebook.read_text())["cells"][0]["source"] == ["# Title\n", true]
    assert rewrite(root) == []


FILE = "figures/mini/controls/delta.csv"


@pytest.mark.parametrize(
    ("row", "side", "true"),
    [
        ("algorithm=fedmuscle", "undecided", True),
        ("algorithm=fedmuscle", "below 0", False),  # its interval includes 0
        ("algorithm='fedmuscle, M = 1'", "above 0", True),  # one seed
        ("algorithm=local", "undecided", False),
    ],
)
def test_a_claim_says_on_which_side_of_0_an_interval_is(root, row, side, true):
    found = false_claims(f"FedMuscle gains.<!-- claim {FILE}: {row} is {side} -->", root)
    assert (
        not found
        if true
        else len(found) == 1 and found[0].startswith(f"{FILE}: {row} is not {side}: ")
    )
