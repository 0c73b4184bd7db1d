"""Tables and differences of runs whose accuracies are known beforehand."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from drawn import points_of

from fedmuscle_lib.bridge import arms, plots, report
from fedmuscle_lib.bridge.heads import HEADS
from fedmuscle_lib.bridge.system import TABLES, Settings
from fedmuscle_lib.core.notebooks import results_folder
from fedmuscle_lib.runs import History

USERS = (
    (5, "ViT-Small", "IC100", ("all", "head", "tail")),
    (6, "ViT-Tiny", "IC10", ("all", "head", "middle", "tail")),
)
PROVENANCE = {
    "seconds": 3.0,
    "peak_memory_bytes": 10**9,
    "finished": "2026-01-01",
    "address": "01",
    "versions": {},
    "machine": "a machine",
    "torch": "2",
}
GAIN = {"local": 0, "self": 1, "fedmuscle": 4}


def history(algorithm: str, seed: int) -> History:
    """User 5 has 40 everywhere, user 6 has 60; the arm adds its gain, in the tail twice, where
    realignment adds 10 and the seed.
    """
    rows = [
        (
            2,
            *user,
            head,
            group,
            2,
            3,
            100,
            20 * number - 60 + GAIN[algorithm] * (1 + (group == "tail")) + (10 + seed) * tailed,
        )
        for number, *user, groups in (
            (number, number, model, task, groups) for number, model, task, groups in USERS
        )
        for head in HEADS
        for group in groups
        for tailed in [group == "tail" and "realigned" in head]
    ]
    return History(
        Settings(algorithm=algorithm, seed=seed, users=(4, 5, 6), others=2, imbalance=0.05),
        pd.DataFrame(rows, columns=TABLES["metrics"]),
        pd.DataFrame(
            [
                {
                    "round": 1,
                    "user": 5,
                    "uplink_bytes": 1,
                    "downlink_bytes": 2,
                    "flops": 10,
                    "flops_done": 10,
                }
            ]
        ),
        losses=pd.DataFrame(),
        measures=pd.DataFrame(),
        provenance=PROVENANCE,
    )


def histories(seeds: int = 3) -> list[History]:
    return [history(algorithm, seed) for seed in range(seeds) for algorithm in arms.ARMS]


def test_differences_are_means_over_the_users_who_have_the_group():
    rows = (
        report.differences(histories(), report.PEERS)
        .set_index(["b", "b_head", "group"])
        .sort_index()
    )
    for head in HEADS:
        assert rows.loc["local", head].difference.to_dict() == {
            "all": 4,
            "head": 4,
            "middle": 4,
            "tail": 8,
        }
        assert rows.loc["self", head].difference.to_dict() == {
            "all": 3,
            "head": 3,
            "middle": 3,
            "tail": 6,
        }
    assert rows.n_seeds.eq(3).all() and (rows.ci_low == rows.difference).all()
    realigned = report.differences(histories(), report.REALIGNMENTS)
    tail = realigned[realigned.group == "tail"]
    assert tail.difference.eq(11).all() and (tail.ci_high - 11).tolist() == pytest.approx(
        [4.303 / 3**0.5] * 6, abs=1e-3
    )
    assert realigned[realigned.group != "tail"].difference.eq(0).all()


def test_differences_by_user_leave_out_what_a_user_has_not():
    rows = report.differences_by_user(histories())
    assert rows[rows.group == "middle"].user.unique().tolist() == [6]
    assert len(rows) == len(report.PEERS) * 7


def test_the_table_and_its_layout_have_a_cell_for_each_user_head_group_and_arm():
    table = report.table(histories())
    assert len(table) == 3 * len(HEADS) * 7
    wide = report.side_by_side(table)
    assert (
        wide.loc[(6, "ViT-Tiny", "IC10", "linear, realigned"), ("tail", "FedMuscle")]
        == "79.0 ± 0.8"
    )
    assert wide.loc[(5, "ViT-Small", "IC100", "own"), ("middle", "FedMuscle")] == ""


def test_what_is_said_is_what_the_intervals_say():
    tail = report.differences(histories()).query("group == 'tail'")
    said = report.verdicts(tail).splitlines()
    assert (
        said[0]
        == "- FedMuscle − Local training, head `own`: raises the tail by 8.00 points [8.00, 8.00]."
    )
    assert said[-1].startswith(
        "- FedMuscle: realigned − as trained, head `linear`: raises the tail by 11.00 points [8.52,"
        " 13.48]"
    )
    alone = report.verdicts(report.differences(histories(1), report.PEERS))
    assert "leaves the tail undecided (+8.00 points on one seed, without an interval)" in alone
    assert "imbalance 0.05, seeds 0, 1, 2." in report.note(histories())


def test_a_folder_holds_tables_and_their_origin(tmp_path):
    folder = results_folder("bridge", "mini", str(tmp_path / "figures"))
    report.write(histories(), folder)
    told = json.loads((folder / "provenance.json").read_text())
    assert told["command"].startswith(
        "python -m fedmuscle_lib reproduce bridge --profile mini --seeds 0,1,2 -p "
    )
    assert "-p imbalance=0.05" in told["command"] and len(told["runs"]) == 9
    assert pd.read_csv(folder / "samples.csv").groupby("user").size().to_dict() == {5: 3, 6: 4}
    overview = pd.read_csv(folder / "overview.csv")
    assert list(overview) == ["difference_of", "by_head", "all", "head", "middle", "tail"]
    assert overview.iloc[0].tolist()[:3] == [
        "FedMuscle − Local training",
        "own",
        "+4.00 [+4.00, +4.00]",
    ]


def test_the_figure_has_a_panel_for_each_group_and_a_point_for_each_comparison():
    figure = plots.peers(report.differences(histories(), report.PEERS))
    assert [ax.get_title() for ax in figure.axes] == [
        "head classes",
        "middle classes",
        "tail classes",
    ]
    for ax, gain in zip(figure.axes, (4, 4, 8), strict=True):
        assert sorted(x for x, _ in points_of(ax)) == [gain * 3 / 4] * 4 + [gain] * 4
