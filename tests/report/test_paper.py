"""The paper's cells, as runs and beside them, and its own Deltas."""

import math

import pytest
from histories import as_runs, history, history2

from fedmuscle_lib import report
from fedmuscle_lib.fedmuscle.setups import SETUPS


def test_delta_of_the_papers_own_cells_is_the_papers_delta(paper_runs):
    delta = report.delta(paper_runs)
    assert len(delta) == 12
    assert delta.columns.tolist() == report.DELTA_COLUMNS
    assert (delta.delta.round(2) == delta.paper_delta).all()


@pytest.mark.parametrize(
    ("name", "of_cells", "printed"), [("table2", 15.93, 14.39), ("table9", 13.28, 13.3)]
)
def test_setup_2_stands_beside_its_cells(name, of_cells, printed):
    runs = as_runs(name)
    table, delta = report.table(runs, paper=(name,)), report.delta(runs, paper=(name,))
    assert len(table) == 2 * 10 and (table["mean"] == table.paper_mean).all()
    ours = delta.set_index("algorithm").drop("local").iloc[0]
    assert (round(ours.delta, 2), ours.paper_delta) == (of_cells, printed)
    assert report.paper_deltas(name).set_index("algorithm").round(2).loc[ours.name].tolist() == [
        "flickr30k",
        printed,
        of_cells,
    ]
    assert "nan" not in report.side_by_side(table, delta).to_string()  # Table 9 has no deviations


@pytest.mark.parametrize(
    ("setup", "public", "n"),
    [
        ("setup2", "voc", 0),
        ("setup1", "flickr30k", 0),
        ("setup2_generation", "flickr30k", 0),
    ],
)
def test_other_federations_and_public_sets_have_no_cells(setup, public, n):
    values = [40] * len(SETUPS[setup])
    runs = [history2(name, values, setup=setup, public=public) for name in ("local", "fedmuscle")]
    assert report.table(runs).paper_mean.notna().sum() == n
    assert report.delta(runs).paper_delta.notna().sum() == n / 10


def test_table_stands_beside_the_papers_cells(paper_runs):
    table = report.table(paper_runs)
    assert (
        ",".join(table.columns)
        == "public,user,model,task,metric,algorithm,mean,std,n_seeds,paper_mean,paper_std"
    )
    assert len(table) == 72
    assert (table["mean"] == table.paper_mean).all()
    assert table["std"].isna().all()  # one seed has no spread
    assert set(table.algorithm) == {"local", "fedmuscle", "gramian", "pairwise"}


def test_algorithms_that_the_paper_does_not_have_get_no_cell():
    runs = [history("local", [40] * 6), history("self", [44] * 6)]
    assert report.delta(runs).set_index("algorithm").paper_delta.to_dict() == pytest.approx(
        {"local": 0, "self": math.nan}, nan_ok=True
    )
    assert report.table(runs).query("algorithm == 'self'").paper_mean.isna().all()
