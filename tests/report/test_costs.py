"""Costs as counted, beside the paper's, and the bytes of the three replies."""

import math

import pytest
from histories import history

from fedmuscle_lib import Settings, report


def test_costs_are_per_user_and_round():
    row = report.costs([history("local", [40] * 6), history("local", [41] * 6, seed=1)]).iloc[0]
    assert (row.runs, row.uplink_bytes, row.downlink_bytes, row.tflop, row.peak_memory_mib) == (
        2,
        100,
        300,
        12,
        1024,
    )


def test_costs_stand_beside_the_papers_as_ratios():
    runs = [
        history("local", [40] * 6, sent=0),
        history("head_only", [40] * 6, sent=0, flops=5 * 10**11),
    ]
    runs += [
        history("fedmuscle", [44] * 6, public=public, flops=flops, sent=10**6)
        for public, flops in (("voc", 10**12), ("coco", 2 * 10**12))
    ]
    runs += [history("shuffled", [44] * 6, sent=2 * 10**6)]
    rows = report.relative_costs(runs).set_index("algorithm")
    assert rows.flop_over_local.to_dict() == {
        "local": 1,
        "head_only": 0.5,
        "fedmuscle": 1.5,
        "shuffled": 1,
    }
    assert rows.paper_flop_over_local.to_dict() == pytest.approx(
        {"local": 1, "head_only": math.nan, "fedmuscle": 523 / 29, "shuffled": math.nan},
        nan_ok=True,
    )
    assert rows.bytes_over_fedmuscle.to_dict() == {
        "local": 0,
        "head_only": 0,
        "fedmuscle": 1,
        "shuffled": 2,
    }
    assert rows.loc["fedmuscle", ["seconds_over_local", "uplink_mb", "downlink_mb"]].tolist() == [
        1,
        1,
        3,
    ]
    assert (
        "The 2 algorithms of Table 1" in (text := report.cost_order(runs))
        and "ρ = **+1.00** (p = 1)" in text
    )
    with pytest.raises(ValueError, match="need a run of fedmuscle and of local"):
        report.relative_costs(runs[1:2])


def test_the_formula_of_table_5_gives_its_printed_digits():
    ledger = report.ledger(Settings())
    assert list(ledger.M) == [1, 2, 3, 4, 5]
    truncated = (ledger.paper_formula_gb * 1000).apply(math.floor) / 1000
    assert list(truncated) == list(ledger.paper_table5_gb)


def test_the_ledger_counts_every_batch():
    settings = Settings(
        public_size=70, batch_size=32, proj_dim=256, cl_epochs=2
    )  # batches of 32, 32 and 6, twice
    row = report.ledger(settings, [3]).iloc[0]
    assert row.gradient_mb * 1e6 == pytest.approx(
        2 * (2 * 70 * 256 * 4), rel=0.01
    )  # up and down; the loss value is a few bytes
    assert row.dense_mb * 1e6 > 2 * 2 * 32**3 * 256 * 4
    assert row.gradient_mb < row.factored_mb < row.dense_mb
