"""Arms: one algorithm under several settings in one table, and how they depart from the paper."""

from dataclasses import fields

import pytest
from histories import history

from fedmuscle_lib import History, report


def test_arms_of_one_algorithm_stand_in_one_table(arms):
    names = ["local", "fedmuscle", "self", "fedmuscle, M = 1", "self, M = 1, cold"]
    table, delta = report.table(arms), report.delta(arms)
    assert (
        list(dict.fromkeys(table.algorithm))
        == delta.algorithm.tolist()
        == report.costs(arms).algorithm.tolist()
        == names
    )
    assert delta.delta.tolist() == pytest.approx([0, 10, 0, 5, 2.5])
    assert table[table.paper_mean.notna()].algorithm.unique().tolist() == [
        "local",
        "fedmuscle",
    ]  # whose M is the paper's
    shown = report.side_by_side(table, delta)
    assert shown.loc["Pascal VOC", "the paper's algorithms"].index.tolist() == [
        "Local training",
        "FedMuscle",
        "FedMuscle, M = 1",
    ]
    assert shown.loc["Pascal VOC", "controls and ours"].index.tolist() == [
        "Self (no communication)",
        "Self (no communication), M = 1, cold",
    ]
    assert report.over_baseline(arms).algorithm.drop_duplicates().tolist() == names[1:]
    assert "Δ(FedMuscle, M = 1) − Δ(FedMuscle) = **-5.00**" in report.compared(
        arms, "fedmuscle, M = 1", "fedmuscle"
    )
    assert report.costs(arms).set_index("algorithm").tflop["fedmuscle, M = 1"] == 24


def test_an_arm_may_have_a_local_training_of_its_own(arms):
    longer = [
        history("fedmuscle", [55] * 6, local_epochs=9),
        history("local", [50] * 6, local_epochs=9),
    ]
    runs = arms + report.as_arm(longer, "E = 9")
    assert report.delta(runs).set_index("algorithm").delta[
        ["fedmuscle", "fedmuscle, E = 9", "local, E = 9"]
    ].tolist() == [10, 10, 0]
    points = report.over_baseline(runs).groupby("algorithm").difference.mean()
    assert points["fedmuscle, E = 9"] == 5 and "local, E = 9" not in points


def test_departures_name_what_differs_from_the_paper():
    rows = report.departures([history("fedmuscle", [40] * 6, rounds=20, tau=0.3)]).set_index(
        "setting"
    )
    assert rows.loc["rounds"].tolist() == ["20", "150"]
    assert rows.loc["tau"].tolist() == ["0.3", "0.2"]
    assert not {"seed", "train_samples"} & set(rows.index)


def test_departures_of_several_arms_name_those_that_have_a_value():
    refitted = report.as_arm([history("fedmuscle", [40] * 6, refit=1, batch_size=20)], "refit")
    rows = report.departures([history("fedmuscle", [40] * 6), *refitted])
    assert rows.loc[rows.setting == "order", "ours"].tolist() == ["local_first"]
    assert rows.loc[rows.setting == "refit", "ours"].tolist() == [
        "0 (fedmuscle)",
        "1 (fedmuscle, refit)",
    ]
    assert rows.loc[rows.setting == "public_batch_size", "ours"].tolist() == [
        "32 (fedmuscle)",
        "20 (fedmuscle, refit)",
    ]


def test_an_arm_is_its_run_under_another_name():
    run = history("fedmuscle", [44] * 6)
    (named,) = report.as_arm([run], "M = 1")
    (renamed,) = report.as_arm([named], "M = 2")
    assert (run.arm, named.arm, renamed.arm) == (
        "fedmuscle",
        "fedmuscle, M = 1",
        "fedmuscle, M = 2",
    )
    assert all(
        getattr(named, field.name) is getattr(run, field.name)
        for field in fields(History)
        if field.name != "setting"
    )
