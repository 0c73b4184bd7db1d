"""The sentences and the layout say what the numbers say."""

import json

from histories import history

from fedmuscle_lib import report
from fedmuscle_lib.fedmuscle.ablations import Point

ARMS = ("local", "fedmuscle")


def test_a_subset_is_said_to_be_one(tmp_path):
    """A data set that its manifest calls unofficial is named under the table and in the provenance;
    one that is whole is not.
    """
    for folder, dataset, official in (
        ("IC/CIFAR100", "cifar100", True),
        ("IC/CIFAR10", "cifar10", False),
    ):
        path = tmp_path / folder / "manifest.json"
        path.parent.mkdir(parents=True)
        path.write_text(
            json.dumps(
                {
                    "dataset": dataset,
                    "official": official,
                    "counts": {"found": {"train": 50}},
                    "sizes": [],
                }
            )
        )
    runs = [history(name, [1, 2, 3, 4, 5, 6], data_dir=tmp_path) for name in ("local", "fedmuscle")]
    told = report.provenance_of(runs, "table7")["data"]
    assert told["IC/CIFAR10"]["counts"] == {"found": {"train": 50}} and set(told) == {
        "IC/CIFAR10",
        "IC/CIFAR100",
    }
    assert "Of `cifar10` a subset" in report.note(runs)
    assert "subset" not in report.note([history("local", [1, 2, 3, 4, 5, 6])])


def test_rendering_puts_ours_beside_the_papers(paper_runs):
    shown = report.side_by_side(report.table(paper_runs), report.delta(paper_runs))
    assert (
        shown.loc["Pascal VOC", "the paper's algorithms", "FedMuscle"].tolist()[1]
        == "46.3 | 46.33 ± 0.12"
    )
    assert (
        shown.loc["COCO", "the paper's algorithms", "Gramian loss"].tolist()[0] == "+22.31 | +22.31"
    )
    assert {"micro-F1 (%)", "Accuracy (%)"} == set(shown.columns.get_level_values("metric")) - {""}
    page = shown.page()
    assert (
        page.count(">Pascal VOC: the paper's algorithms</th></tr>") == 1 and "rowspan" not in page
    )
    assert '<td nowrap><b>+22.31</b><br><sub style="color: grey">+22.31</sub></td>' in page
    assert (
        '<td nowrap>46.3<br><sub style="color: grey">46.33 ± 0.12</sub></td>' in page
        and " | " not in page
    )


def test_a_model_is_called_what_it_is():
    runs = [
        history(
            name,
            [40] * 6,
            profile="small",
            backbones={"ViT-Base": "efficientnet-lite1", "ViT-Small": "vit-small"},
        )
        for name in ARMS
    ]
    models = report.models(runs)
    assert models["ViT-Base"] == "EfficientNet-Lite1, for ViT-Base" and "ViT-Small" not in models
    shown = report.side_by_side(report.table(runs), report.delta(runs), models=models)
    assert "EfficientNet-Lite1, for ViT-Base" in shown.columns.get_level_values("model")
    assert "EfficientNet-Lite1,<br>for ViT-Base" in shown.page()


def test_the_line_above_a_figure_says_whose_numbers_it_shows():
    runs = [history(name, [40] * 6, seed=seed) for name in ARMS for seed in (0, 2)]
    line = report.about(runs)
    assert (
        line == "Generated data (profile mini) · Setup1 · 6 users · public set Pascal VOC ·"
        " seeds\xa00,\xa02 · 95\xa0% intervals"
    )
    assert report.about(runs[:1]).endswith("seed\xa00 · one seed has no interval")
    assert "the paper's FedMuscle: +26.70 % on Pascal VOC" in report.about(runs, paper=True)
    assert report.about([Point(varied={"M": 1}, histories=tuple(runs))]) == line


def test_controls_and_ours_stand_apart():
    runs = [
        history(name, [40] * 6) for name in ("local", "self", "fedmuscle", "anchored", "pairwise")
    ]
    rows = report.side_by_side(report.table(runs), report.delta(runs)).loc["Pascal VOC"].index
    assert rows[:3].tolist() == [
        ("the paper's algorithms", name)
        for name in ("Local training", "FedMuscle", "Pairwise alignment")
    ]
    assert rows[3:].tolist() == [
        ("controls and ours", name)
        for name in ("Self (no communication)", "Anchored FedMuscle (ours)")
    ]


def test_a_note_says_how_many_runs_were_shipped_and_how_many_computed():
    shipped = [
        history("local", [40] * 6, seed=seed, origin="shipped", facts={"address": f"a{seed}"})
        for seed in range(3)
    ]
    computed = [
        history("fedmuscle", [44] * 6, seed=seed, facts={"address": f"b{seed}"})
        for seed in range(2)
    ]
    assert report.note(shipped + computed).endswith(" 3 of 5 runs were shipped, 2 computed here.")
    assert report.note(shipped).endswith(" 3 of 3 runs were shipped, 0 computed here.")
    assert report.note(computed).endswith(" 0 of 2 runs were shipped, 2 computed here.")
    points = [
        Point({"others": 1}, (*shipped, *computed[:1])),
        Point({"others": 2}, (*shipped, *computed)),
    ]
    assert report.note(points[0].histories, points).endswith(
        " 3 of 5 runs were shipped, 2 computed here."
    )


def test_a_note_lists_each_caveat_once():
    absent, other = "IC/CIFAR10 is not here", "torch 2.13.0+cpu there, 2.14 here"
    runs = [
        history(name, [40] * 6, origin="shipped", caveats=said)
        for name, said in (("local", (absent, other)), ("self", (other,)))
    ]
    runs.append(history("fedmuscle", [40] * 6))
    assert report.note(runs).endswith(
        " 2 of 3 runs were shipped, 1 computed here. Of the shipped runs: " + f"{absent}; {other}."
    )
    assert report.note(report.as_arm(runs, "M = 1")).endswith(f"{absent}; {other}.")
    assert "Of the shipped" not in report.note(runs[2:])
