"""Tables, differences and sentences of runs whose accuracies are known beforehand, and the authors'
figures beside them.
"""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from drawn import points_of

from fedmuscle_lib.core.notebooks import results_folder, runs_of
from fedmuscle_lib.fedloge import arms, authors, methods, plots, report
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.fedloge.system import SYSTEM
from fedmuscle_lib.reproduce.index import index
from fedmuscle_lib.runs import History, compute

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


# --- accuracies


def test_a_cell_is_the_mean_over_seeds_of_the_last_round():
    table = report.table(realigned((5, 6, 7)))
    assert list(table.columns) == report.TABLE_COLUMNS
    row = table.query("scope == 'global' and head == 'shared' and group == 'all'").iloc[0]
    assert (row["mean"], row["std"], row.n_seeds) == (51, pytest.approx((2 / 3) ** 0.5), 3)
    assert row.ci_high - row.ci_low == pytest.approx(
        2 * 4.302653 / 3**0.5
    )  # Student's t with two degrees of freedom
    masked = table.query("head == 'local + shared' and masked and group == 'head'").iloc[0]
    assert masked["mean"] == 80


def test_one_seed_has_no_interval():
    table = report.table(realigned((5, 6, 7))[:1])
    assert table["std"].isna().all() and table.ci_low.isna().all() and table.n_seeds.eq(1).all()


def test_each_method_is_laid_out_by_the_heads_that_it_has():
    runs = [*realigned((5, 6, 7)), history("fedper", {("personal", "head"): (30, 40, 20, 10)})]
    wide = report.side_by_side(report.table(runs))
    assert list(wide.columns[:5]) == ["GM", "GM: head", "GM: middle", "GM: tail", "PM"]
    assert list(wide.index) == [
        "FedLoGe, sse_c",
        *(f"FedLoGe, {head}" for head in ("shared", "realigned", "local + shared")),
    ] + [
        "FedLoGe, local + realigned",
        "FedPer",
    ]
    assert wide.loc["FedPer"].tolist() == [
        "",
        "",
        "",
        "",
        "30.0",
        "40.0",
        "20.0",
        "10.0",
        "40.0",
        "50.0",
        "30.0",
        "20.0",
    ]
    assert wide.loc["FedLoGe, shared", "GM"] == "51.0 ± 0.8"


# --- the authors' figures


def test_the_logs_agree_with_themselves():
    """The head, middle and tail of a log have 10 or 100 classes alike in the test set, so their
    mean weighs them by their classes.
    """
    logs = authors.logs()
    sizes = {
        "a": (4, 3, 3),
        "b": (3, 3, 4),
        "c": (4, 3, 3),
        "d": (3, 3, 4),
        "e": (31, 31, 38),
        "f": (27, 26, 47),
        "g": (31, 30, 39),
    }
    sizes["h"] = (27, 25, 48)
    own = (
        logs[(logs.algorithm == "fedloge") & (logs.scope == "global")]
        .set_index(["log", "group"])
        .authors_mean
    )
    for log, counts in sizes.items():
        groups = [own[log, group] for group in GROUPS[1:]]
        assert sum(n * value for n, value in zip(counts, groups, strict=True)) / sum(
            counts
        ) == pytest.approx(own[log, "all"], abs=0.1)
    assert (logs.best.isna() | (logs.best >= logs.authors_mean)).all()
    assert set(logs.algorithm) - {"fedavg_tmp"} <= set(methods.names())


def cells(algorithm="fedloge", head="sse_c", scope="global", masked=False, **settings):
    table = report.table([history(algorithm, {(scope, head): (1, 2, 3, 4)}, **settings)])
    return table[table.masked == masked].set_index("group")


def test_the_authors_cells_are_of_the_same_data_and_tail():
    real = {"profile": "small", "alpha": 1, "imbalance": 0.02}
    assert cells(**real).authors_mean.to_dict() == {
        "all": 79.5,
        "head": 90.5,
        "middle": 77.3,
        "tail": 67.1,
    }
    assert cells(**real, data="cifar100_lt").authors_log.tolist() == ["g"] * 4
    assert cells(**real | {"alpha": 0.3}).authors_mean.isna().all()
    assert cells(**real | {"data": "imagenet_lt"}).authors_mean.isna().all()


def test_the_authors_cells_are_of_the_same_head_and_mask():
    own = {"scope": "personal", "head": "local + shared"}
    assert cells(**own).authors_mean.isna().all()
    assert cells(**own, masked=True).authors_mean["all"] == 89.4
    assert cells("fedavg", "head", "personal").authors_mean["all"] == 86.2
    assert cells("fedavg", "head", "personal", masked=True).authors_mean.isna().all()
    assert cells("fedloge", "realigned").authors_mean.isna().all()


def test_the_readmes_command_stands_beside_its_own_log():
    assert cells(profile="paper").authors_mean["all"] == 41.0
    assert cells(profile="paper", clients=20, participation=1).authors_mean["all"] == 41.7
    assert cells("fedavg", "head", profile="paper").authors_log["all"] == "f"  # there is no other


# --- differences


def global_difference(runs):
    found = report.differences(runs, report.REALIGNMENTS)
    return found[found.scope == "global"].set_index("group")


def test_differences_are_paired_over_seeds():
    rows = global_difference(realigned((5, 6, 7)))
    assert rows.difference.to_dict() == pytest.approx(
        {"all": 2, "head": -6, "middle": 2, "tail": 6}
    )
    assert (rows.ci_low["all"], rows.ci_high["all"]) == (
        2,
        2,
    )  # though the accuracies themselves differ from seed to seed
    assert rows.ci_low["tail"] == pytest.approx(6 - 4.302653 / 3**0.5)
    both = report.differences(realigned((5, 6, 7)))
    assert both[both.scope == "personal"].groupby("masked").difference.first().tolist() == [1, 1]
    assert not both.b.str.startswith("fedavg").any()


def test_pairs_that_were_not_run_have_no_difference():
    assert report.differences([history("fedper", {("personal", "head"): (1, 2, 3, 4)})]).empty


def lasting(algorithm, head, seed, values):
    """A finished run of one head with an accuracy a round, over all classes and in the tail."""
    run = history(algorithm, {("global", head): (0, 0, 0, 0)}, seed=seed)
    rows = [
        (n + 1, "global", head, False, group, value, 0)
        for n, value in enumerate(values)
        for group in ("all", "tail")
    ]
    return replace(run, metrics=pd.DataFrame(rows, columns=SYSTEM.tables["metrics"]))


def test_a_difference_is_decided_from_the_round_on_that_all_later_intervals_agree_with():
    noise = (-0.1, 0.0, 0.1)
    ours = [
        lasting("fedloge", "sse_c", seed, [5 + noise[seed], 1, 6 + noise[seed], 7 + noise[seed]])
        for seed in range(3)
    ]
    flat = [lasting("fedavg", "head", seed, [1, 1, 1, 1]) for seed in range(3)]
    found = report.over_others(ours + flat).set_index("group")
    assert found.difference.to_dict() == pytest.approx(
        {"all": 6, "tail": 6}
    ) and found.since.to_dict() == {"all": 3, "tail": 3}
    assert "raises accuracy by 6.00 points [5.75, 6.25], from round 3 on" in report.verdicts(
        found.reset_index()
    )
    apart = [lasting("fedavg", "head", seed, [1, 1, 1, 7 + (seed - 1) * 5]) for seed in range(3)]
    assert report.over_others(ours + apart).since.isna().all()


def test_every_setting_of_fedloge_stands_beside_the_others():
    named = [replace(run, setting="norm 1") for run in realigned((5, 6, 7))]
    flat = [
        history("fedavg", {("global", "head"): (40, 60, 30, 10)}, seed=seed) for seed in range(3)
    ]
    found = report.over_others([*realigned((5, 6, 7)), *named, *flat])
    assert list(dict.fromkeys(found.a)) == [
        "fedloge, sse_c",
        "fedloge, realigned",
        "fedloge, norm 1, sse_c",
        "fedloge, norm 1, realigned",
    ]
    rows = report.over_rounds([*named, *flat])
    assert set(rows.algorithm) == {"fedloge, norm 1", "fedavg"} and sorted(set(rows["round"])) == [
        1,
        2,
    ]
    figure = plots.over_rounds(rows)
    assert [ax.get_title() for ax in figure.axes] == ["all classes", "tail"]
    assert sorted(
        line.get_ydata()[-1] for line in figure.axes[0].lines if len(line.get_ydata()) == 2
    ) == [40, 50, 53]


def test_an_arm_that_the_profile_has_anyway_runs_once(monkeypatch):
    asked = []
    monkeypatch.setattr(
        arms,
        "run_all",
        lambda settings: (
            asked.extend(settings) or [history(s.algorithm, seed=s.seed) for s in settings]
        ),
    )
    own = {"profile": "mini", "options": {"fedloge.norm": 1}}
    runs = arms.run_methods(
        own, ["fedloge", "fedloge, norm 0.1", "fedavg", "fedloge, norm 1"], [0, 1]
    )
    assert [(run.arm, run.settings.seed) for run in runs[:3]] == [
        ("fedloge", 0),
        ("fedloge, norm 0.1", 0),
        ("fedavg", 0),
    ]
    assert [s.options["fedloge.norm"] for s in asked] == [1, 0.1, 1] * 2
    with pytest.raises(ValueError, match="no 'fedloge.nrm'; did you mean 'fedloge.norm'"):
        arms.run_methods({}, ["fedloge, nrm 1"], [0])


def test_where_nothing_may_be_computed_a_method_has_the_seeds_that_are_stored(monkeypatch, caplog):
    monkeypatch.setattr(
        arms, "run_all", lambda settings: [history(s.algorithm, seed=s.seed) for s in settings]
    )
    monkeypatch.setenv("FEDMUSCLE_COMPUTE", "0")
    monkeypatch.setattr(
        compute, "stored", lambda settings: settings.algorithm == "fedavg" and settings.seed == 0
    )
    runs = arms.run_methods({"profile": "mini"}, ["fedloge", "fedavg"], [0, 1])
    assert [(run.arm, run.settings.seed) for run in runs] == [
        ("fedloge", 0),
        ("fedavg", 0),
        ("fedloge", 1),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "fedavg on seed 1 is left out: not all of its runs are stored"
    ]


def test_the_mask_is_told_apart_from_the_method():
    gains = report.mask_gains(realigned((5, 6, 7))).set_index("arm")
    assert gains.difference.to_dict() == {
        "fedloge, local + shared": 10,
        "fedloge, local + realigned": 10,
    }


@pytest.mark.parametrize(
    ("tail", "head", "outcome", "said"),
    [
        (
            (5, 6, 7),
            (-5, -6, -7),
            "supported",
            (
                "raises the tail by 6.00 points [3.52, 8.48]; lowers the head by 6.00 points [3.52,"
                " 8.48]"
            ),
        ),
        (
            (-5, 6, 7),
            (-5, -6, -7),
            "undecided",
            (
                "leaves the tail undecided (+2.67 points [-13.87, +19.21]; 16.54 would be decided);"
                " lowers the head"
            ),
        ),
        (
            (5, 6, 7),
            (0, 0, 0),
            "undecided",
            "leaves the head undecided (+0.00 points [+0.00, +0.00]; 0.00 would be decided)",
        ),
        (
            (5, 6, 7),
            (5, 6, 7),
            "contradicted",
            "raises the tail by 6.00 points [3.52, 8.48]; raises the head by 6.00",
        ),
        (
            (-5, -6, -7),
            (-5, 5, 0),
            "contradicted",
            "lowers the tail by 6.00 points [3.52, 8.48]; leaves the head undecided",
        ),
    ],
)
def test_the_hypothesis_takes_both_groups(tail, head, outcome, said):
    sentence = report.hypothesis(report.differences(realigned(tail, head)))
    assert f"**{outcome}**" in sentence and said in sentence


def test_one_seed_decides_nothing():
    sentence = report.hypothesis(report.differences(realigned((5, 6, 7))[:1]))
    assert (
        "**undecided**" in sentence
        and "leaves the tail undecided (+5.00 points on one seed, without an interval)" in sentence
    )


def test_verdicts_name_models_and_heads():
    lines = report.verdicts(
        report.differences(realigned((5, 6, 7)), report.REALIGNMENTS)
    ).splitlines()
    assert lines[0].startswith(
        "- global model, FedLoGe, realigned instead of FedLoGe, shared: raises accuracy by 2.00"
        " points [2.00, 2.00]; "
    )
    assert [line.split(",")[0] for line in lines] == [
        "- global model",
        "- personal models",
        "- personal models",
    ]
    assert lines[2].startswith("- personal models, masked, ")


# --- what else a folder holds


def test_bytes_are_per_client_and_round():
    assert report.costs(realigned((5, 6, 7))).round(2).to_dict("list") == {
        "algorithm": ["fedloge"],
        "uplink_kb": [1.5],
        "downlink_kb": [0.5],
        "seconds": [3.0],
        "peak_memory_mb": [1000.0],
    }


def test_departures_are_from_the_readmes_command():
    rows = report.departures(
        [
            history(profile="paper", lr=0.1, options={"fedloge.norm": 0.4}),
            history("fedavg", profile="paper", lr=0.1),
        ]
    )
    assert rows.to_numpy().tolist() == [["lr", 0.1, 0.03], ["fedloge.norm", 0.4, 0.1]]


def test_a_folder_says_what_it_comes_from(tmp_path):
    runs, swept = (
        realigned((5, 6, 7), rounds=2),
        [history(seed=0, rounds=2, options={"fedloge.norm": 0.4})],
    )
    table = report.table(runs)
    folder = results_folder("fedloge_realign", "mini", str(tmp_path))
    report.write(runs, folder, report.laid_out(report.differences(runs)), swept)
    assert {path.name for path in folder.iterdir()} == {
        "table.csv",
        "costs.csv",
        "departures.csv",
        "overview.csv",
        "provenance.json",
    }
    assert pd.read_csv(folder / "table.csv")["mean"].tolist() == table["mean"].round(4).tolist()
    told = json.loads((folder / "provenance.json").read_text())
    assert (
        told["command"]
        == "python -m fedmuscle_lib reproduce fedloge_realign --profile mini --seeds 0,1,2 -p"
        " rounds=2"
    )
    assert [run["settings"] for run in runs_of(folder)] == [
        h.settings.recorded() for h in [*runs, *swept]
    ]
    page = index(tmp_path / "mini").read_text()
    assert "FedLoGe, realigned − FedLoGe, shared" in page and "+6.00 [+3.52, +8.48]" in page


def test_a_note_says_whose_numbers_stand_there():
    note = report.note(realigned((5, 6, 7)))
    assert (
        "seeds 0, 1, 2" in note
        and "`b` (40 clients, 100 % of them in a round) of CIFAR-10-LT" in note
    )
    assert "`glyphs` is no CIFAR-10-LT" in note and "up to 1.9 points higher" in note
    assert "no log of `glyphs` with alpha = 0.3" in report.note(realigned((5, 6, 7), alpha=0.3))
    assert report.about(realigned((5, 6, 7), data="cifar10_lt")).startswith(
        "Generated data (profile mini) · CIFAR-10-LT, alpha 0.5"
    )
    assert "fewer seeds" not in note and "FedProx: fewer seeds" in report.note(
        [*realigned((5, 6, 7)), history("fedprox", seed=0)]
    )


# --- SSE-C and figures


def test_the_fit_pushes_the_nearest_classes_apart():
    cosines = arms.sse_c_cosines(history(options={"fedloge.etf_steps": 500}))
    assert len(cosines) == 2 * 6 and cosines.class_a.lt(cosines.class_b).all()
    nearest = cosines.groupby("fitted").cosine.max()
    assert nearest[True] < nearest[False] - 0.01
    assert nearest[True] == pytest.approx(-1 / 3, abs=0.05)


def test_the_sweep_stands_beside_the_authors():
    runs = [
        history(heads={("global", "shared"): (nu, 0, 0, 0)}, options={"fedloge.norm": nu})
        for nu in (0.1, 1, 3)
    ]
    rows = report.swept(runs, "norm").query("group == 'all'")
    assert rows.value.tolist() == rows.norm.tolist() == [0.1, 1, 3]
    assert rows.authors_mean.tolist()[:2] == [42.8, 38.0] and math.isnan(rows.authors_mean.iloc[2])


def test_every_method_has_a_colour_and_a_marker_of_its_own():
    ours = {
        name
        for name in methods.names()
        if methods.get(name).__module__.startswith(methods.__name__)
    }  # not those of other tests
    assert set(plots.STYLES) == ours
    assert (
        len({colour for colour, _ in plots.STYLES.values()})
        == len({marker for _, marker in plots.STYLES.values()})
        == len(plots.STYLES)
    )


def test_figures_hold_what_they_are_given():
    runs = [
        *realigned((5, 6, 7)),
        *(
            history("fedavg", {("global", "head"): (40, 60, 30, 10)}, seed=seed)
            for seed in range(3)
        ),
    ]
    table = report.table(runs)
    figure = plots.global_accuracy(table)
    assert [ax.get_title() for ax in figure.axes] == ["all classes", "head", "middle", "tail"]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()][-1] == "FedAvg"
    assert points_of(figure.axes[0]) == [(50, 0), (51, 1), (53, 2), (40, 3)]
    assert points_of(figure.axes[0], hollow=True) == [(71.2, 0), (71.3, 3)]
    personal = plots.personal_accuracy(table)
    assert [points_of(ax) for ax in personal.axes] == [[(60, 0), (61, 1)], [(70, 0), (71, 1)]]
    slopes = plots.realignment(table)
    ends = [
        line.get_ydata().tolist()
        for line in slopes.axes[0].lines
        if line.get_marker() == plots.GROUPS["tail"][1]
    ]
    assert ends == [[20, 26]]
    swept = [
        history(heads={("global", "shared"): (40, 0, 0, 0)}, options={"fedloge.norm": nu})
        for nu in (0.1, 1)
    ]
    norms = plots.norms(report.swept(swept, "norm"))
    assert (norms.axes[0].get_xlabel(), norms.axes[0].get_ylabel()) == (
        "norm ν of SSE-C's rows",
        "GM (%)",
    )
    square = plots.classifier(arms.sse_c_cosines(history(options={"fedloge.etf_steps": 5})))
    assert sum(patch.get_height() for patch in square.axes[1].patches) == 12


def test_no_axis_of_accuracies_reaches_where_none_can_be():
    scopes = [
        ("global", "sse_c"),
        ("global", "realigned"),
        ("personal", "local + shared"),
        ("personal", "realigned"),
    ]
    table = report.table(
        [
            history(heads={scope: (20, 80, 30, 5 + 60 * seed) for scope in scopes}, seed=seed)
            for seed in (0, 1)
        ]
    )
    assert (table.ci_low < -2).any() and (table.ci_high > 102).any(), (
        "an interval over two seeds reaches beyond"
    )
    for limits in (
        plots.global_accuracy(table).axes[0].get_xlim(),
        plots.realignment(table).axes[0].get_ylim(),
    ):
        assert -2 <= limits[0] < limits[1] <= 102
