"""The table of worlds: a column a committed reference, the present runs' and the paper's."""

from dataclasses import replace

import pytest
from histories import history

from fedmuscle_lib import report

SHOTS = {"vit-base": 51.0, "vit-tiny": 42.0}


def runs(**settings):
    """Four seeds: FedMuscle above local training, shuffled below, self undecided; users 4 and 5
    differ by half.
    """
    values = {"local": [40, 44, 40, 20, 30, 50]}
    values |= {
        "fedmuscle": [44, 48, 44, 22, 33, 55],
        "shuffled": [38, 42, 38, 19, 29, 48],
        "head_only": [40, 44, 40, 20, 30, 60],
    }
    found = [
        history(name, own, seed=seed, **settings)
        for seed in range(4)
        for name, own in values.items()
    ]
    undecided = [[v + (-1) ** seed for v in values["local"]] for seed in range(4)]
    return found + [
        history("self", own, seed=seed, **settings) for seed, own in enumerate(undecided)
    ]


def cells(table, measure):
    (found,) = [name for name in table.index if name.startswith(measure)]
    return table.loc[found]


def test_a_world_in_numbers_without_units(tmp_path):
    settings = {"rounds": 20, "local_epochs": 2, "public_size": 512}
    own = report.world(runs(**settings), SHOTS)
    table = report.worlds(own, runs(**settings)[0].settings, tmp_path)
    assert list(table) == ["mini", "the paper"]
    assert cells(table, "one-shot").tolist() == ["42.0 to 51.0", ""]
    assert cells(table, "head only").tolist() == ["+3.33 [+3.33, +3.33]", ""]
    assert cells(table, "local steps: MLC / IC100 / IC10").tolist() == [
        "280 / 160 / 80",
        "1,050 / 600 / 300",
    ]
    assert cells(table, "alignment steps per").tolist() == ["1.1 / 2.0 / 4.0", "22.4 / 39.2 / 78.5"]
    assert table.loc["alignment steps"].tolist() == ["320", "23,550"]
    assert cells(table, "largest mean local cell").tolist() == ["1.10 / 1.50", "1.04 / 1.00"]
    signs = {
        name: cells(table, f"Δ of {name}").tolist() for name in ("fedmuscle", "self", "shuffled")
    }
    assert signs == {"fedmuscle": ["+", "(+)"], "self": ["0", ""], "shuffled": ["−", ""]}
    assert not [
        name for name in table.index if "probe" in name or "anchored" in name
    ]  # which were not run


def test_one_shot_accuracy_of_shipped_runs_is_the_committed_one(tmp_path):
    (tmp_path / "mini/controls").mkdir(parents=True)
    report.save(report.world(runs(), SHOTS), tmp_path / "mini/controls/world.csv")
    shipped = [replace(run, origin="shipped") for run in runs()]
    assert report.shipped_one_shot(shipped, tmp_path) == SHOTS
    assert report.shipped_one_shot([*shipped[1:], runs()[0]], tmp_path) == {}
    assert (
        report.shipped_one_shot(
            [replace(run, origin="shipped") for run in runs(setup="setup1_unequal")], tmp_path
        )
        == {}
    )


def test_delta_of_every_committed_reference(tmp_path):
    deltas = report.delta(runs())
    for k, name in enumerate(("mini/controls", "small/controls", "small/controls_setup1_vit")):
        (tmp_path / name).mkdir(parents=True)
        report.save(deltas.assign(delta=deltas.delta + 100 * k), tmp_path / name / "delta.csv")
    rows = report.delta_of_worlds(tmp_path)
    assert list(dict.fromkeys(rows.world)) == [
        "real, CNNs",
        "real, ViTs, last blocks",
        "generated, equal models",
    ]
    for k, (_, own) in zip((1, 2, 0), rows.groupby("world", sort=False), strict=True):
        assert own.delta.tolist() == pytest.approx((deltas.delta + 100 * k).tolist(), abs=1e-3)
