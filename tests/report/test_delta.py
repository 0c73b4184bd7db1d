"""Delta and the table above it: seeds, phases, rounds, tasks, and what is refused."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from histories import history
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmuscle_lib import report

metrics = st.lists(st.floats(1, 50), min_size=6, max_size=6)


@given(metrics, metrics)
@settings(max_examples=10)
def test_delta_is_the_mean_relative_gain_of_the_users(local, other):
    table = report.delta([history("local", local), history("fedmuscle", other)])
    by_hand = 100 * sum(b / a - 1 for a, b in zip(local, other, strict=True)) / 6
    assert table.set_index("algorithm").delta["fedmuscle"] == pytest.approx(by_hand, abs=1e-9)


def test_delta_compares_runs_of_the_same_seed():
    runs = [
        history("fedmuscle", [level * 1.1] * 6, seed=seed)
        for seed, level in ((2, 60), (0, 20), (1, 40))
    ]
    runs += [history("local", [level] * 6, seed=seed) for seed, level in enumerate((20, 40, 60))]
    row = report.delta(runs).set_index("algorithm").loc["fedmuscle"]
    assert (row.delta, row.delta_std, row.ci_low, row.ci_high) == pytest.approx((10, 0, 10, 10))


def test_delta_by_task_is_the_mean_over_its_users(tmp_path):
    runs = [history("local", [40] * 6, seed=seed) for seed in (0, 1)]
    runs += [history("fedmuscle", [44 + seed, 40, 42, 36, 40, 50], seed=seed) for seed in (0, 1)]
    rows = report.delta_by_task(runs).set_index(["algorithm", "task"])
    assert (
        ",".join(rows.reset_index().columns)
        == "algorithm,task,public,delta,delta_std,n_seeds,ci_low,ci_high"
    )
    assert rows.loc["fedmuscle"].delta.to_dict() == pytest.approx(
        {"MLC": (10 + 12.5 + 0 + 0 + 5 + 5) / 6, "IC100": -5, "IC10": 25}
    )
    mlc, ic10 = rows.loc[("fedmuscle", "MLC")], rows.loc[("fedmuscle", "IC10")]
    assert mlc.delta_std == pytest.approx(2.5 / 6) and ic10.ci_low == ic10.ci_high == pytest.approx(
        25
    )
    shown = report.by_task(report.delta_by_task(runs))
    assert shown.columns.tolist() == ["MLC", "IC100", "IC10"]
    assert shown.loc[("voc", "FedMuscle"), "IC100"] == "-5.00 [-5.00, -5.00]"
    report.write(runs, tmp_path)
    assert pd.read_csv(tmp_path / "delta_by_task.csv").query(
        "algorithm == 'fedmuscle'"
    ).delta.round(2).tolist() == [5.42, -5, 25]


def test_delta_is_also_given_without_the_users_who_share_a_checkpoint(tmp_path):
    """ViT-Small (users 2 and 5) and ViT-Tiny (6) have one here; that users 1 and 4 have one is the
    paper's.
    """
    one = {"backbones": {"ViT-Small": "one", "ViT-Tiny": "one"}}
    runs = [
        history(name, values, **one)
        for name, values in (("local", [40] * 6), ("fedmuscle", [44, 0, 42, 40, 0, 0]))
    ]
    row = report.delta_unshared(runs).set_index("algorithm").loc["fedmuscle"]
    assert (
        row.users == "1 3 4"
        and row.delta == pytest.approx((10 + 5 + 0) / 3)
        and row.public == "voc"
    )
    rows = report.departures(runs).set_index("setting")
    assert rows.loc["checkpoint of users 2, 5, 6"].tolist() == [
        "one",
        "ViT-Small, ViT-Small, ViT-Tiny",
    ]
    report.write(runs, tmp_path)
    assert pd.read_csv(tmp_path / "delta_unshared.csv").delta.tolist() == [0, 5]

    for backbones in ({}, dict.fromkeys(("ViT-Base", "ViT-Small", "ViT-Large", "ViT-Tiny"), "one")):
        assert report.delta_unshared(
            [history("local", [40] * 6, backbones=backbones)]
        ).empty  # nobody shares, or all do


def test_a_curve_over_the_last_round_has_one_local_training():
    runs = [history("local", [40] * 6), history("fedmuscle", [44] * 6)]
    runs = [
        replace(
            run,
            metrics=run.metrics.assign(value=run.metrics.value.where(run.metrics["round"] > 1, 0)),
        )
        for run in runs
    ]
    assert (
        report.curve(runs).delta.isna().tolist() == [True, False] * 2
    )  # an improvement over 0 is undefined
    over_last = report.curve(runs, over_last=True).set_index(["algorithm", "round"]).delta
    assert over_last["fedmuscle"].tolist() == pytest.approx([-100, 10])


def test_local_training_serves_every_public_set():
    runs = [history("local", [40] * 6)] + [
        history("fedmuscle", [44] * 6, public=public) for public in ("voc", "coco")
    ]
    assert report.delta(runs).groupby("public").size().to_dict() == {"voc": 2, "coco": 2}


def test_an_undefined_delta_is_not_a_number():
    runs = [history("local", [0] + [40] * 5), history("fedmuscle", [1] + [44] * 5)]
    assert math.isnan(report.delta(runs).delta[1])
    assert "undefined" in report.side_by_side(report.table(runs), report.delta(runs)).to_string()


def test_refusals_name_what_is_wrong():
    local = history("local", [40] * 6)
    with pytest.raises(
        ValueError, match="fedmuscle on voc with seed 1 has no run of local training"
    ):
        report.delta([local, history("fedmuscle", [44] * 6, seed=1)])
    with pytest.raises(ValueError, match="two different runs of fedmuscle on voc with seed 0"):
        report.table([history("fedmuscle", [44] * 6), history("fedmuscle", [45] * 6, tau=0.3)])
    with pytest.raises(ValueError, match="different evaluate_on"):
        report.table([local, history("fedmuscle", [44] * 6, evaluate_on="validation")])
    with pytest.raises(ValueError, match="no run with the same seed"):
        report.per_user_difference([local, history("self", [44] * 6, seed=1)], "self", "local")
    with pytest.raises(ValueError, match="no runs"):
        report.table([])


def test_a_smaller_perplexity_is_an_improvement():
    rows = [
        {
            "public": "flickr30k",
            "user": user,
            "metric": metric,
            "seed": 0,
            "algorithm": algorithm,
            "value": value,
        }
        for algorithm, values in (("local", (20.0, 50.0)), ("self", (15.0, 40.0)))
        for user, metric, value in zip((1, 2), ("Perplexity", "Accuracy"), values, strict=True)
    ]
    gains = report.relative(pd.DataFrame(rows)).set_index(["algorithm", "user"]).value
    assert gains["self", 1] == pytest.approx(25) and gains["self", 2] == pytest.approx(-20)


# --- beside Delta


def tuned(values, **given):
    return report.as_arm([history("local", values, **given)], "tuned")[0]


def test_delta_over_tuned_local_training_stands_beside_that_over_fixed(tmp_path):
    runs = [history("local", [40] * 6, seed=seed) for seed in (0, 1)] + [
        tuned([50] * 6, seed=seed) for seed in (0, 1)
    ]
    runs += [history("fedmuscle", [44 + seed] * 6, seed=seed) for seed in (0, 1)]
    runs += report.as_arm([history("fedmuscle", [55] * 6, seed=seed) for seed in (0, 1)], "tuned")
    rows = report.delta(runs).set_index("algorithm")
    assert rows.delta.to_dict() == pytest.approx(
        {"local": 0, "local, tuned": 25, "fedmuscle": 11.25, "fedmuscle, tuned": 37.5}
    )
    assert rows.delta_tuned.to_dict() == pytest.approx(
        {"local": -20, "local, tuned": 0, "fedmuscle": -11, "fedmuscle, tuned": 10}
    )
    assert (rows.ci_low_tuned + rows.ci_high_tuned).tolist() == pytest.approx(
        (2 * rows.delta_tuned).tolist()
    )
    report.write(runs, tmp_path)
    assert pd.read_csv(tmp_path / "delta.csv").delta_tuned.notna().all()
    shown = report.side_by_side(report.table(runs), report.delta(runs))
    cells = shown.loc["Pascal VOC", "the paper's algorithms", "FedMuscle"].tolist()
    assert cells[0].startswith("+11.25 [") and cells[1].startswith("-11.00 [")
    assert ("Pascal VOC", "controls and ours", "Local training, tuned") in shown.index


def test_the_papers_formula_is_a_ratio_of_means():
    """Seeds on which local training does badly weigh more in a mean of ratios."""
    runs = [history("local", [level] * 6, seed=seed) for seed, level in enumerate((20, 60))]
    runs += [history("fedmuscle", [level] * 6, seed=seed) for seed, level in enumerate((30, 60))]
    row = report.delta(runs).set_index("algorithm").loc["fedmuscle"]
    assert (row.delta, row.delta_of_means) == pytest.approx((25, 12.5))


def test_an_arm_that_serves_not_all_users_has_cells_and_no_delta_over_all():
    users = {"setup": "setup2", "public": "flickr30k", "profile": "paper"}
    runs = [history(name, [40] * 10, **users) for name in ("local", "self")]
    runs.append(history("probe", [44] * 8, users=(1, 2, 3, 4, 5, 6, 9, 10), **users))
    assert report.delta(runs).algorithm.tolist() == ["local", "self"]
    assert report.delta_by_task(runs).set_index(["algorithm", "task"]).delta[
        "probe", "TC"
    ] == pytest.approx(10)
    assert report.delta_over(runs, "self").algorithm.tolist() == ["local"]
    shown = report.side_by_side(report.table(runs), report.delta(runs)).loc[
        "Flickr30k", "controls and ours", "Logistic probe"
    ]
    assert shown.tolist() == [""] + ["44.0"] * 6 + [""] * 2 + ["44.0"] * 2
    assert (
        "Logistic probe does not serve users with SS, so it has no Δ over all users."
        in report.note(runs)
    )
    with pytest.raises(ValueError, match="different users"):
        report.table(
            [*runs[:2], history("fedmuscle", [44] * 8, users=(1, 2, 3, 4, 5, 6, 9, 10), **users)]
        )


def test_a_loss_that_falls_while_delta_rises_has_a_rho_of_minus_one_whoever_minimises_it():
    def with_losses(run, first, last):
        return replace(
            run,
            losses=pd.DataFrame(
                {"round": [1, 2], "user": [1, 1], "local": [0.0, 0.0], "alignment": [first, last]}
            ),
        )

    local = [history("local", [40] * 6, seed=seed) for seed in (0, 1)]
    metrics = local[0].metrics.assign(
        value=[40.0] * 12 + [60.0] * 12
    )  # a Delta that rises from round to round
    flat = [replace(run, metrics=run.metrics.assign(value=40.0)) for run in local]
    rising = [
        replace(history("fedmuscle", [60] * 6, seed=seed), metrics=metrics) for seed in (0, 1)
    ]
    alone = replace(
        history("self", [60] * 6, seed=0), metrics=metrics
    )  # whose users never align with others
    rho = report.loss_correlation(
        [*flat, with_losses(rising[0], 5.0, 4.0), with_losses(rising[1], 4.0, 5.0), alone]
    )
    assert rho.set_index(["algorithm", "seed"]).rho.to_dict() == pytest.approx(
        {("fedmuscle", 0): -1, ("self", 0): -1, ("fedmuscle", 1): 1}
    )
    assert report.loss_correlation(
        [flat[0], with_losses(replace(rising[0], metrics=flat[0].metrics), 5.0, 4.0)]
    ).empty
