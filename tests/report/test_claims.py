"""The ledger: which word a registered claim gets, and whether the paper's number is excluded."""

from dataclasses import replace
from math import nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from fedmuscle_lib.report.claims import Claim, _Contrast, _seeds_needed, decided, holm

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
    facts = {"text": "t", "family": "f", "where": "w", "by": "ours", "file": "rows.csv"}
    return Claim(**facts | {"seeds": range(5), "contrasts": contrasts} | own)


def minus(a, b):
    return (f"+public=voc algorithm={a}", f"-public=voc algorithm={b}")


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (claim(minus("better", "worse")), "holds"),
        (claim(minus("worse", "better")), "opposite"),
        (claim(minus("wild", "better")), "open"),
        (claim(minus("same", "better")), "no difference"),
        (claim(minus("better", "worse"), minus("worse", "better")), "opposite"),
        (claim(minus("better", "worse"), minus("better", "wild")), "open"),
        (claim(minus("same", "better"), within=1.0), "holds"),
        (claim(minus("better", "worse"), within=1.0), "opposite"),
        (claim(minus("same", "better"), unit="Spearman's ρ"), "open"),
        (claim(minus("better", "absent")), ""),
        (claim(minus("better", "worse"), file="absent.csv"), ""),
        (claim(minus("better", "worse"), seeds=range(6)), ""),
        (claim(("+rows.csv public=voc algorithm=better",), file="absent.csv"), "holds"),
    ],
)
def test_a_claim_is_decided_by_all_of_its_contrasts_on_all_of_its_seeds(folder, one, word):
    assert decided(folder, [one]).word.tolist() == [word]


def test_the_test_is_students_one_sided_on_the_same_seeds(folder):
    (row,) = decided(folder, [claim(minus("wild", "better"))]).itertuples()
    known = ttest_1samp(np.subtract(VALUES["wild"], VALUES["better"]), 0, alternative="greater")
    assert row.p == pytest.approx(known.pvalue)
    both = ttest_1samp(np.subtract(VALUES["wild"], VALUES["better"]), 0).confidence_interval()
    assert (row.ci_low, row.ci_high) == pytest.approx(tuple(both))


def test_seeds_that_were_not_registered_decide_nothing(folder):
    (row,) = decided(folder, [claim(minus("better", "worse"), seeds=[0, 1, 2])]).itertuples()
    assert row.n_seeds == 3 and row.difference == pytest.approx(5)


@pytest.mark.parametrize(("paper", "size"), [(5.0, "compatible"), (26.7, "excluded"), (None, "")])
def test_the_papers_size_is_compared_with_the_interval(folder, paper, size):
    one = claim(minus("better", "worse"), paper=[] if paper is None else [paper])
    assert decided(folder, [one])["size"].tolist() == [size]


@given(values=st.lists(st.floats(-5, 5), min_size=3, max_size=6, unique=True))
def test_an_open_claim_would_be_decided_by_the_seeds_that_it_needs(values):
    one = _Contrast(np.mean(values), np.std(values, ddof=1), nan)
    n = _seeds_needed([one], None, points=True)
    p = [min(one.p_above(0, k), one.p_below(0, k), one.p_within(2, k)) for k in (n - 1, n)]
    assert p[1] < 0.05 or n == 1000
    assert n == 2 or p[0] >= 0.05


def test_claims_of_one_family_correct_each_other_and_no_others(folder):
    one = claim(minus("wild", "better"))
    alone = decided(folder, [one]).p[0]
    many = decided(folder, [one, claim(minus("wild", "absent")), replace(one, family="other")])
    assert many.p.tolist()[::2] == pytest.approx([2 * alone, alone])


def test_more_claims_need_smaller_p_values():
    assert holm(pd.Series([0.04, 0.01, np.nan, 0.03])).tolist()[:2] == pytest.approx([0.09, 0.04])
    assert holm(pd.Series([0.9, 0.8])).max() == 1
