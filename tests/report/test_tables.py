"""The tables of a page beside the paper's cells, and those of an ablation's points."""

import pandas as pd
import pytest
from histories import as_arm, as_runs, history

from fedmuscle_lib import report
from fedmuscle_lib.core.notebooks import NOTEBOOKS, declared
from fedmuscle_lib.fedmuscle.ablations import ABLATION_ARMS, Point

GROUPS = declared(NOTEBOOKS / "table4.ipynb")["groups"].value
LOCAL = {1: 40, 2: 50}  # local training is better with two local epochs
VALUES = {"fedmuscle": 60, "self": 55, "head_only": 44}


def deltas(runs, paper=(), phase=report.HEADLINE):
    first = runs[0].histories[0] if isinstance(runs[0], Point) else runs[0]
    rows = report.ends(report.tidy(runs), phase)
    return report.deltas(rows, report.printed(first.settings, paper))


@pytest.fixture
def asked(monkeypatch):
    """Settings that were asked for; runs end with ``LOCAL`` or ``VALUES``, and one more for a seed
    and, with FedMuscle, for each other user of a loss.
    """
    seen = []

    def value(s):
        if s.algorithm == "local":
            return (45 if s.protocol == "tuned" else LOCAL.get(s.local_epochs, 40)) + s.seed
        return VALUES[s.algorithm] + s.others * (s.algorithm == "fedmuscle") + s.seed

    def run_all(settings):
        seen.extend(now := list(settings))
        names = ("rounds", "local_epochs", "others", "protocol", "public", "setup", "users")
        found = []
        for s in now:
            own = {name: getattr(s, name) for name in names}
            facts = {"address": str(hash(s.model_dump_json()))}
            values = [value(s)] * len(s.members)
            found.append(history(s.algorithm, values, seed=s.seed, facts=facts, **own))
        return found

    monkeypatch.setattr("fedmuscle_lib.fedmuscle.arms.run_all", run_all)
    return seen


def points(varied, seeds=(0, 1), **common):
    return report.run_points({"profile": "mini", "rounds": 2, **common}, varied, seeds, "voc")


@pytest.mark.parametrize(
    ("name", "of_cells", "printed"), [("table2", 15.93, 14.39), ("table9", 13.28, 13.3)]
)
def test_setup_2_stands_beside_its_cells(name, of_cells, printed):
    runs = as_runs(name)
    rows = report.ends(report.tidy(runs))
    users = report.metrics(rows, report.cells(runs[0].settings, [name]))
    assert len(users) == 20 and (users["mean"] == users.paper_mean).all()
    ours = deltas(runs, [name]).set_index("algorithm").drop("local").iloc[0]
    assert (round(ours.delta, 2), ours.paper_delta) == (of_cells, printed)
    assert "nan" not in report.page_table(runs, paper=[name]).to_string()


def test_a_page_stands_beside_the_papers_cells(paper_runs):
    found = deltas(paper_runs, ["table1", "table7"])
    assert len(found) == 12 and (found.delta.round(2) == found.paper_delta).all()
    shown = report.page_table(paper_runs)
    ours = shown.loc["Pascal VOC", "the paper's algorithms", "FedMuscle"]
    assert ours.tolist()[1] == "46.3 | 46.33 ± 0.12"
    assert '<td nowrap><b>+22.31</b><br><sub style="color: grey">+22.31</sub></td>' in shown.page()
    few = [history(name, [40] * 3, users=[1, 2, 3], others=2) for name in ("local", "fedmuscle")]
    assert deltas(few, ["table7"]).paper_delta.isna().all(), "the paper's is over all users"


def test_an_undefined_delta_says_why():
    runs = [history("local", [0] + [40] * 5), history("fedmuscle", [1] + [44] * 5)]
    assert "undefined: a local metric is 0" in report.page_table(runs).to_string()


def test_every_arm_is_run_at_every_point_and_the_tuned_one_has_its_own_recipe(asked):
    found = points([{"others": 1, "local_epochs": 1}, {"others": 3, "local_epochs": 2}])
    assert [point.varied["others"] for point in found] == [1, 3]
    for point in found:
        assert [run.arm for run in point.histories] == [*ABLATION_ARMS, *ABLATION_ARMS]
    assert len({s.model_dump_json() for s in asked if s.protocol == "tuned"}) == 2, "one a seed"


def test_a_tuned_arm_has_its_own_recipe_and_the_points_users(asked):
    points([{"head_hidden": 999}, {"head_hidden": 998, "setup": "setup1_unequal"}], seeds=[0])
    tuned = [s for s in asked if s.protocol == "tuned"]
    assert [s.setup for s in tuned] == ["setup1", "setup1_unequal"]
    assert tuned[0].head_hidden == tuned[1].head_hidden


def test_an_arm_that_does_not_serve_everybody_is_refused(asked):
    with pytest.raises(ValueError, match="head_only does not serve every user of setup2_generatio"):
        points([{"others": 1}], setup="setup2_generation")
    assert not asked


@pytest.mark.parametrize(
    ("common", "varied", "named"),
    [
        ({"others": 2, "lr": 0.01}, [{"others": 1}, {"others": 3}], "others"),
        ({"epochs": 20}, [{"local_epochs": 5}], "epochs"),
    ],
)
def test_a_setting_of_all_runs_that_every_point_has_otherwise_is_refused(
    asked, common, varied, named
):
    with pytest.raises(ValueError, match=f"^{named}: each point has its own"):
        points(varied, **common)
    with pytest.raises(ValueError, match="R: 50 local epochs can't be shared evenly among 3"):
        report.in_rounds(50, 3)


def test_delta_is_over_the_local_training_of_its_point_and_beside_the_papers(asked):
    found = points([{"others": n, "local_epochs": e} for n in (1, 3) for e in (1, 2)], seeds=[0])
    rows = deltas(found, ["table5"])
    assert list(rows)[:4] == ["public", "others", "local_epochs", "algorithm"]
    ours = rows[rows.algorithm == "fedmuscle"].set_index(["others", "local_epochs"])
    assert ours.delta[1, 1] == pytest.approx(100 * (61 / 40 - 1))
    assert ours.delta[1, 2] == pytest.approx(100 * (61 / 50 - 1))
    assert ours.paper_delta.tolist() == [17.9, 17.9, 26.7, 26.7]
    end = report.ends(report.tidy(found))
    within = report.moved(end, ["others"])
    assert within[["others", "local_epochs"]].values.tolist() == [[1, 2], [3, 2]]
    assert within.difference[0] == pytest.approx(ours.delta[1, 2] - ours.delta[1, 1])
    assert len(report.moved(end)) == 3
    shown = report.by_point(rows)
    assert shown.loc[(3, 2), "FedMuscle"] == f"{ours.delta[3, 2]:+.2f}"


def test_table_4_of_the_papers_cells_is_the_papers(asked):
    cells = report.cells(history("local", [40] * 12, setup="setup_noniid").settings, ["table4"])

    def papers(algorithm, users):
        own = cells[(cells.algorithm == algorithm) & (cells.n_users == len(users))]
        values = list(own.set_index("user").paper_mean[users])
        return history(algorithm, values, setup="setup_noniid", users=tuple(users))

    found = [
        Point(
            {"n_users": len(users)}, tuple(papers(name, users) for name in ("local", "fedmuscle"))
        )
        for users in GROUPS
    ]
    rows = deltas(found, ["table4"]).query("algorithm == 'fedmuscle'")
    assert rows.delta.round(2).tolist() == rows.paper_delta.tolist() == [15.14, 10.18, 17.4]
    end = report.ends(report.tidy(found))
    first = end[(end.algorithm == "fedmuscle") & end.user.isin(GROUPS[0])]
    means = first.groupby("n_users").gain.mean()
    moved = report.moved(end).difference
    assert moved.tolist() == pytest.approx([means[8] - means[4], means[12] - means[4]])


def test_a_run_of_everybody_serves_a_group_of_users_who_learn_alone():
    run = report.only(history("local", [40] * 6), [2, 5])
    assert [user.number for user in run.settings.members] == [2, 5]
    assert all(set(rows.user) == {2, 5} for rows in (run.metrics, run.costs))


def test_a_folder_holds_each_table_of_both_moments(tmp_path, asked):
    runs = [history(name, [40 + s] * 6, seed=s) for name in ("local", "fedmuscle") for s in (0, 1)]
    report.write(runs, tmp_path / "one")
    report.write(points([{"others": 1}, {"others": 2}]), tmp_path / "many", paper=["table5"])
    both = {"table", "delta", "delta_by_seed"}
    for folder, own in (("one", {"delta_by_task"}), ("many", {"minus_first"})):
        names = {f"{name}{moment}.csv" for name in both | own for moment in ("", "_after_local")}
        names |= {"costs.csv", "departures.csv", "provenance.json"}
        names |= {"overview.csv"} if folder == "many" else set()
        assert {path.name for path in (tmp_path / folder).iterdir()} == names
    delta = pd.read_csv(tmp_path / "one/delta.csv")
    assert ",".join(delta) == (
        "public,algorithm,delta,delta_std,n_seeds,ci_low,ci_high,delta_tuned,ci_low_tuned,"
        "ci_high_tuned,delta_of_means,paper_delta"
    )
    table = pd.read_csv(tmp_path / "many/table.csv")
    assert ",".join(table) == (
        "public,others,user,model,task,metric,algorithm,mean,std,n_seeds,paper_mean,paper_std"
    )
    assert table.n_seeds.eq(2).all()


def test_costs_are_per_user_and_round():
    row = report.costs([history("local", [40] * 6), history("local", [41] * 6, seed=1)]).iloc[0]
    assert (row.runs, row.uplink_bytes, row.downlink_bytes, row.tflop) == (2, 100, 300, 12)


def test_departures_name_what_differs_from_the_paper_and_the_arms_that_have_it():
    refitted = as_arm([history("fedmuscle", [40] * 6, refit=1, rounds=20)], "refit")
    rows = report.departures([history("fedmuscle", [40] * 6, rounds=20), *refitted])
    ours = rows.groupby("setting").ours.agg(list)
    assert ours["rounds"] == ["20"]
    assert ours["refit"] == ["0 (fedmuscle)", "1 (fedmuscle, refit)"]
    assert not {"seed", "train_samples"} & set(ours.index)
