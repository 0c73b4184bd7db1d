"""The lines beside tables and figures, and where a page says that its numbers come from."""

import json
import shlex

from histories import history, history2

from fedmuscle_lib import report
from fedmuscle_lib.core import notebooks
from fedmuscle_lib.fedmuscle.ablations import Point
from fedmuscle_lib.report.provenance import write_provenance
from fedmuscle_lib.report.tables import provenance_of

ARMS = ("local", "fedmuscle")


def test_provenance_tells_how_to_repeat_the_runs():
    runs = [history("local", [40.0] * 6, seed=seed, rounds=2) for seed in (1, 0)]
    command = "python -m fedmuscle_lib reproduce table7 --profile mini --seeds 0,1 -p rounds=2"
    assert provenance_of(runs, "table7")["command"] == command

    def last(runs, folder, n=2):
        return shlex.split(provenance_of(runs, folder)["command"])[-n:]

    ten = [history2("local", [40.0] * 10)]
    assert last(ten, "controls_setup2") == ["-p", 'setup="setup2"']
    assert "-p" not in last(ten, "table9"), "a setup that is not named is the notebook's"
    assert last(ten, "directed_setup2_public=flickr30k")[1] == 'public="flickr30k"'
    mixed = [history("local", [40] * 6, profile="small", protocol=p) for p in ("paper", "tuned")]
    assert last(mixed, "controls") == ["-p", 'protocol="paper"'], "a tuned arm has its own"


def test_provenance_says_once_what_runs_share_and_loses_nothing(tmp_path):
    facts = {"address": "0123", "versions": {"core": 1}, "settings": {"rounds": 2}}
    runs = [history("local", [40] * 6, seed=seed, facts=facts) for seed in (0, 1)]
    own = facts | {"versions": {"core": 1, "fedmuscle": 2}}
    runs += [history("fedmuscle", [44] * 6, facts=own, options=o) for o in ({}, {"sage.weight": 1})]
    write_provenance(told := provenance_of(runs, "table7"), tmp_path)
    assert told["shared"]["versions"] == {"core": 1}
    assert told["arms"]["fedmuscle"]["versions"] == {"fedmuscle": 2}
    read = notebooks.runs_of(tmp_path)
    assert [run["settings"] for run in read] == [h.settings.recorded() for h in runs]
    assert [run["versions"] for run in read] == [h.provenance["versions"] for h in runs]
    assert json.loads((tmp_path / "provenance.json").read_text()) == told


def test_a_model_is_called_what_it_is():
    called = {"ViT-Base": "efficientnet-lite1", "ViT-Small": "vit-small"}
    runs = [history(name, [40] * 6, profile="small", backbones=called) for name in ARMS]
    assert "ViT-Small" not in report.models(runs[0].settings)
    shown = report.page_table(runs)
    assert "EfficientNet-Lite1, for ViT-Base" in shown.columns.get_level_values("model")


def test_a_note_says_which_seeds_were_taken_what_was_shipped_and_each_caveat_once(tmp_path):
    absent = "IC/CIFAR10 is not here"
    runs = [
        history("local", [40] * 6, seed=seed, origin="shipped", caveats=(absent,),
                facts={"address": f"a{seed}"}, data_dir=tmp_path) for seed in range(3)
    ]  # fmt: skip
    runs.append(history("fedmuscle", [44] * 6, facts={"address": "b"}, data_dir=tmp_path))
    assert report.seeds_taken(runs) == "Seeds 0, 1, 2; FedMuscle seed 0."
    told = report.note(runs)
    assert told.endswith(
        f"3 of 4 runs were shipped, 1 computed here. Of the shipped runs: {absent}."
    )
    assert (
        report.note([Point({"others": 1}, tuple(runs)), Point({"others": 2}, tuple(runs))]) == told
    )


def test_the_line_above_a_figure_says_whose_numbers_it_shows():
    runs = [
        history(name, [40] * 6, seed=seed, facts={"address": f"{name}-{seed}"})
        for name in ARMS
        for seed in (0, 2)
    ]
    line = report.about(runs)
    assert line == (
        "Generated data (profile mini) · Setup1 · 6 users · public set Pascal VOC ·"
        " seeds\xa00,\xa02 · 95\xa0% intervals"
    )
    assert report.about(runs[:1]).endswith("seed\xa00 · one seed has no interval")
