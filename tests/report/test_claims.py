"""The ledger of the paper's claims: what is reproduced, contradicted and undecided."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from fedmuscle_lib.report.claims import Claim, decided, holm

VALUES = {
    "better": [10, 11, 12, 11, 10],
    "worse": [5, 6, 7, 6, 5.5],
    "same": [10.1, 11, 11.9, 11.1, 10],
    "wild": [30, -20, 15, -10, 40],
}


@pytest.fixture
def folder(tmp_path):
    rows = [
        {"public": "voc", "algorithm": name, "seed": k, "delta": x}
        for name, values in VALUES.items()
        for k, x in enumerate(values)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path


def claim(*contrasts, **own):
    return Claim(text="t", where="w", file=own.pop("file", "rows.csv"), contrasts=contrasts, **own)


def minus(a, b):
    return (f"+public=voc algorithm={a}", f"-public=voc algorithm={b}")


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (claim(minus("better", "worse")), "reproduced"),
        (claim(minus("worse", "better")), "contradicted"),
        (claim(minus("wild", "better")), "undecided"),
        (claim(minus("better", "worse"), minus("worse", "better")), "contradicted"),
        (claim(minus("better", "worse"), minus("better", "wild")), "undecided"),
        (claim(minus("same", "better"), within=1.0), "reproduced"),
        (claim(minus("better", "absent")), "not run"),
        (claim(minus("better", "worse"), file="absent.csv"), "not run"),
    ],
)
def test_a_claim_is_decided_by_all_of_its_contrasts(folder, one, verdict):
    assert decided(folder, [one]).verdict.tolist() == [verdict]


def test_the_test_is_students_on_the_same_seeds(folder):
    (row,) = decided(folder, [claim(minus("wild", "better"))]).itertuples()
    known = ttest_1samp(np.subtract(VALUES["wild"], VALUES["better"]), 0)
    assert row.p == pytest.approx(known.pvalue)
    assert (row.ci_low, row.ci_high) == pytest.approx(tuple(known.confidence_interval()))
    assert row.decidable == pytest.approx(row.difference - row.ci_low) and row.n_seeds == 5


@pytest.mark.parametrize(("size", "verdict"), [(1.001, "reproduced"), (0.999, "undecided")])
def test_a_decidable_difference_is_decided_whatever_else_was_asked(folder, size, verdict):
    listed = [claim(minus("wild", "better")), *[claim(minus("wild", "absent"))] * 20]
    decidable = decided(folder, listed).decidable[0]
    noise = np.subtract(VALUES["wild"], VALUES["better"])
    values = noise - noise.mean() + size * decidable
    pd.DataFrame({"public": "voc", "algorithm": "a", "seed": range(5), "delta": values}).to_csv(
        folder / "rows.csv", index=False
    )
    assert decided(folder, [claim(("+public=voc algorithm=a",)), *listed[1:]]).verdict[0] == verdict


def test_one_seed_tests_nothing(folder):
    pd.read_csv(folder / "rows.csv").query("seed == 0").to_csv(folder / "rows.csv", index=False)
    assert decided(folder, [claim(minus("better", "worse"))]).verdict.tolist() == ["untested"]


def test_more_claims_need_smaller_p_values():
    assert holm(pd.Series([0.04, 0.01, np.nan, 0.03])).tolist()[:2] == pytest.approx([0.06, 0.03])
    assert holm(pd.Series([0.9, 0.8])).max() == 1
