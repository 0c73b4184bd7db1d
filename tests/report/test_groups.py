"""Table 4: which runs it asks for, the paper's own cells, and Delta for each number of users."""

import pytest
from histories import history

from fedmuscle_lib import report
from fedmuscle_lib.core.notebooks import NOTEBOOKS, declared
from fedmuscle_lib.fedmuscle.ablations import UNCONNECTED, Point
from fedmuscle_lib.report.paper import paper_cells

GROUPS = declared(NOTEBOOKS / "table4.ipynb")["groups"].value
CELLS = paper_cells("table4")


def papers(algorithm, users, n):
    """The paper's cells as a run of these users among ``n``."""
    cells = (
        CELLS[(CELLS.algorithm == algorithm) & (CELLS.n_users == n)].set_index("user").paper_mean
    )
    counts = {str(user): [60, 0, 40] if user % 3 == 1 else [0, 100] for user in users}
    return history(
        algorithm,
        list(cells[users]),
        setup="setup_noniid",
        users=tuple(users),
        facts={"class_counts": counts},
    )


@pytest.fixture
def points():
    return [
        Point(
            {"n_users": len(users)},
            tuple(papers(name, users, len(users)) for name in ("local", "fedmuscle")),
        )
        for users in GROUPS
    ]


def test_delta_of_the_papers_own_cells_is_the_papers_delta(points):
    rows = report.delta_at_points(points, paper="table4").query("algorithm == 'fedmuscle'")
    assert list(rows)[:3] == ["public", "n_users", "algorithm"]
    assert rows.delta.round(2).tolist() == rows.paper_delta.tolist() == [15.14, 10.18, 17.4]


def test_every_cell_stands_beside_the_papers(points):
    rows = report.table_at_points(points, paper="table4")
    assert len(rows) == 2 * (4 + 8 + 12) and (rows["mean"] == rows.paper_mean).all()


def test_more_users_are_compared_over_those_of_the_first_group(points):
    """The first group's users alone: the others' gains do not count."""
    cells = CELLS.pivot(index=["n_users", "user"], columns="algorithm", values="paper_mean")
    gains = 100 * (cells.fedmuscle / cells.local - 1)
    means = gains[gains.index.isin(GROUPS[0], level="user")].groupby("n_users").mean()
    assert report.minus_first(points).difference.tolist() == pytest.approx(
        [means[8] - means[4], means[12] - means[4]]
    )


def test_an_arm_of_users_alone_has_one_column_and_fedmuscle_one_for_each_number_of_users(points):
    tables = (
        report.table_at_points(points, paper="table4"),
        report.delta_at_points(points, paper="table4"),
    )
    whole = report.side_by_side(*map(report.of_groups, tables))
    assert whole.index.get_level_values("algorithm").tolist() == [
        "Local training",
        "FedMuscle, N = 4",
        "FedMuscle, N = 8",
        "FedMuscle, N = 12",
    ]
    assert whole.columns.get_level_values("user").tolist()[-12:] == list(range(1, 13))


def test_users_alone_are_run_once_for_all_groups(monkeypatch):
    asked = []

    def run_all(settings):
        asked.extend(now := list(settings))
        given = [
            {"users": s.users, "protocol": s.protocol, "setup": s.setup, "seed": s.seed}
            for s in now
        ]
        return [
            history(s.algorithm, [s.seed + 40] * len(s.users), **own)
            for s, own in zip(now, given, strict=True)
        ]

    monkeypatch.setattr("fedmuscle_lib.fedmuscle.arms.run_all", run_all)
    found = report.run_groups({"setup": "setup_noniid", "rounds": 2}, GROUPS, [0, 1], "voc")
    alone = [s for s in asked if s.algorithm != "fedmuscle"]
    assert len(alone) == 2 * len(UNCONNECTED) and {len(s.members) for s in alone} == {12}
    assert [list(s.users) for s in asked if s.algorithm == "fedmuscle"] == [
        users for users in GROUPS for _ in (0, 1)
    ]
    for point, users in zip(found, GROUPS, strict=True):
        assert point.varied == {"n_users": len(users)} and len(point.histories) == 2 * (
            len(UNCONNECTED) + 1
        )
        assert all(run.metrics.user.unique().tolist() == users for run in point.histories)
    with pytest.raises(ValueError, match="users: each point has its own"):
        report.run_groups({"setup": "setup_noniid", "users": [1, 4]}, GROUPS, [0], "voc")
