"""Tables and differences of runs whose accuracies are known beforehand, and the authors'
figures beside them.
"""

from itertools import product

import pandas as pd
import pytest
from drawn import points_of

from fedmuscle_lib.core.notebooks import results_folder, runs_of
from fedmuscle_lib.fedloge import arms, authors, plots, report
from fedmuscle_lib.fedloge.etf import cosines
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.fedloge.system import SYSTEM
from fedmuscle_lib.report import frame
from fedmuscle_lib.runs import History

PROVENANCE = {
    "seconds": 3.0,
    "peak_memory_bytes": 10**9,
    "finished": "2026-01-01",
    "address": "01",
    "versions": {},
    "samples": dict.fromkeys("abcd", 1),
}
GROUPS = ("all", "head", "middle", "tail")


def history(algorithm="fedloge", heads=None, seed=0, **settings):
    """A finished run.

    ``heads`` has, by scope and head, the accuracy of each group after round 2; masked ones are 10
    points higher.
    """
    rows = []
    for round in (1, 2):
        for (scope, head), values in (heads or {}).items():
            for masked in (False, True) if scope == "personal" else (False,):
                for group, value in zip(GROUPS, values, strict=True):
                    value = value + 10 * masked if round == 2 else 0.0
                    rows.append((round, scope, head, masked, group, value, 0))
    costs = [
        {"round": 1, "client": k, "uplink_bytes": 1000 * (k + 1), "downlink_bytes": 500}
        for k in range(2)
    ]
    return History(
        Settings(algorithm=algorithm, seed=seed, **settings),
        pd.DataFrame(rows, columns=SYSTEM.tables["metrics"]),
        pd.DataFrame(costs),
        losses=pd.DataFrame(),
        measures=pd.DataFrame(),
        provenance=PROVENANCE,
    )


def realigned(tail, head=(-5, -6, -7), **settings):
    """Three runs: realignment adds ``tail`` to the tail and ``head`` to the head, seed by seed; 2
    to all classes and the middle.
    """
    return [
        history(
            heads={
                ("global", "sse_c"): (50, 50, 50, 50),
                ("global", "shared"): (50 + seed, 80, 50, 20),
                ("global", "realigned"): (52 + seed, 80 + on_head, 52, 20 + on_tail),
                ("personal", "local + shared"): (60, 70, 50, 40),
                ("personal", "local + realigned"): (61, 71, 51, 41 + seed),
            },
            seed=seed,
            **settings,
        )
        for seed, (on_tail, on_head) in enumerate(zip(tail, head, strict=True))
    ]


def table_of(runs):
    """As the notebooks make it."""
    ends = frame.last(report.accuracies(runs))
    table = frame.over_seeds(ends, authors.CELL, "value")
    return table.merge(authors.cells(runs[0].settings), how="left", on=authors.CELL)


# --- accuracies


def test_a_cell_is_the_mean_over_seeds_of_the_last_round():
    table = table_of(realigned((5, 6, 7)))
    row = table.query("scope == 'global' and head == 'shared' and group == 'all'").iloc[0]
    assert (row["mean"], row["std"], row.n_seeds) == (51, pytest.approx((2 / 3) ** 0.5), 3)
    assert row.ci_high - row.ci_low == pytest.approx(
        2 * 4.302653 / 3**0.5
    )  # Student's t with two degrees of freedom
    masked = table.query("head == 'local + shared' and masked and group == 'head'").iloc[0]
    assert masked["mean"] == 80


def test_each_method_is_laid_out_by_the_heads_that_it_has():
    runs = [*realigned((5, 6, 7)), history("fedper", {("personal", "head"): (30, 40, 20, 10)})]
    wide = report.side_by_side(table_of(runs))
    assert list(wide.columns[:5]) == ["GM", "GM: head", "GM: middle", "GM: tail", "PM"]
    assert wide.loc["FedPer"].tolist()[3:6] == ["", "30.0", "40.0"]
    assert wide.loc["FedLoGe, shared", "GM"] == "51.0 ± 0.8"


# --- the authors' figures


def cells(algorithm="fedloge", head="sse_c", scope="global", masked=False, **settings):
    table = table_of([history(algorithm, {(scope, head): (1, 2, 3, 4)}, **settings)])
    return table[table.masked == masked].set_index("group")


def test_the_authors_cells_are_of_the_same_data_tail_head_and_mask():
    real = {"profile": "small", "alpha": 1, "imbalance": 0.02}
    assert cells(**real).authors_mean.tolist() == [79.5, 90.5, 77.3, 67.1]
    assert cells(**real, data="cifar100_lt").authors_log.tolist() == ["g"] * 4
    assert cells(**real | {"alpha": 0.3}).authors_mean.isna().all()
    assert cells("fedavg", "head", "personal").authors_mean["all"] == 86.2
    assert cells("fedavg", "head", "personal", masked=True).authors_mean.isna().all()


def test_the_readmes_command_stands_beside_its_own_log():
    assert cells(profile="paper").authors_mean["all"] == 41.0
    assert cells(profile="paper", clients=20, participation=1).authors_mean["all"] == 41.7


# --- differences


def test_differences_are_paired_over_seeds():
    ends = frame.last(report.accuracies(realigned((5, 6, 7))))
    found = report.differences(ends, [("global", "fedloge, realigned", "fedloge, shared")])
    rows = found[found.b == "fedloge, shared"][lambda r: r.scope == "global"]
    rows = rows[rows.a == "fedloge, realigned"].set_index("group")
    assert rows.difference.tolist() == [2, -6, 2, 6]
    # though the accuracies themselves differ from seed to seed
    assert (rows.ci_low["all"], rows.ci_high["all"]) == (2, 2)
    assert rows.ci_low["tail"] == pytest.approx(6 - 4.302653 / 3**0.5)


def test_an_arm_that_the_profile_has_anyway_runs_once(monkeypatch):
    monkeypatch.setattr(
        "fedmuscle_lib.runs.workers.run_all",
        lambda settings: [history(s.algorithm, seed=s.seed) for s in settings],
    )
    own = {"profile": "mini", "options": {"fedloge.norm": 1}}
    names = ["fedloge", "fedloge, norm 0.1", "fedavg"]
    runs = arms.run_methods(own, [*names, "fedloge, norm 1"], [0, 1])
    assert [(run.arm, run.settings.seed) for run in runs] == [
        *product(names, (0,)),
        *product(names, (1,)),
    ]
    with pytest.raises(ValueError, match="options of fedloge: unknown setting 'nrm'"):
        arms.run_methods({}, ["fedloge, nrm 1"], [0])


# --- what else a folder holds


def test_a_folder_says_what_it_comes_from(tmp_path):
    runs = realigned((5, 6, 7), rounds=2)
    swept = [history(seed=0, rounds=2, options={"fedloge.norm": 0.4})]
    folder = results_folder("fedloge_realign", "mini", str(tmp_path))
    report.write(runs, folder, {"table": table_of(runs)}, swept)
    assert {path.stem for path in folder.glob("*.csv")} == {"table", "costs", "departures"}
    recorded = [run.settings.recorded() for run in [*runs, *swept]]
    assert [run["settings"] for run in runs_of(folder)] == recorded
    assert "log b" in report.note(runs) and "no log" in report.note(realigned((5, 6, 7), alpha=0.3))


# --- SSE-C and figures


def test_the_fit_pushes_the_nearest_classes_apart():
    settings = history(options={"fedloge.etf_steps": 500}).settings
    drawn, fitted = (
        cosines(arms.sse_c(settings, 4, **options)) for options in ({"etf_steps": 0}, {})
    )
    assert len(fitted) == 6 and fitted.max() < drawn.max() - 0.01
    assert fitted.max().item() == pytest.approx(-1 / 3, abs=0.05)


def test_a_figure_holds_what_it_is_given():
    fedavg = [history("fedavg", {("global", "head"): (40, 60, 30, 10)}, seed=k) for k in range(3)]
    runs = [*realigned((5, 6, 7)), *fedavg]
    table = table_of(runs)
    figure = plots.accuracies(table[table.scope == "global"], "group", "GM (%)")
    assert [ax.get_title() for ax in figure.axes] == ["all", "head", "middle", "tail"]
    assert points_of(figure.axes[0]) == [(50, 0), (51, 1), (53, 2), (40, 3)]
    assert points_of(figure.axes[0], hollow=True) == [(71.2, 0), (71.3, 3)]
