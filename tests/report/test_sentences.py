"""The sentences and the layout say what the numbers say."""

import json

import pytest
from histories import history, history2, spread_runs, with_deltas

from fedmuscle_lib import report
from fedmuscle_lib.core.versions import SOURCE
from fedmuscle_lib.fedmuscle.ablations import Point
from fedmuscle_lib.report import sentences

ARMS = ("local", "fedmuscle")


def test_pairs_out_of_order_are_named_the_furthest_first(paper_runs):
    assert "- `voc`: 0 of the 6 pairs" in report.displaced(paper_runs)
    lines = report.displaced(
        with_deltas({"fedmuscle": 1, "gramian": 2, "pairwise": 3}), most=2
    ).splitlines()
    assert (
        lines[0]
        == "- `voc`: 3 of the 6 pairs of algorithms that the paper has a Δ for stand the other way"
        " round than there."
    )
    assert lines[1].startswith(
        "  - Pairwise alignment (place 1, there 3) before FedMuscle (place 3, there 1): "
    )
    assert (
        "= **+2.00** points; without an interval this can't be told from chance. The paper's is"
        " -9.36." in lines[1]
    )
    assert len(lines) == 3


def test_sentences_say_what_the_numbers_say():
    text = report.users_told_apart(spread_runs(), "fedmuscle", "self")
    assert (
        "better than Self (no communication) for 2 of 6 users (users 1, 2) and worse for 1 (user 3)"
        in text
    )
    assert "for the other 3 it includes 0" in text
    one_seed = [run for run in spread_runs() if run.settings.seed == 0]
    assert (
        "On its one seed FedMuscle is better than Self (no communication) for 2 of 6"
        in report.users_told_apart(one_seed, "fedmuscle", "self")
    )
    assert "can't be told from chance" in report.compared(one_seed, "fedmuscle", "self")


def test_comparison_of_deltas_quotes_the_paper(paper_runs):
    text = report.compared(paper_runs, "fedmuscle", "gramian")
    assert "- `voc`: Δ(FedMuscle) − Δ(Gramian loss) = **+2.69** points" in text
    assert "The paper's is +2.69." in text
    assert text.count("\n") == 2


def test_a_larger_perplexity_is_worse():
    runs = [
        history2(name, [40] * 10 + [perplexity], setup="setup2_generation")
        for name, perplexity in (("local", 20), ("self", 25))
    ]
    assert (
        "Self (no communication) is better than Local training for 0 of 11"
        in report.users_told_apart(runs, "self", "local")
    )
    assert "for 1 of 11 users (user 11)" in report.users_told_apart(runs, "local", "self")
    text = report.delta_by_task(runs).query("task == 'TG'")
    assert text.delta.tolist() == [0, -25]
    shown = report.side_by_side(report.table(runs).query("task == 'TG'"), text).iloc[:, 0]
    assert shown.tolist() == ["+0.00", "-25.00"]


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


def test_what_was_not_run_on_a_public_set_has_no_row_there():
    runs = [history(name, [40] * 6, public=public) for name in ARMS for public in ("voc", "coco")]
    runs.append(history("anchored", [40] * 6, public="voc"))
    rows = report.side_by_side(report.table(runs), report.delta(runs)).index
    assert [public for public, _, name in rows if name == "Anchored FedMuscle (ours)"] == [
        "Pascal VOC"
    ]


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


def test_a_note_says_that_runs_come_from_different_sources():
    sources = {"local": SOURCE, "self": SOURCE, "fedmuscle": "cd"}
    runs = [history(name, [40] * 6, facts={"source": source}) for name, source in sources.items()]
    assert (
        "1 of those computed here are by another state of the source code than the present one"
        in report.note(runs)
    )
    assert (
        "They come from 2 states of the source code, which have the same versions of the"
        " arithmetic." in report.note(runs)
    )
    assert "source" not in report.note(runs[:2])


def in_short_runs(seeds=(0, 1, 2)):
    """FedMuscle is about 10 % above local training, 5 above self, level with shuffled; frozen
    features are 20 % above.
    """
    means = {"local": 40, "fedmuscle": 44, "self": 42, "shuffled": 44, "head_only": 48, "probe": 41}
    runs = [
        history(
            name,
            [mean + 0.1 * seed * (name == "fedmuscle") + seed * (name == "probe")] * 6,
            seed=seed,
        )
        for seed in seeds
        for name, mean in means.items()
    ]
    return runs + report.as_arm(
        [history("local", [50 + 0.1 * seed] * 6, seed=seed) for seed in seeds], "tuned"
    )


def test_three_sentences_say_what_is_gained_what_peers_give_and_what_is_destroyed():
    (item,) = report.in_three_sentences(in_short_runs()).splitlines()
    assert item.startswith(
        "- `voc`: FedMuscle's Δ is **+10.25** % [+9.63, +10.87] over local training and"
        " **-11.98** % ["
    )
    assert (
        "over local training, tuned. Its Δ minus that of arms without live, matched peers: self (no"
        " communication) **+5.25** points [" in item
    )
    assert "shuffled peers **+0.25** points [-0.37, +0.87] (not clear of 0) and " in item
    assert "head only **-9.75** points [-10.37, -9.13]." in item
    assert "(head only) and **+5.00** % [" in item and item.endswith(
        "local training destroys part of what it starts from."
    )
    rows = report.in_short(in_short_runs()).set_index(["question", "arm", "over"]).difference
    assert rows["destroyed", "head_only", "local"] == 20 and len(rows) == 7


def test_the_first_sentence_has_fedmuscle_with_the_tuned_recipe():
    tuned = report.as_arm(
        [history("fedmuscle", [49 + 0.1 * seed] * 6, seed=seed) for seed in range(3)], "tuned"
    )
    (item,) = report.in_three_sentences(in_short_runs() + tuned).splitlines()
    assert (
        "over local training, tuned; with the tuned recipe it is **-2.00** % [-2.01, -1.99] over"
        " the latter. Its Δ minus" in item
    )
    assert item.count(". ") == 2


@pytest.mark.parametrize(
    ("head_only", "verdict"),
    [
        (48, "destroys part of what it starts from."),
        (36, "adds to what it starts from."),
        (None, "may be due to head or backbone."),
    ],
)
def test_what_is_destroyed_is_said_by_users_with_the_same_head(head_only, verdict):
    """The probe is above local training throughout: its head and solver may be all that it
    gains.
    """
    means = {"local": 40, "fedmuscle": 44, "head_only": head_only, "probe": 42}
    runs = [
        history(name, [mean + 0.1 * seed * (name == "probe")] * 6, seed=seed)
        for seed in range(3)
        for name, mean in means.items()
        if mean
    ]
    assert report.in_three_sentences(runs).endswith(verdict)


def test_a_note_says_that_rounds_which_align_first_do_not_end_with_it():
    runs = [history(name, [40] * 6, order="alignment_first") for name in ("local", "fedmuscle")]
    assert (
        "Rounds align first here: after the last alignment these users have one local phase less"
        in report.note(runs)
    )
    assert "align first" not in report.note(runs[:1])  # local training has no order
    assert "align first" not in report.note([history("fedmuscle", [40] * 6)])


def test_a_note_names_whom_alignment_can_not_change():
    bare = {"lora_blocks": {"default": "all", "IC100": "none"}}
    runs = [history(name, [40] * 6, **bare) for name in ("local", "fedmuscle", "simclr", "cofed")]
    text = report.note(runs)
    for name in ("FedMuscle", "SimCLR"):
        assert (
            f" {name}: alignment can't change what users 4 and 5 reached, for want of LoRA in the"
            " backbone." in text
        )
    assert text.count("can't change") == 2
    assert "can't change" not in report.note(
        [history("fedmuscle", [40] * 6, head_on="representation", **bare)]
    )  # the head reads it
    assert "can't change" not in report.note([history("fedmuscle", [40] * 6)])


def test_the_sentences_do_without_what_was_not_run():
    one_seed = report.in_three_sentences(
        [run for run in in_short_runs((0,)) if run.arm in ("local", "fedmuscle", "probe")]
    )
    assert (
        one_seed
        == "- `voc`: FedMuscle's Δ is **+10.00** % over local training. Backbones that stay as they"
        " were pretrained have a Δ of **+2.50** % (logistic probe): one seed cannot tell how"
        " much of this is chance."
    )
    assert "destroys" not in report.in_three_sentences(
        [history(name, [40] * 6) for name in ("local", "fedmuscle")]
    )


def test_a_note_says_whether_there_is_a_tuned_baseline(monkeypatch):
    runs = [history("local", [40] * 6)]
    monkeypatch.setattr(sentences, "tuned_protocol", lambda profile: False)
    assert (
        "This profile has no tuned protocol, so there is no Δ over tuned local training."
        in report.note(runs)
    )
    monkeypatch.setattr(sentences, "tuned_protocol", lambda profile: True)
    assert "protocol" not in report.note(runs)
