"""What honest users lose: the runs asked for, and the difference from runs in which nobody lies."""

from dataclasses import replace

import pandas as pd
import pytest
from histories import history

from fedmuscle_lib import report
from fedmuscle_lib.fedmuscle import ablations, arms

LOST = {
    "passive": 0.5,
    "constant": 4.0,
    "shuffled": 2.0,
    "random": 1.0,
    "negated": 3.0,
    "knowing": 2.0,
}


@pytest.fixture
def asked(monkeypatch):
    """Local training ends with 40, everything else with 60, less what the lie costs, of which a
    robust server takes half.
    """
    seen = []

    def finished(s):
        lost = sum(LOST[lie] for lie in s.hostile.values()) / (1 + s.robust)
        values = [40.0 if s.algorithm == "local" else 60.0 - lost] * len(s.members)
        run = history(
            s.algorithm, values, seed=s.seed, robust=s.robust, hostile=s.hostile, users=s.users
        )
        of = {"keeps a copy": (), "listens to 3": (2, 3, 6)}  # in whose case it is so
        rows = [
            {"round": 1, "user": n, "measure": name, "value": float(n in who)}
            for name, who in of.items()
            for n in range(1, 7)
        ]
        return replace(run, measures=pd.DataFrame(rows)) if s.algorithm == "directed" else run

    def run_all(settings):
        seen.extend(now := list(settings))
        return [finished(s) for s in now]

    for module in (arms, ablations):
        monkeypatch.setattr(module, "run_all", run_all)
    return seen


def test_a_lie_costs_what_honest_users_have_less(asked):
    points = report.run_hostile({"profile": "mini"}, 3, [0], "voc")
    assert [point.varied for point in points] == [{"lie": lie} for lie in ("none", "absent", *LOST)]
    assert {tuple(run.metrics.user.unique()) for point in points for run in point.histories} == {
        (1, 2, 4, 5, 6)
    }
    lost = report.lost_to_lies(points).set_index(["algorithm", "lie"]).difference
    for lie, less in LOST.items():
        assert lost["fedmuscle", lie] == lost["directed", lie] == pytest.approx(-100 * less / 40)
        assert (
            lost["fedmuscle, robust", lie]
            == lost["directed, robust", lie]
            == pytest.approx(-50 * less / 40)
        )


def test_every_honest_user_is_compared_with_itself_alone(asked):
    users = report.honest_users(report.run_hostile({"profile": "mini"}, 3, [0], "voc"))
    assert set(users.user) == {1, 2, 4, 5, 6} and set(users.b) == {"local"} and users.p.isna().all()
    more = users.set_index(["lie", "a", "user"]).difference
    assert (
        more["none", "directed", 2] == 20
        and more["constant", "directed", 2] == 16
        and more["constant", "directed, robust", 2] == 18
    )
    beside = report.users_beside(users)
    assert len(beside) == 4 * len(set(users.lie)) and beside.index.names == ["lie", "points"]


@pytest.mark.parametrize("override", [{"hostile": {2: "constant"}}, {"robust": 1}])
def test_what_tells_the_runs_apart_is_no_setting_of_all_of_them(asked, override):
    with pytest.raises(ValueError, match=f"{next(iter(override))}: each point has its own"):
        report.run_hostile({"profile": "mini", **override}, 3, [0], "voc")
    assert not asked


def test_who_listens_to_the_liar_is_told_of_honest_users(asked):
    heard = report.heard(report.run_hostile({"profile": "mini"}, 3, [0], "voc"), 3)
    assert heard.lie.tolist() == ["none", "absent", *LOST] and set(heard.heard_by) == {"2, 6"}


def test_variants_of_directed_are_run_on_three_seeds(asked, monkeypatch):
    monkeypatch.setattr(ablations, "_BESIDE_DIRECTED", ("local", "directed"))
    found = report.run_directed(
        {"profile": "mini", "options": {"directed.folds": 6}}, ["equals too"], [0, 1, 2, 3], "voc"
    )
    assert [(run.arm, run.settings.seed) for run in found if run.arm == "directed, equals too"] == [
        ("directed, equals too", n) for n in range(3)
    ]
    assert (
        asked[-1].options["directed.folds"] == 6 and asked[-1].options["directed.margin"] == -0.02
    )
    report.run_directed({"profile": "mini"}, ["rehearsed, tuned"], [0], "voc")
    assert (asked[-1].protocol, asked[-1].options["directed.rehearsals"]) == ("tuned", 5)
    with pytest.raises(ValueError, match="variants: unknown variant 'equal'"):
        report.run_directed({"profile": "mini"}, ["equal"], [0], "voc")
