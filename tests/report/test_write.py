"""What a notebook leaves in its folder, and where that says it comes from."""

import json
import shlex
from pathlib import Path

import pandas as pd
from histories import history, history2

from fedmuscle_lib import report
from fedmuscle_lib.core import notebooks
from fedmuscle_lib.report.provenance import write_provenance


def test_where_arms_come_from_can_be_told(arms, tmp_path):
    report.write(arms, tmp_path, others=[history2("local", [40] * 11, setup="setup2_generation")])
    runs = notebooks.runs_of(tmp_path)
    assert [run["arm"] for run in runs] == [*(run.arm for run in arms), "local"]
    assert [(run["settings"]["others"], run["settings"]["tau"]) for run in runs] == [
        (3, 0.2)
    ] * 3 + [(1, 0.2), (1, 0.3), (3, 0.2)]
    assert runs[-1]["settings"]["setup"] == "setup2_generation"
    rows = report.departures(arms).set_index("setting")
    assert rows.loc["others"].tolist() == ["1 (fedmuscle, M = 1; self, M = 1, cold)", "3"]
    assert rows.loc["tau"].tolist() == ["0.3 (self, M = 1, cold)", "0.2"]
    assert rows.loc["rounds", "ours"] == "20"  # all of them


def test_provenance_tells_how_to_repeat_the_runs():
    runs = [history("local", [40.0] * 6, seed=seed, rounds=2) for seed in (1, 0)]
    facts = report.provenance_of(runs, "table7")
    assert (
        facts["command"]
        == "python -m fedmuscle_lib reproduce table7 --profile mini --seeds 0,1 -p rounds=2"
    )
    told, own = (
        report.provenance_of([history2("local", [40.0] * 10)], folder)["command"]
        for folder in ("controls_setup2", "table9")
    )
    assert shlex.split(told)[-2:] == ["-p", 'setup="setup2"'] and "setup" not in own, (
        "one that the folder does not name is the notebook's"
    )
    other = report.provenance_of(
        [history2("local", [40.0] * 10)], "directed_setup2_public=flickr30k"
    )["command"]
    assert shlex.split(other)[-4:] == [
        "-p",
        'setup="setup2"',
        "-p",
        'public="flickr30k"',
    ], "setup2's own, but not the notebook's"
    mixed = [
        history("local", [40.0] * 6, profile="small", protocol=name) for name in ("paper", "tuned")
    ]
    assert shlex.split(report.provenance_of(mixed, "controls")["command"])[-2:] == [
        "-p",
        'protocol="paper"',
    ], "a tuned arm has its own"
    assert [run["settings"] for run in facts["runs"]] == [{"seed": 1}, {"seed": 0}] and facts[
        "made_with"
    ] == [{"machine": "a machine"}]


def test_a_folder_holds_each_table_of_both_phases_in_one_file(tmp_path):
    runs = [
        history(name, [40 + seed] * 6, seed=seed)
        for name in ("local", "fedmuscle")
        for seed in (0, 1)
    ]
    report.write(runs, tmp_path)
    tables = {
        f"{name}{phase}.csv"
        for name in ("table", "delta", "delta_by_task", "delta_by_seed")
        for phase in ("", "_after_local")
    }
    assert {path.name for path in tmp_path.iterdir()} == tables | {
        "costs.csv",
        "departures.csv",
        "provenance.json",
    }
    for phase in ("", "_after_local"):
        assert pd.read_csv(tmp_path / f"table{phase}.csv").columns.tolist() == report.TABLE_COLUMNS
        delta = pd.read_csv(tmp_path / f"delta{phase}.csv")
        columns = "public,algorithm,delta,delta_std,n_seeds,ci_low,ci_high,delta_tuned,ci_low_tuned,ci_high_tuned,delta_of_means,paper_delta"
        assert ",".join(delta.columns) == columns
        assert delta.n_seeds.eq(2).all() and delta.ci_low.notna().all()


def test_provenance_says_once_what_runs_share_and_loses_nothing(tmp_path):
    """Of settings and versions, which are mappings, the items that all have stand above; an arm's
    name may be any text.
    """
    facts = {"address": "0123", "versions": {"core": 1}, "settings": {"rounds": 2}}
    runs = [
        history("local", [40] * 6, seed=seed, facts=facts | {"seconds": float(seed)})
        for seed in (0, 1)
    ]
    runs += [
        history(
            "fedmuscle",
            [44] * 6,
            facts=facts | {"versions": {"core": 1, "fedmuscle": 2}},
            options=o,
        )
        for o in ({}, {"sage.weight": 1})
    ]
    write_provenance(told := report.provenance_of(runs, "table7"), tmp_path)
    assert told["shared"]["versions"] == {"core": 1} and told["arms"]["fedmuscle"]["versions"] == {
        "fedmuscle": 2
    }
    assert told["runs"][:2] == [
        {"arm": "local", "settings": {"seed": seed}, "seconds": float(seed)} for seed in (0, 1)
    ]
    read = notebooks.runs_of(tmp_path)
    assert [run["settings"] for run in read] == [h.settings.recorded() for h in runs]
    for name in ("seconds", "finished", "versions", "peak_memory_bytes", "address"):
        assert [run[name] for run in read] == [h.provenance[name] for h in runs]
    text = (tmp_path / "provenance.json").read_text()
    assert (
        json.loads(text) == told
        and len([line for line in text.splitlines() if '"arm": ' in line]) == 4
    )
    assert notebooks.runs_of(tmp_path / "none") == []


def test_results_lie_beside_the_reference_unless_said_otherwise(tmp_path, monkeypatch):
    assert Path(__file__).parents[2] / "results" == notebooks.RESULTS
    monkeypatch.setattr(notebooks, "RESULTS", tmp_path / "results")
    assert report.results_folder("table7", "mini") == tmp_path / "results/mini/table7"
    assert (
        report.results_folder("table7", "mini", str(tmp_path / "mine"))
        == tmp_path / "mine/mini/table7"
    )
    assert (tmp_path / "results/mini/table7").is_dir() and (tmp_path / "mine/mini/table7").is_dir()
