"""The six functions that tables are made of."""

import pandas as pd
import pytest
from histories import as_arm, as_runs, history, history2

from fedmuscle_lib.report.frame import delta, gains, last, over_seeds, paired, tidy


def ends(runs, phase="after_alignment"):
    return gains(last(tidy(runs), phase))


def of(runs, by=("public", "algorithm"), phase="after_alignment"):
    return delta(ends(runs, phase), list(by)).set_index([*by, "seed"]).delta


def test_delta_is_the_papers_by_its_cells_and_local_training_stands_beside_every_public_set():
    found = of(as_runs("table7")).round(2)
    for public, printed in {"voc": (26.7, 24.01, 17.34), "cifar100": (16.88, 15.19, 10.48)}.items():
        assert [found[public, arm, 0] for arm in ("fedmuscle", "gramian", "pairwise")] == list(
            printed
        )
        assert found[public, "local", 0] == 0


def test_the_last_round_counts_at_each_moment():
    runs = [history("local", [40] * 6), history("fedmuscle", [44] * 6, before=[42] * 6)]
    assert of(runs)["voc", "fedmuscle", 0] == pytest.approx(10)
    assert of(runs, phase="after_local")["voc", "fedmuscle", 0] == pytest.approx(5)
    rounds = gains(tidy(runs))
    assert set(rounds["round"]) == {1, 2} and rounds.gain.max() == pytest.approx(10)


def test_a_smaller_perplexity_is_a_gain_and_a_baseline_of_0_leaves_none():
    users = {"setup": "setup2_generation", "users": [1, 11], "others": 1}
    runs = [history2("local", [0, 50], **users), history2("fedmuscle", [10, 40], **users)]
    found = ends(runs).set_index(["algorithm", "user"]).gain
    assert found["fedmuscle", 11] == 20 and pd.isna(found["fedmuscle", 1])
    assert of(runs).isna().all()


def test_an_arm_that_lacks_a_user_has_no_delta_and_tuned_local_training_is_a_column():
    runs = [history("local", [40] * 6), history("fedmuscle", [44] * 6)]
    runs += as_arm([history("local", [50] * 6)], "tuned")
    few = history("probe", [48] * 2, users=[1, 2], others=1)
    assert "probe" not in of([*runs, few]).index.get_level_values("algorithm")
    tuned = ends(runs).set_index(["algorithm", "user"]).gain_tuned
    assert tuned["fedmuscle", 1] == pytest.approx(-12)


def test_intervals_are_students_and_deviations_the_papers():
    rows = pd.DataFrame({"arm": "a", "seed": [0, 1, 2], "value": [1.0, 2.0, 3.0]})
    (row,) = over_seeds(rows, ["arm"], "value").itertuples()
    assert (row.mean, row.n_seeds) == (2, 3) and row.std == pytest.approx((2 / 3) ** 0.5)
    assert row.ci_high - row.mean == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    (row,) = over_seeds(rows[:1], ["arm"], "value").itertuples()
    assert pd.isna(row.std) and pd.isna(row.ci_low)


def test_differences_are_on_the_same_seeds():
    values = {("a", 0): 5.0, ("a", 1): 7.0, ("a", 2): 90.0, ("b", 0): 4.0, ("b", 1): 4.0}
    rows = pd.DataFrame(
        [{"algorithm": arm, "seed": seed, "public": "voc", "delta": value}
         for (arm, seed), value in values.items()]
    )  # fmt: skip
    found = paired(rows, [("a", "b"), ("a", "nobody")], ["public"], "delta")
    assert found[["a", "b", "difference", "n_seeds"]].to_numpy().tolist() == [["a", "b", 2.0, 2]]


def test_runs_that_do_not_belong_together_are_refused():
    one = history("local", [40] * 6)
    with pytest.raises(ValueError, match="two different runs of local with seed 0"):
        tidy([one, history("local", [41] * 6)])
    with pytest.raises(ValueError, match="fedmuscle with seed 1 has no run of local training"):
        ends([one, history("fedmuscle", [41] * 6, seed=1)])
