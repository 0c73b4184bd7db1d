"""Tables and intervals against answers known beforehand: the paper's own Deltas, Student's t, and pairing by seed."""

from __future__ import annotations

import json
import math
import shlex
from functools import partial
from itertools import combinations_with_replacement
from statistics import pstdev

import pandas as pd
import pytest

from fedmuscle_lib import Settings, algorithms, plots, report
from fedmuscle_lib.experiment import History
from fedmuscle_lib.setups import SETUPS
from fedmuscle_lib.tasks import TASKS

LARGE = "τ(SS, TC) = 100"


def history(algorithm, values, *, seed=0, public="voc", before=None, flops=10**12, sent=100, **settings):
    """A finished run whose users ended with ``values``, and had ``before`` (the same if None) before the last alignment.

    The n-th user's trivial answer reaches n per cent, and one more for each seed.
    """
    users = SETUPS[settings.get("setup", "setup1")]
    rows = [
        dict(round=round, phase=phase, user=u.number, model=u.model, task=u.task, metric=TASKS[u.task].metric, value=value / (3 - round))
        for round in (1, 2)
        for phase, phase_values in (("after_local", before or values), ("after_alignment", values))
        for u, value in zip(users, phase_values, strict=True)
    ]
    costs = [
        {"round": round, "user": u.number, "uplink_bytes": sent, "downlink_bytes": 3 * sent, "flops": flops}
        for round in (1, 2)
        for u in users
    ]
    provenance = {"seconds": 5.0, "peak_memory_bytes": 2**30, "finished": "2026-01-01", "machine": "a machine", "settings": {}}
    provenance["trivial"] = {str(u.number): float(u.number + seed) for u in users}
    return History(Settings(algorithm=algorithm, public=public, seed=seed, **settings), pd.DataFrame(rows), pd.DataFrame(costs), provenance)


# the profile that names a checkpoint for every model
history2 = partial(history, public="flickr30k", setup="setup2", profile="paper")


def as_runs(table):
    """A table of the paper as runs of one seed: an algorithm that never looks at public data has one for all public sets."""
    cells = report.paper_table(table)
    blind = cells.algorithm.map(lambda name: "public" in algorithms.get(report.algorithm_of(name)).ignores)
    groups = cells[~blind | (cells.public == cells.public[0])].groupby(["public", "algorithm"], sort=False)["mean"]
    make = history2 if cells.setup[0] == "setup2" else history
    runs = []
    for (public, name), means in groups:
        algorithm, _, setting = name.partition(", ")
        run = [make(algorithm, list(means), public=public)]
        runs += report.as_arm(run, setting) if setting else run
    return runs


def with_deltas(deltas, *, seed=0, public="voc"):
    """A run of each algorithm of ``deltas``, which has that Delta, and one of local training."""
    return [history(name, [40 + 0.4 * delta] * 6, seed=seed, public=public) for name, delta in {"local": 0, **deltas}.items()]


# --- the paper ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paper_runs():
    return as_runs("table7")


@pytest.fixture(scope="module")
def table1_runs():
    return as_runs("table1")


def test_delta_of_the_papers_own_cells_is_the_papers_delta(paper_runs):
    delta = report.delta(paper_runs)
    assert len(delta) == 12
    assert ",".join(delta.columns).startswith("public,algorithm,delta,delta_std,paper_delta")
    assert (delta.delta.round(2) == delta.paper_delta).all()


def test_two_of_table_1s_deltas_are_not_those_of_its_cells(table1_runs):
    delta = report.delta(table1_runs).set_index(["algorithm", "public"])
    assert len(delta) == 27
    others = delta[delta.delta.round(2) != delta.paper_delta]
    assert others.delta.round(2).to_dict() == {("fedhenn", "voc"): 1.36, ("fedhenn", "coco"): 2.51}
    assert others.paper_delta.to_dict() == {("fedhenn", "voc"): -0.41, ("fedhenn", "coco"): 2.57}


def test_table_1_stands_beside_its_cells(table1_runs):
    table = report.table(table1_runs)
    assert len(table) == 162
    assert (table["mean"] == table.paper_mean).all() and table.paper_std.notna().all()


@pytest.mark.parametrize(("suffix", "cells"), [("", 162 + 72 - 36), ("_delta", 27 + 12 - 6)])
def test_tables_1_and_7_agree_on_what_both_have(suffix, cells):
    union = report.paper_table(f"table1{suffix}", f"table7{suffix}")
    key = [name for name in ("public", "user", "algorithm") if name in union]
    assert len(union) == cells and not union.duplicated(key).any()


@pytest.mark.parametrize(("name", "of_cells", "printed"), [("table2", 15.93, 14.39), ("table9", 13.28, 13.3)])
def test_setup_2_stands_beside_its_cells(name, of_cells, printed):
    runs = as_runs(name)
    table, delta = report.table(runs, paper=(name,)), report.delta(runs, paper=(name,))
    assert len(table) == 2 * 10 and (table["mean"] == table.paper_mean).all()
    ours = delta.set_index("algorithm").drop("local").iloc[0]
    assert (round(ours.delta, 2), ours.paper_delta) == (of_cells, printed)
    assert report.paper_deltas(name).set_index("algorithm").round(2).loc[ours.name].tolist() == ["flickr30k", printed, of_cells]
    assert "nan" not in report.side_by_side(table, delta).to_string()  # Table 9 has no deviations


def test_table_2_has_two_runs_of_fedmuscle_and_three_of_local_training():
    def could_be(n, cell):
        """Whether n values with one decimal have the printed mean and population standard deviation."""
        reach = 15 * cell.std + 1  # no one of three is further from their mean than 1.42 standard deviations
        near = range(math.floor(10 * cell.average - reach), math.ceil(10 * cell.average + reach) + 1)
        tenths = (values for values in combinations_with_replacement(near, n) if abs(sum(values) / n - 10 * cell.average) < 0.051)
        return any(abs(pstdev(values) - 10 * cell.std) < 0.051 for values in tenths)

    cells = report.paper_table("table2").rename(columns={"mean": "average"}).groupby("algorithm")
    possible = {(name, n): [could_be(n, cell) for cell in rows.itertuples()] for name, rows in cells for n in (2, 3)}
    assert all(possible["fedmuscle", 2]) and not all(possible["fedmuscle", 3])
    assert all(possible["local", 3]) and not any(possible["local", 2])
    locals1 = report.paper_table("table1").query("algorithm == 'local' and public == 'voc'")
    assert cells.get_group("local").average.tolist()[:6] == locals1["mean"].tolist()


def test_table_9_improves_on_local_training_but_on_table_2_for_one_user_only():
    gains = report.paper_gains("table2", "table9")
    wide = gains[gains.task.isin(["SS", "TC"])].pivot(index="user", columns="algorithm", values="gain")
    usual, large = wide["fedmuscle"], wide[f"fedmuscle, {LARGE}"]
    assert (large > 0).all() and (large > usual).tolist() == [False, False, False, True]
    assert gains[gains.algorithm == "local"].gain.eq(0).all()


@pytest.mark.parametrize(
    ("setup", "public", "n"),
    [("setup2", "flickr30k", 20), ("setup2", "voc", 0), ("setup1", "flickr30k", 0), ("setup2_generation", "flickr30k", 0)],
)
def test_other_federations_and_public_sets_have_no_cells(setup, public, n):
    values = [40] * len(SETUPS[setup])
    runs = [history2(name, values, setup=setup, public=public) for name in ("local", "fedmuscle")]
    assert report.table(runs).paper_mean.notna().sum() == n
    assert report.delta(runs).paper_delta.notna().sum() == n / 10


def test_table_stands_beside_the_papers_cells(paper_runs):
    table = report.table(paper_runs)
    assert ",".join(table.columns) == "public,user,model,task,metric,algorithm,mean,std,n_seeds,paper_mean,paper_std"
    assert len(table) == 72
    assert (table["mean"] == table.paper_mean).all()
    assert table["std"].isna().all()  # one seed has no spread
    assert set(table.algorithm) == {"local", "fedmuscle", "gramian", "pairwise"}


def test_standard_deviation_is_the_papers():
    runs = [history("local", [value] * 6, seed=seed) for seed, value in enumerate((46.2, 46.3, 46.5))]
    row = report.table(runs).iloc[0]
    assert (round(row["mean"], 2), round(row["std"], 2), row.n_seeds) == (46.33, 0.12, 3)  # Table 7, Pascal VOC, user 1, Muscle loss


def test_algorithms_that_the_paper_does_not_have_get_no_cell():
    runs = [history("local", [40] * 6), history("self", [44] * 6)]
    assert report.delta(runs).set_index("algorithm").paper_delta.to_dict() == pytest.approx({"local": 0, "self": math.nan}, nan_ok=True)
    assert report.table(runs).query("algorithm == 'self'").paper_mean.isna().all()


def test_the_formula_of_table_5_gives_its_printed_digits():
    ledger = report.ledger(Settings())
    assert list(ledger.M) == [1, 2, 3, 4, 5]
    truncated = (ledger.paper_formula_gb * 1000).apply(math.floor) / 1000
    assert list(truncated) == list(ledger.paper_table5_gb)


def test_the_ledger_counts_every_batch():
    settings = Settings(public_size=70, batch_size=32, proj_dim=256, cl_epochs=2)  # batches of 32, 32 and 6, twice
    row = report.ledger(settings, [3]).iloc[0]
    assert row.gradient_mb * 1e6 == pytest.approx(2 * (2 * 70 * 256 * 4), rel=0.01)  # up and down; the loss value is a few bytes
    assert row.dense_mb * 1e6 > 2 * 2 * 32**3 * 256 * 4
    assert row.gradient_mb < row.factored_mb < row.dense_mb


# --- seeds -------------------------------------------------------------------------------------------------------------------


def test_interval_is_students():
    rows = pd.DataFrame({"group": "a", "x": [1.0, 2, 3, 4, 5]})
    row = report.over_seeds(rows, ["group"], "x").iloc[0]
    assert row["mean"] == 3
    assert row.ci_high - 3 == pytest.approx(2.7764451 * math.sqrt(2.5 / 5))
    assert row["std"] == pytest.approx(math.sqrt(2))
    assert row.ci_low + row.ci_high == pytest.approx(6)


def test_one_seed_has_no_interval():
    row = report.delta([history("local", [40] * 6), history("fedmuscle", [44] * 6)]).set_index("algorithm").loc["fedmuscle"]
    assert row.delta == pytest.approx(10)
    assert row[["delta_std", "ci_low", "ci_high"]].isna().all()
    assert "One seed" in report.note([history("local", [40] * 6)])


def test_delta_compares_runs_of_the_same_seed():
    runs = [history("fedmuscle", [level * 1.1] * 6, seed=seed) for seed, level in ((2, 60), (0, 20), (1, 40))]
    runs += [history("local", [level] * 6, seed=seed) for seed, level in enumerate((20, 40, 60))]
    row = report.delta(runs).set_index("algorithm").loc["fedmuscle"]
    assert (row.delta, row.delta_std, row.ci_low, row.ci_high) == pytest.approx((10, 0, 10, 10))


def test_differences_are_paired_over_seeds():
    runs = [history("self", [level] * 6, seed=seed) for seed, level in enumerate((20, 40, 60))]
    runs += [history("fedmuscle", [level] * 6, seed=seed) for seed, level in enumerate((20 + 1, 40 + 2, 60 + 3))]
    runs.append(history("fedmuscle", [99] * 6, seed=7))  # without a partner it has no say
    rows = report.per_user_difference(runs, "fedmuscle", "self")
    assert ",".join(rows.columns) == "public,user,model,task,metric,difference,std,n_seeds,ci_low,ci_high"
    assert len(rows) == 6
    assert rows.n_seeds.eq(3).all()
    assert rows.difference.tolist() == pytest.approx([2] * 6)
    assert rows.ci_high[0] - 2 == pytest.approx(4.3026527 / math.sqrt(3))


def test_every_delta_minus_that_of_a_control():
    runs = spread_runs() + [history("fedmuscle", [44] * 6, public="coco"), history("self", [40] * 6, public="coco")]
    rows = report.delta_over(runs, "self")
    assert rows.algorithm.drop_duplicates().tolist() == ["local", "fedmuscle"]
    pd.testing.assert_frame_equal(
        rows[rows.algorithm == "fedmuscle"].drop(columns="algorithm").reset_index(drop=True),
        report.delta_difference(runs, "fedmuscle", "self"),
    )
    shown = report.by_public(rows)
    assert shown.index.tolist() == ["Local training", "FedMuscle"] and shown.columns.tolist() == ["voc", "coco"]
    assert shown.loc["FedMuscle", "coco"] == "+10.00" and shown.loc["Local training", "voc"] == "+0.00 [+0.00, +0.00]"


def test_delta_by_task_is_the_mean_over_its_users(tmp_path):
    runs = [history("local", [40] * 6, seed=seed) for seed in (0, 1)]
    runs += [history("fedmuscle", [44 + seed, 40, 42, 36, 40, 50], seed=seed) for seed in (0, 1)]
    rows = report.delta_by_task(runs).set_index(["algorithm", "task"])
    assert ",".join(rows.reset_index().columns) == "algorithm,task,public,delta,delta_std,n_seeds,ci_low,ci_high"
    assert rows.loc["fedmuscle"].delta.to_dict() == pytest.approx({"MLC": (10 + 12.5 + 0 + 0 + 5 + 5) / 6, "IC100": -5, "IC10": 25})
    mlc, ic10 = rows.loc[("fedmuscle", "MLC")], rows.loc[("fedmuscle", "IC10")]
    assert mlc.delta_std == pytest.approx(2.5 / 6) and ic10.ci_low == ic10.ci_high == pytest.approx(25)
    shown = report.by_task(report.delta_by_task(runs))
    assert shown.columns.tolist() == ["MLC", "IC100", "IC10"]
    assert shown.loc[("voc", "FedMuscle"), "IC100"] == "-5.00 [-5.00, -5.00]"
    report.write(runs, tmp_path)
    assert pd.read_csv(tmp_path / "delta_by_task.csv").query("algorithm == 'fedmuscle'").delta.round(2).tolist() == [5.42, -5, 25]


def test_gains_are_compared_beside_the_papers():
    """Ours over the same local training, the paper's each over the local training of its own table."""
    values = {"local": [40] * 10, "fedmuscle": [44] * 10}
    runs = [history2(name, cells, seed=seed) for name, cells in values.items() for seed in (0, 1)]
    runs += report.as_arm([history2("fedmuscle", [46 + 2 * seed] * 10, seed=seed) for seed in (0, 1)], LARGE)
    rows = report.gain_difference(runs, f"fedmuscle, {LARGE}", "fedmuscle", paper=("table2", "table9")).set_index("user")
    assert rows.difference.tolist() == pytest.approx([7.5] * 10) and rows["std"].tolist() == pytest.approx([2.5] * 10)
    assert rows.paper_difference[10] == pytest.approx(100 * (55.8 / 54.9 - 54.1 / 56.03))
    assert report.gain_difference(runs, f"fedmuscle, {LARGE}", "fedmuscle").paper_difference.isna().all()


def test_trivial_answers_stand_beside_what_was_learnt():
    """They are the seed's, whatever the algorithm."""
    runs = [history(name, [40] * 6, seed=seed) for name in ("local", "self") for seed in (0, 2)]
    trivial = report.trivial(runs)
    assert ",".join(trivial.columns) == "user,model,task,metric,mean,std,n_seeds"
    assert trivial["mean"].tolist() == [2, 3, 4, 5, 6, 7] and trivial["std"].eq(1).all() and trivial.n_seeds.eq(2).all()
    shown = report.side_by_side(report.table(runs), report.delta(runs), trivial)
    assert shown["no input", "Trivial answer"].tolist() == [f"{n}.0 ± 1.0" for n in range(2, 8)] + [""]


def test_phases_are_told_apart(tmp_path):
    runs = [history("local", [40] * 6), history("fedmuscle", [44] * 6, before=[48] * 6)]
    assert report.delta(runs, "after_alignment").delta[1] == pytest.approx(10)
    assert report.delta(runs, "after_local").delta[1] == pytest.approx(20)
    report.write(runs, tmp_path)
    assert pd.read_csv(tmp_path / "delta.csv").delta[1] == 10
    assert pd.read_csv(tmp_path / "delta_after_local.csv").delta[1] == 20
    assert set(pd.read_csv(tmp_path / "table.csv").columns) == set(report.TABLE_COLUMNS)


def test_curve_reads_every_round():
    runs = [history("local", [40] * 6), history("fedmuscle", [44] * 6)]
    curve = report.curve(runs).query("algorithm == 'fedmuscle'")
    assert curve["round"].tolist() == [1, 2]
    assert curve.delta.tolist() == pytest.approx([10, 10])


# --- what can't be compared --------------------------------------------------------------------------------------------------


def test_local_training_serves_every_public_set():
    runs = [history("local", [40] * 6)] + [history("fedmuscle", [44] * 6, public=public) for public in ("voc", "coco")]
    assert report.delta(runs).groupby("public").size().to_dict() == {"voc": 2, "coco": 2}


def test_an_undefined_delta_is_not_a_number():
    runs = [history("local", [0] + [40] * 5), history("fedmuscle", [1] + [44] * 5)]
    assert math.isnan(report.delta(runs).delta[1])
    assert "undefined" in report.side_by_side(report.table(runs), report.delta(runs)).to_string()


def test_refusals_name_what_is_wrong():
    local = history("local", [40] * 6)
    with pytest.raises(ValueError, match="fedmuscle on voc with seed 1 has no run of local training"):
        report.delta([local, history("fedmuscle", [44] * 6, seed=1)])
    with pytest.raises(ValueError, match="two different runs of fedmuscle on voc with seed 0"):
        report.table([history("fedmuscle", [44] * 6), history("fedmuscle", [45] * 6, tau=0.3)])
    with pytest.raises(ValueError, match="different evaluate_on"):
        report.table([local, history("fedmuscle", [44] * 6, evaluate_on="validation")])
    with pytest.raises(ValueError, match="no run with the same seed"):
        report.per_user_difference([local, history("self", [44] * 6, seed=1)], "self", "local")
    with pytest.raises(ValueError, match="no runs"):
        report.table([])


# --- arms: one algorithm under several settings ------------------------------------------------------------------------------


@pytest.fixture
def arms():
    """FedMuscle and self, as usual and with another M."""
    runs = [history("local", [40] * 6), history("fedmuscle", [44] * 6), history("self", [40] * 6)]
    runs += report.as_arm([history("fedmuscle", [42] * 6, others=1, flops=2 * 10**12)], "M = 1")
    return runs + report.as_arm([history("self", [41] * 6, others=1, tau=0.3)], "M = 1, cold")


def test_arms_of_one_algorithm_stand_in_one_table(arms):
    names = ["local", "fedmuscle", "self", "fedmuscle, M = 1", "self, M = 1, cold"]
    table, delta = report.table(arms), report.delta(arms)
    assert list(dict.fromkeys(table.algorithm)) == delta.algorithm.tolist() == report.costs(arms).algorithm.tolist() == names
    assert delta.delta.tolist() == pytest.approx([0, 10, 0, 5, 2.5])
    assert table[table.paper_mean.notna()].algorithm.unique().tolist() == ["local", "fedmuscle"]  # whose M is the paper's
    shown = report.side_by_side(table, delta)
    assert shown["the paper's algorithms"].columns.tolist() == ["Local training", "FedMuscle", "FedMuscle, M = 1"]
    assert shown["controls and ours"].columns.tolist() == ["Self (no communication)", "Self (no communication), M = 1, cold"]
    assert report.over_baseline(arms).algorithm.drop_duplicates().tolist() == names[1:]
    assert "Δ(FedMuscle, M = 1) − Δ(FedMuscle) = **-5.00**" in report.compared(arms, "fedmuscle, M = 1", "fedmuscle")
    assert report.costs(arms).set_index("algorithm").tflop["fedmuscle, M = 1"] == 24


def test_where_arms_come_from_can_be_told(arms, tmp_path):
    report.write(arms, tmp_path, others=[history2("local", [40] * 11, setup="setup2_generation")])
    runs = json.loads((tmp_path / "provenance.json").read_text())["runs"]
    assert [run["algorithm"] for run in runs] == [*map(report.arm, arms), "local"]
    assert [(run["others"], run["tau"]) for run in runs] == [(3, 0.2)] * 3 + [(1, 0.2), (1, 0.3), (3, 0.2)]
    assert runs[-1]["setup"] == "setup2_generation" and not {"lr", "tau_prime"} & set(runs[0])
    rows = report.departures(arms).set_index("setting")
    assert rows.loc["others"].tolist() == ["1 (fedmuscle, M = 1; self, M = 1, cold)", "3"]
    assert rows.loc["tau"].tolist() == ["0.3 (self, M = 1, cold)", "0.2"]
    assert rows.loc["rounds", "ours"] == "20"  # all of them


def test_an_arm_may_have_a_local_training_of_its_own(arms):
    longer = [history("fedmuscle", [55] * 6, local_epochs=9), history("local", [50] * 6, local_epochs=9)]
    runs = arms + report.as_arm(longer, "E = 9")
    assert report.delta(runs).set_index("algorithm").delta[["fedmuscle", "fedmuscle, E = 9", "local, E = 9"]].tolist() == [10, 10, 0]
    points = report.over_baseline(runs).groupby("algorithm").difference.mean()
    assert points["fedmuscle, E = 9"] == 5 and "local, E = 9" not in points


# --- the order of the algorithms ---------------------------------------------------------------------------------------------


def test_the_papers_own_order_agrees_with_itself(paper_runs):
    ranks = report.rank_agreement(paper_runs)
    assert ranks.public.tolist() == ["voc", "coco", "cifar100"]
    assert ranks.n_algorithms.eq(4).all()
    assert ranks.rho.tolist() == ranks.tau.tolist() == pytest.approx([1] * 3)
    assert ranks.rho_p.tolist() == ranks.tau_p.tolist() == pytest.approx([2 / math.factorial(4)] * 3)  # the two extremes of 24 orders
    assert ranks.n_seeds.eq(1).all() and ranks[["rho_lowest", "rho_highest"]].isna().all(axis=None)


def test_all_nine_algorithms_are_compared(table1_runs):
    ranks = report.rank_agreement([run for run in table1_runs if run.settings.public == "voc"]).iloc[0]
    # by its cells FedHeNN is sixth, not eighth, so that two others are a place lower: rho is 1 - 6 (2^2 + 1 + 1) / (9^3 - 9)
    assert (ranks.n_algorithms, ranks.rho, ranks.tau) == pytest.approx((9, 0.95, 1 - 2 * 2 / 36))
    assert ranks.rho_p < 1e-3


def test_an_opposite_order_and_one_with_a_tie():
    opposite = with_deltas({"fedmuscle": -3, "gramian": -2, "pairwise": -1, "self": 99})  # which the paper does not have
    ranks = report.rank_agreement(opposite).iloc[0]
    assert (ranks.n_algorithms, ranks.rho, ranks.tau) == pytest.approx((4, -1, -1))
    tied = report.rank_agreement(with_deltas({"fedmuscle": 3, "gramian": 3, "pairwise": 1})).iloc[0]
    # ranks 3.5, 3.5, 2, 1 against 4, 3, 2, 1; five of the six pairs are in order and one is tied
    assert (tied.rho, tied.tau) == pytest.approx((4.5 / math.sqrt(4.5 * 5), 5 / math.sqrt(5 * 6)))


def test_single_seeds_show_how_far_the_order_is_noise():
    runs = with_deltas({"fedmuscle": 3, "gramian": 2, "pairwise": 1})
    runs += with_deltas({"fedmuscle": -2.9, "gramian": -2, "pairwise": -1}, seed=1)
    runs += [history("fedmuscle", [99] * 6, seed=2), history("local", [40] * 6, seed=2)]  # the others lack this one
    ranks = report.rank_agreement(runs).iloc[0]
    assert (ranks.n_seeds, ranks.rho_lowest, ranks.rho_highest) == pytest.approx((2, -1, 1))


@pytest.mark.parametrize(
    ("runs", "n"),
    [
        (with_deltas({}), 1),
        (with_deltas({"fedmuscle": 0, "gramian": 0}), 3),
        ([history("local", [40] * 6, users=(3, 4, 5, 6)), history("fedmuscle", [44] * 6, users=(3, 4, 5, 6))], 0),
    ],
    ids=["one algorithm", "all alike", "not all users"],
)
def test_where_there_is_no_order_there_is_no_agreement(runs, n):
    ranks = report.rank_agreement(runs)
    assert ranks.n_algorithms.tolist() == [n]
    assert ranks[["rho", "rho_p", "tau", "tau_p", "rho_lowest", "rho_highest"]].isna().all(axis=None)
    assert "`voc`: 0 of the" in report.displaced(runs)
    assert plots.agreement(report.delta(runs), ranks).axes[0].get_title() == "voc"


def test_pairs_out_of_order_are_named_the_furthest_first(paper_runs):
    assert "- `voc`: 0 of the 6 pairs" in report.displaced(paper_runs)
    lines = report.displaced(with_deltas({"fedmuscle": 1, "gramian": 2, "pairwise": 3}), most=2).splitlines()
    assert lines[0] == "- `voc`: 3 of the 6 pairs of algorithms that the paper has a Δ for stand the other way round than there."
    assert lines[1].startswith("  - Pairwise alignment (place 1, there 3) before FedMuscle (place 3, there 1): ")
    assert "= **+2.00** points; without an interval this can't be told from chance. The paper's is -9.36." in lines[1]
    assert len(lines) == 3


# --- sentences ---------------------------------------------------------------------------------------------------------------


def spread_runs():
    """Three seeds on which FedMuscle is clearly above self for users 1 and 2, clearly below for 3, and undecided for the rest."""
    gains = {0: (5, 5, -5, 0, 0, 0), 1: (5.1, 5.2, -5.1, 3, -3, 1), 2: (5.2, 5.1, -5.2, -3, 3, -1)}
    runs = [history(name, [40] * 6, seed=seed) for seed in gains for name in ("local", "self")]
    return runs + [history("fedmuscle", [40 + g for g in row], seed=seed) for seed, row in gains.items()]


def test_sentences_say_what_the_numbers_say():
    text = report.users_told_apart(spread_runs(), "fedmuscle", "self")
    assert "better than Self (no communication) for 2 of 6 users (users 1, 2) and worse for 1 (user 3)" in text
    assert "for the other 3 it includes 0" in text
    one_seed = [run for run in spread_runs() if run.settings.seed == 0]
    assert "On its one seed FedMuscle is better than Self (no communication) for 2 of 6" in report.users_told_apart(
        one_seed, "fedmuscle", "self"
    )
    assert "can't be told from chance" in report.compared(one_seed, "fedmuscle", "self")


def test_comparison_of_deltas_quotes_the_paper(paper_runs):
    text = report.compared(paper_runs, "fedmuscle", "gramian")
    assert "- `voc`: Δ(FedMuscle) − Δ(Gramian loss) = **+2.69** points" in text
    assert "The paper's is +2.69." in text
    assert text.count("\n") == 2


def test_rendering_puts_ours_beside_the_papers(paper_runs):
    shown = report.side_by_side(report.table(paper_runs), report.delta(paper_runs))
    shown = shown.reset_index()
    papers = shown["the paper's algorithms"]
    assert papers[(shown.public == "voc") & (shown.user == 1)]["FedMuscle"].item() == "46.3 | 46.33 ± 0.12"
    assert papers[(shown.public == "coco") & (shown.user == "")]["Gramian loss"].item() == "+22.31 | +22.31"


def test_controls_and_ours_stand_apart():
    runs = [history(name, [40] * 6) for name in ("local", "self", "fedmuscle", "anchored", "pairwise")]
    columns = report.side_by_side(report.table(runs), report.delta(runs)).columns
    assert columns[:3].tolist() == [("the paper's algorithms", name) for name in ("Local training", "FedMuscle", "Pairwise alignment")]
    assert columns[3:].tolist() == [("controls and ours", name) for name in ("Self (no communication)", "Anchored FedMuscle (ours)")]


def test_departures_name_what_differs_from_the_paper():
    rows = report.departures([history("fedmuscle", [40] * 6, rounds=20, tau=0.3)]).set_index("setting")
    assert rows.loc["rounds"].tolist() == ["20", "150"]
    assert rows.loc["tau"].tolist() == ["0.3", "0.2"]
    assert not {"seed", "train_samples"} & set(rows.index)


def test_departures_name_the_training_sets_that_are_not_appendix_gs():
    sizes = {"IC10": 50, "IC100": 30, "MLC": 150}
    rows = report.departures([history("fedmuscle", [40] * 6, train_samples=sizes)]).set_index("setting")
    assert rows.loc["train_samples"].tolist() == ["MLC: 150, IC100: 30", "MLC: 200, IC100: 100"]
    alone = history("local", [40] * 6, train_samples=sizes, users=(6,))
    assert "train_samples" not in report.departures([alone]).setting.tolist()


def test_costs_are_per_user_and_round():
    row = report.costs([history("local", [40] * 6), history("local", [41] * 6, seed=1)]).iloc[0]
    assert (row.runs, row.uplink_bytes, row.downlink_bytes, row.tflop, row.peak_memory_mib) == (2, 100, 300, 12, 1024)


def test_costs_stand_beside_the_papers_as_ratios():
    runs = [history("local", [40] * 6, sent=0), history("head_only", [40] * 6, sent=0, flops=5 * 10**11)]
    runs += [
        history("fedmuscle", [44] * 6, public=public, flops=flops, sent=10**6) for public, flops in (("voc", 10**12), ("coco", 2 * 10**12))
    ]
    runs += [history("shuffled", [44] * 6, sent=2 * 10**6)]
    rows = report.relative_costs(runs).set_index("algorithm")
    assert rows.flop_over_local.to_dict() == {"local": 1, "head_only": 0.5, "fedmuscle": 1.5, "shuffled": 1}
    assert rows.paper_flop_over_local.to_dict() == pytest.approx(
        {"local": 1, "head_only": math.nan, "fedmuscle": 523 / 29, "shuffled": math.nan}, nan_ok=True
    )
    assert rows.bytes_over_fedmuscle.to_dict() == {"local": 0, "head_only": 0, "fedmuscle": 1, "shuffled": 2}
    assert rows.loc["fedmuscle", ["seconds_over_local", "uplink_mb", "downlink_mb"]].tolist() == [1, 1, 3]
    assert "The 2 algorithms of Table 1" in (text := report.cost_order(runs)) and "ρ = **+1.00** (p = 1)" in text
    with pytest.raises(ValueError, match="need a run of fedmuscle and of local"):
        report.relative_costs(runs[1:2])


def test_costs_of_some_users_are_not_compared_with_the_papers():
    runs = [history(name, [40] * 6, users=(3, 4, 5, 6)) for name in ("local", "fedmuscle")]
    assert report.relative_costs(runs).paper_flop_over_local.isna().all()
    assert "no order" in report.cost_order(runs)


# --- figures -----------------------------------------------------------------------------------------------------------------


def test_every_algorithm_has_a_colour_and_a_marker_of_its_own():
    assert set(plots.STYLES) >= set(algorithms.names())
    assert len({colour for colour, _ in plots.STYLES.values()}) == len({marker for _, marker in plots.STYLES.values()}) == len(plots.STYLES)


def test_what_is_not_in_the_table_has_a_colour_of_its_own_too():
    arms = ["local", "not there yet", "fedmuscle", *(f"fedmuscle, M = {m}" for m in range(1, 6))]
    look = plots.styles(arms)
    assert look == plots.styles(arms * 2) and list(look) == arms
    assert {name: look[name] for name in ("local", "fedmuscle")} == {name: plots.STYLES[name] for name in ("local", "fedmuscle")}
    colours = {colour for colour, _ in look.values()}
    declared = {colour for name, (colour, _) in plots.STYLES.items() if name not in arms}
    assert len(colours) == len(arms) and not colours & declared
    assert {look[f"fedmuscle, M = {m}"][1] for m in range(1, 6)} == {look["fedmuscle"][1]}


def test_figures_hold_what_they_are_given_and_save_to_the_same_bytes(paper_runs, tmp_path):
    bars = plots.figure2(report.delta(paper_runs))
    assert len(bars.axes[0].patches) == 3 * 3 * 2
    assert bars.axes[0].get_ylabel().endswith("(%)")
    runs = spread_runs()
    panels = plots.controls(report.over_baseline(runs), report.delta(runs))
    assert len(panels.axes) == 7
    ten = [history2(name, [40] * 10) for name in ("local", "fedmuscle")]
    wrapped = plots.controls(report.over_baseline(ten), report.delta(ten)).axes
    assert [ax.get_subplotspec().rowspan.start for ax in wrapped if ax.axison] == [0] * 6 + [1] * 5
    assert wrapped[10].get_title() == "all users"
    strips = plots.table1(report.delta([*paper_runs, history("self", [40] * 6)]))
    hollow = [[line for line in ax.lines if line.get_fillstyle() == "none" and not math.isnan(line.get_xdata()[0])] for ax in strips.axes]
    assert [len(lines) for lines in hollow] == [4, 4, 4]
    points = plots.agreement(report.delta(paper_runs), report.rank_agreement(paper_runs))
    assert points.axes[0].get_title() == "voc: ρ = +1.00"
    assert {text.get_text() for text in points.axes[0].texts} == {"Local training", "FedMuscle", "Gramian loss", "Pairwise alignment"}
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        curve = plots.training_curve(report.curve(runs))
        for name, figure in {"bars": bars, "panels": panels, "strips": strips, "points": points, "curve": curve}.items():
            plots.save(figure, folder, name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_names_of_points_cover_nothing():
    """Not even where points lie on top of each other."""
    runs = with_deltas({"fedmuscle": 0.01, "gramian": 0.02, "pairwise": 0.01})
    (ax,) = plots.agreement(report.delta(runs).assign(paper_delta=[0, 0.1, 0.1, 30]), report.rank_agreement(runs)).axes
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not [1 for i, box in enumerate(boxes) for other in boxes[:i] if box.overlaps(other)]
    points = ax.transData.transform([line.get_xydata()[0] for line in ax.lines if line.get_marker() not in ("None", "")])
    assert len(points) == 4 and not [1 for box in boxes for point in points if box.contains(*point)]


def test_a_subset_is_said_to_be_one(tmp_path):
    """A data set that its manifest calls unofficial is named under the table and in the provenance; one that is whole is not."""
    for folder, dataset, official in (("IC/CIFAR100", "cifar100", True), ("IC/CIFAR10", "cifar10", False)):
        path = tmp_path / folder / "manifest.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"dataset": dataset, "official": official, "counts": {"found": {"train": 50}}, "sizes": []}))
    runs = [history(name, [1, 2, 3, 4, 5, 6], data_dir=tmp_path) for name in ("local", "fedmuscle")]
    told = report.provenance(runs, "table7")["data"]
    assert told["IC/CIFAR10"]["counts"] == {"found": {"train": 50}} and set(told) == {"IC/CIFAR10", "IC/CIFAR100"}
    assert "Of `cifar10` a subset" in report.note(runs)
    assert "subset" not in report.note([history("local", [1, 2, 3, 4, 5, 6])])


def test_provenance_tells_how_to_repeat_the_runs():
    runs = [history("local", [40.0] * 6, seed=seed, rounds=2) for seed in (1, 0)]
    facts = report.provenance(runs, "table7")
    assert facts["command"] == "python -m fedmuscle_lib reproduce table7 --profile mini --seeds 0,1 -p rounds=2"
    for_a_shell = report.provenance([history2("local", [40.0] * 10)], "table2")["command"]
    assert shlex.split(for_a_shell)[-2:] == ["-p", 'setup="setup2"']
    assert [run["seed"] for run in facts["runs"]] == [1, 0] and facts["made_with"] == [{"machine": "a machine"}]


def test_replies_are_compared_with_the_first():
    first = history("fedmuscle", [40.0] * 6)
    second = history("fedmuscle", [40.0] * 5 + [40.5], reply="factored")
    table = report.replies([first, second]).set_index("reply")
    assert table.largest_difference.gradient == 0 and table.largest_difference.factored == pytest.approx(0.5)


def test_a_target_is_met_or_not():
    runs = [history("local", [40.0] * 6), history("fedmuscle", [44.0] * 6)]
    assert "measured +10.00 % (one seed, no interval): reached" in report.against_target(runs, "fedmuscle", {"voc": 8})
    assert "**not reached**" in report.against_target(runs, "fedmuscle", {"voc": 12})
    runs += [history("local", [40.0] * 6, seed=1), history("fedmuscle", [40.4] * 6, seed=1)]
    assert "not by the whole interval" in report.against_target(runs, "fedmuscle", {"voc": 0})


def test_a_larger_perplexity_is_worse():
    runs = [history2(name, [40] * 10 + [perplexity], setup="setup2_generation") for name, perplexity in (("local", 20), ("self", 25))]
    assert "Self (no communication) is better than Local training for 0 of 11" in report.users_told_apart(runs, "self", "local")
    assert "for 1 of 11 users (user 11)" in report.users_told_apart(runs, "local", "self")
    text = report.delta_by_task(runs).query("task == 'TG'")
    assert text.delta.tolist() == [0, -25]
    shown = report.side_by_side(report.table(runs).query("task == 'TG'"), text).iloc[-1]
    assert shown.tolist() == ["+0.00", "-25.00"]


def test_a_smaller_perplexity_is_an_improvement():
    rows = [
        {"public": "flickr30k", "user": user, "metric": metric, "seed": 0, "algorithm": algorithm, "value": value}
        for algorithm, values in (("local", (20.0, 50.0)), ("self", (15.0, 40.0)))
        for user, metric, value in zip((1, 2), ("Perplexity", "Accuracy"), values, strict=True)
    ]
    gains = report.relative(pd.DataFrame(rows)).set_index(["algorithm", "user"]).value
    assert gains["self", 1] == pytest.approx(25) and gains["self", 2] == pytest.approx(-20)
