"""Deviations, intervals and pairing over seeds, against answers known beforehand."""

import math

import pandas as pd
import pytest
from histories import history

from fedmuscle_lib import report


def test_standard_deviation_is_the_papers():
    runs = [
        history("local", [value] * 6, seed=seed) for seed, value in enumerate((46.2, 46.3, 46.5))
    ]
    row = report.table(runs).iloc[0]
    assert (round(row["mean"], 2), round(row["std"], 2), row.n_seeds) == (
        46.33,
        0.12,
        3,
    )  # Table 7, Pascal VOC, user 1, Muscle loss


def test_interval_is_students():
    rows = pd.DataFrame({"group": "a", "x": [1.0, 2, 3, 4, 5]})
    row = report.over_seeds(rows, ["group"], "x").iloc[0]
    assert row["mean"] == 3
    assert row.ci_high - 3 == pytest.approx(2.7764451 * math.sqrt(2.5 / 5))
    assert row["std"] == pytest.approx(math.sqrt(2))
    assert row.ci_low + row.ci_high == pytest.approx(6)


def test_one_seed_has_no_interval():
    row = (
        report.delta([history("local", [40] * 6), history("fedmuscle", [44] * 6)])
        .set_index("algorithm")
        .loc["fedmuscle"]
    )
    assert row.delta == pytest.approx(10)
    assert row[["delta_std", "ci_low", "ci_high"]].isna().all()
    assert "One seed" in report.note([history("local", [40] * 6)])


def test_differences_are_paired_over_seeds():
    runs = [history("self", [level] * 6, seed=seed) for seed, level in enumerate((20, 40, 60))]
    runs += [
        history("fedmuscle", [level] * 6, seed=seed)
        for seed, level in enumerate((20 + 1, 40 + 2, 60 + 3))
    ]
    runs.append(history("fedmuscle", [99] * 6, seed=7))  # without a partner it has no say
    rows = report.per_user_difference(runs, "fedmuscle", "self")
    assert (
        ",".join(rows.columns)
        == "public,user,model,task,metric,difference,std,n_seeds,ci_low,ci_high"
    )
    assert len(rows) == 6
    assert rows.n_seeds.eq(3).all()
    assert rows.difference.tolist() == pytest.approx([2] * 6)
    assert rows.ci_high[0] - 2 == pytest.approx(4.3026527 / math.sqrt(3))
