"""The page of results says what the CSV files say."""

from __future__ import annotations

import json

import pytest

from fedmuscle_lib.report.results import results_page

HEAD = "public,algorithm,delta,delta_std,n_seeds,ci_low,ci_high,paper_delta\n"
PROVENANCE = {
    "command": "python -m fedmuscle_lib reproduce table7 --profile mini --seeds 0,1",
    "made_with": [{"torch": "2.13.0", "machine": "x86_64"}, {"torch": "2.13.0", "machine": "x86_64", "source": "another"}],
    "shared": {},
    "arms": {"local": {}},
    "runs": [{"arm": "local", "address": "a", "finished": "2026", "seconds": 60}] * 3,
}


def entry(figures, profile, name, delta, **provenance):
    folder = figures / profile / name
    folder.mkdir(parents=True)
    (folder / "delta.csv").write_text(HEAD + delta)
    (folder / "provenance.json").write_text(json.dumps(PROVENANCE | provenance))


@pytest.fixture
def figures(tmp_path):
    """A reference of two notebooks in two profiles, and what else may lie beside them."""
    folder = tmp_path / "figures"
    table7 = "voc,local,0.0,0.0,2,0.0,0.0,0.0\nvoc,fedmuscle,-0.3372,0.9,2,-1.5985,0.9241,26.7\ncoco,fedmuscle,,,1,,,-22.31\n"
    entry(folder, "mini", "table7", table7, shipped=True)
    entry(folder, "small", "controls", 'voc,"self, M = 1",1.5,,1,,,\n')
    (folder / "mini/runs.zip").write_bytes(b"")
    (folder / "bench").mkdir()
    (folder / "README.md").write_text("about figures")
    return folder


def test_ours_stand_beside_the_papers_and_real_images_come_first(figures):
    page = results_page(figures).splitlines()
    start = page.index("## Profile `small`")
    assert page[start:] == [
        "## Profile `small`",
        "",
        "### [controls](figures/small/controls)",
        "",
        "| algorithm | seeds | `voc`, ours | `voc`, the paper's |",
        "| --- | --- | --- | --- |",
        "| Self (no communication), M = 1 | 1 | +1.50 |  |",
        "",
        "The 3 runs are not shipped; they took 3 minutes one after another, and were made by "
        "`python -m fedmuscle_lib reproduce table7 --profile mini --seeds 0,1` with torch 2.13.0 on x86_64.",
        "",
        "## Profile `mini`",
        "",
        "### [table7](figures/mini/table7)",
        "",
        "| algorithm | seeds | `voc`, ours | `voc`, the paper's | `coco`, ours | `coco`, the paper's |",
        "| --- | --- | --- | --- | --- | --- |",
        "| Local training | 2 | +0.00 [+0.00, +0.00] | +0.00 |  |  |",
        "| FedMuscle | 1, 2 | -0.34 [-1.60, +0.92] | +26.70 | undefined: a local metric is 0 | -22.31 |",
        "",
        "The 3 runs are shipped in `figures/mini/runs.zip`; they took 3 minutes one after another, and were made by "
        "`python -m fedmuscle_lib reproduce table7 --profile mini --seeds 0,1` with torch 2.13.0 on x86_64.",
    ]


def test_delta_over_tuned_local_training_has_a_column_where_there_is_one(figures):
    head = "public,algorithm,delta,n_seeds,ci_low,ci_high,delta_tuned,ci_low_tuned,ci_high_tuned,paper_delta\n"
    (figures / "small/controls/delta.csv").write_text(head + "voc,local,0,2,0,0,-9.5,-10,-9,\nvoc,fedmuscle,4,2,3,5,-1,-2,0.5,26.7\n")
    page = results_page(figures)
    assert "| algorithm | seeds | `voc`, ours | `voc`, over tuned | `voc`, the paper's |" in page
    assert "| FedMuscle | 2 | +4.00 [+3.00, +5.00] | -1.00 [-2.00, +0.50] | +26.70 |" in page


def test_a_notebook_without_a_delta_has_its_overview(figures):
    folder = figures / "mini/fedloge"
    folder.mkdir()
    (folder / "overview.csv").write_text('method,GM,"PM, masked"\nFedLoGe,50.0 | 71.2,60\nFedPer,,30.5 ± 1.0\n')
    (folder / "provenance.json").write_text(json.dumps(PROVENANCE))
    lines = results_page(figures).splitlines()
    start = lines.index("### [fedloge](figures/mini/fedloge)")
    assert lines[start + 2 : start + 6] == [
        "| method | GM | PM, masked |",
        "| --- | --- | --- |",
        r"| FedLoGe | 50.0 \| 71.2 | 60 |",
        "| FedPer |  | 30.5 ± 1.0 |",
    ]
    assert start < lines.index("### [table7](figures/mini/table7)")


def test_a_page_of_no_figures_has_only_its_head(tmp_path):
    assert results_page(tmp_path).startswith("# Results\n") and "## Profile" not in results_page(tmp_path)


def test_a_delta_without_its_interval_is_refused(figures):
    (figures / "mini/table7/delta.csv").write_text("public,algorithm,delta,delta_std,paper_delta\nvoc,local,0,0,0\n")
    with pytest.raises(KeyError, match="ci_low"):
        results_page(figures)
