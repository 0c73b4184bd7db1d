"""An ablation: which runs it asks for, and Delta at its points."""

import json

import pytest
from histories import history

from fedmuscle_lib import report
from fedmuscle_lib.fedmuscle import ablations as module
from fedmuscle_lib.report.paper import paper_points

LOCAL = {1: 40, 2: 50}  # local training is better with two local epochs
VALUES = {"fedmuscle": 60, "self": 55, "head_only": 44}


@pytest.fixture
def asked(monkeypatch):
    """Settings that were asked for; local training ends with ``LOCAL`` and one more for a seed, the
    others with ``VALUES`` and M more.
    """
    seen = []

    def value(s):
        if s.algorithm == "local":
            return (45 if s.protocol == "tuned" else LOCAL[s.local_epochs]) + s.seed
        return VALUES[s.algorithm] + s.others * (s.algorithm == "fedmuscle") + s.seed

    def run_all(settings):
        seen.extend(now := list(settings))
        names = ("rounds", "local_epochs", "others", "protocol", "public")
        runs = [
            (
                s,
                {name: getattr(s, name) for name in names}
                | {"facts": {"address": str(hash(s.model_dump_json()))}},
            )
            for s in now
        ]
        return [history(s.algorithm, [value(s)] * 6, seed=s.seed, **own) for s, own in runs]

    monkeypatch.setattr("fedmuscle_lib.fedmuscle.arms.run_all", run_all)
    return seen


def points(varied, seeds=(0, 1), **common):
    return report.run_points({"profile": "mini", "rounds": 2, **common}, varied, seeds, "voc")


def test_every_arm_is_run_at_every_point_and_the_tuned_one_has_its_own_recipe(asked):
    found = points([{"others": 1, "local_epochs": 1}, {"others": 3, "local_epochs": 2}])
    assert [point.varied["others"] for point in found] == [1, 3]
    for point in found:
        assert [(run.arm, run.settings.seed) for run in point.histories] == [
            (a, s) for s in (0, 1) for a in module.ABLATION_ARMS
        ]
    tuned = {s.model_dump_json() for s in asked if s.protocol == "tuned"}
    assert len(tuned) == 2, "one a seed, whatever the point"


@pytest.mark.parametrize(
    ("common", "varied", "named"),
    [
        ({"others": 2, "lr": 0.01}, [{"others": 1}, {"others": 3}], "others"),
        (
            {"cl_epochs": 2, "order": "local_first"},
            [{"order": "alignment_first", "cl_epochs": t} for t in (1, 3)],
            "cl_epochs, order",
        ),
        (
            {"epochs": 20},
            [{"local_epochs": 5}],
            "epochs",
        ),  # which would be read in the place of every point's
    ],
)
def test_a_setting_of_all_runs_that_every_point_has_otherwise_is_refused(
    asked, common, varied, named
):
    with pytest.raises(ValueError, match=f"^{named}: each point has its own"):
        points(varied, **common)
    assert not asked


def test_a_setting_that_some_points_have_serves_the_others(asked):
    found = points([{}, {"others": 3}], seeds=[0], others=1)
    assert [
        {run.settings.others for run in point.histories if not run.setting} for point in found
    ] == [{1}, {3}]


def test_rounds_share_the_local_epochs_or_are_refused():
    assert report.in_rounds(50, 25) == {"rounds": 25, "local_epochs": 2}
    for rounds in (3, 100, 0, -5):
        with pytest.raises(
            ValueError, match=f"R: 50 local epochs can't be shared evenly among {rounds} rounds"
        ):
            report.in_rounds(50, rounds)


def test_delta_is_over_the_local_training_of_its_point(asked):
    rows = report.delta_at_points(points([{"local_epochs": 1}, {"local_epochs": 2}], seeds=[0]))
    assert list(rows)[:3] == ["public", "local_epochs", "algorithm"]
    deltas = rows[rows.algorithm == "fedmuscle"].set_index("local_epochs").delta
    assert deltas.to_dict() == pytest.approx({1: 100 * (63 / 40 - 1), 2: 100 * (63 / 50 - 1)})
    moved = report.minus_first(points([{"local_epochs": 1}, {"local_epochs": 2}], seeds=[0]))
    assert moved.local_epochs.tolist() == [2] and moved.difference.tolist() == pytest.approx(
        [deltas[2] - deltas[1]]
    )


def test_a_point_may_be_compared_with_the_first_of_its_panel(asked):
    found = points([{"others": n, "local_epochs": e} for n in (1, 3) for e in (1, 2)], seeds=[0])
    alone = report.minus_first(found[2:])
    within = report.minus_first(found, panel=["others"])
    assert within[["others", "local_epochs"]].values.tolist() == [[1, 2], [3, 2]]
    assert within[within.others == 3].difference.tolist() == alone.difference.tolist()


def test_the_papers_delta_stands_beside_the_point_that_it_is_of(asked):
    rows = report.delta_at_points(
        points([{"others": n} for n in (1, 3, 5)], seeds=[0]), paper="table5"
    )
    assert rows[rows.algorithm == "fedmuscle"].set_index("others").paper_delta.to_dict() == {
        1: 17.9,
        3: 26.7,
        5: 27.74,
    }
    assert rows[rows.algorithm != "fedmuscle"].paper_delta.isna().all()
    eighth = report.paper_table("table8_delta").set_index("algorithm").delta_paper
    theirs = paper_points("table8").set_index(["rounds", "cl_epochs"]).paper_delta
    assert (
        len(theirs) == 9
        and theirs[10, 3] == eighth["fedmuscle, R = 10, T = 3"]
        and theirs[1, 1] == 5.71
    )


def test_the_files_hold_every_point_and_name_every_run_once(asked, tmp_path):
    found = points([{"others": 1}, {"others": 2}])
    report.write_points(found, tmp_path, paper="table5")
    assert {
        "table.csv",
        "delta.csv",
        "delta_after_local.csv",
        "minus_first.csv",
        "costs.csv",
        "departures.csv",
    } <= {path.name for path in tmp_path.iterdir()}
    provenance = json.loads((tmp_path / "provenance.json").read_text())
    addresses = [run["address"] for run in provenance["runs"]]
    assert len(addresses) == len(set(addresses))
    assert "others" not in provenance["command"], "the notebook varies it"


def test_choices_are_ordered_by_how_far_they_move_delta(asked):
    found = report.by_effect(points([{"others": n} for n in (3, 4, 1)], seeds=[0]))
    assert [point.varied["others"] for point in found] == [3, 1, 4]
