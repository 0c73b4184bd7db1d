"""Arms: one algorithm under several settings in one table, and how they depart from the paper."""

from dataclasses import fields

import pytest
from histories import history, history2

from fedmuscle_lib import History, Settings, report


def test_arms_of_one_algorithm_stand_in_one_table(arms):
    names = ["local", "fedmuscle", "self", "fedmuscle, M = 1", "self, M = 1, cold"]
    table, delta = report.table(arms), report.delta(arms)
    assert (
        list(dict.fromkeys(table.algorithm))
        == delta.algorithm.tolist()
        == report.costs(arms).algorithm.tolist()
        == names
    )
    assert delta.delta.tolist() == pytest.approx([0, 10, 0, 5, 2.5])
    assert table[table.paper_mean.notna()].algorithm.unique().tolist() == [
        "local",
        "fedmuscle",
    ]  # whose M is the paper's
    shown = report.side_by_side(table, delta)
    assert shown.loc["Pascal VOC", "the paper's algorithms"].index.tolist() == [
        "Local training",
        "FedMuscle",
        "FedMuscle, M = 1",
    ]
    assert shown.loc["Pascal VOC", "controls and ours"].index.tolist() == [
        "Self (no communication)",
        "Self (no communication), M = 1, cold",
    ]
    assert report.over_baseline(arms).algorithm.drop_duplicates().tolist() == names[1:]
    assert "Δ(FedMuscle, M = 1) − Δ(FedMuscle) = **-5.00**" in report.compared(
        arms, "fedmuscle, M = 1", "fedmuscle"
    )
    assert report.costs(arms).set_index("algorithm").tflop["fedmuscle, M = 1"] == 24


def test_an_arm_may_have_a_local_training_of_its_own(arms):
    longer = [
        history("fedmuscle", [55] * 6, local_epochs=9),
        history("local", [50] * 6, local_epochs=9),
    ]
    runs = arms + report.as_arm(longer, "E = 9")
    assert report.delta(runs).set_index("algorithm").delta[
        ["fedmuscle", "fedmuscle, E = 9", "local, E = 9"]
    ].tolist() == [10, 10, 0]
    points = report.over_baseline(runs).groupby("algorithm").difference.mean()
    assert points["fedmuscle, E = 9"] == 5 and "local, E = 9" not in points


def test_departures_name_what_differs_from_the_paper():
    rows = report.departures([history("fedmuscle", [40] * 6, rounds=20, tau=0.3)]).set_index(
        "setting"
    )
    assert rows.loc["rounds"].tolist() == ["20", "150"]
    assert rows.loc["tau"].tolist() == ["0.3", "0.2"]
    assert not {"seed", "train_samples"} & set(rows.index)


def test_departures_are_shown_with_whole_sentences():
    table = report.departures([history("local", [40] * 6)])
    assert max(table.paper.map(len)) > 50 and "..." not in table._repr_html_()
    assert (
        "<details>" in table._repr_html_()
        and "<details>" not in report.Sentences(table[:3])._repr_html_()
    )


def test_departures_give_no_default_of_ours_as_the_papers():
    """Where the paper leaves something open it has no value there, whatever ours is."""
    numbers = {
        "mask_size": 64,
        "text_length": 16,
        "lora_alpha": 8,
        "weight_decay": 0.1,
        "head_hidden": 8,
    }
    words = {
        "lora_layers": "linear",
        "lora_blocks": "last",
        "head_on": "representation",
        "pooled_stages": "all",
        "precision": "bfloat16",
    }
    rows = (
        report.departures(
            [history("fedmuscle", [40] * 6, **numbers, **words, epochs=7, image_size=64)]
        )
        .set_index("setting")
        .paper
    )
    assert all(rows[name].startswith("open") for name in (*numbers, *words))
    assert rows["image_size"] == "no such users"
    assert rows["epochs"] == "150"  # Section 6.1: E = 1 in each of R = 150 rounds


def test_the_remark_on_the_papers_delta_is_true():
    """Every printed value follows from the cells' means but for those that the remark names."""
    remark = report.departures([history("local", [40] * 6)]).set_index("setting").paper["Δ"]
    assert remark.endswith(
        "gives the printed values but for Table 1's two of FedHeNN and Table 2's"
    )
    found = [
        (name, row.public, row.algorithm)
        for name in ("table1", "table7", "table2", "table9")
        for row in _otherwise(name)
    ]
    assert found == [
        ("table1", "voc", "fedhenn"),
        ("table1", "coco", "fedhenn"),
        ("table2", "flickr30k", "fedmuscle"),
    ]


def _otherwise(name):
    deltas = report.paper_deltas(name)
    return deltas[
        (deltas.printed - deltas.of_cells).abs() > 0.02
    ].itertuples()  # cells have two decimals


def test_departures_give_a_recipe_for_the_tasks_of_the_runs_users():
    """One value where the users' tasks agree, whatever users of other tasks would have."""
    recipes = {
        "lr": {"default": 1e-3, "MLC": 2e-3, "TC": 5e-3},
        "head_hidden": {"default": 64, "SS": 8},
    }
    rows = report.departures([history("local", [40] * 6, **recipes)]).set_index("setting").ours
    assert rows["lr"] == "MLC: 0.002, IC100: 0.001, IC10: 0.001" and rows["head_hidden"] == "64"


def test_departures_name_an_algorithms_own_options_alone():
    options = {"fedrcl.weight": 0.3, "sage.mu": 1}
    rows = report.departures(
        [history(name, [40] * 6, options=options) for name in ("local", "fedrcl")]
    )
    assert rows[rows.setting == "options"].ours.tolist() == ["fedrcl.weight: 0.3 (fedrcl)"]


def test_departures_name_checkpoints_that_have_read_what_users_read():
    rows = report.departures([history2("local", [40] * 10, profile="small")])
    read = rows[rows.setting.str.startswith("pretraining of")].set_index("setting").ours
    assert (
        list(read.index) == ["pretraining of minilm-l6", "pretraining of minilm-l3"]
        and read.str.contains("Yahoo").all()
    )
    assert (
        not report.departures([history("local", [40] * 6)])
        .setting.str.startswith("pretraining of")
        .any()
    )


def test_departures_list_every_choice_that_the_paper_leaves_open_at_our_default_too():
    rows = report.departures([history("local", [40] * 6)]).set_index("setting").paper
    settings = {name for name in Settings.model_fields if Settings.about(name)["open"]}
    no_settings = {
        "projection",
        "dropout",
        "augmentation of public data",
        "schedule of the learning rate",
        "AdamW's moments",
    }
    no_settings |= {"threshold of F1", "batch norm of backbones", "samples of the data sets"}
    assert {
        "head_on",
        "optimisers",
        "lora_alpha",
        "lora_dropout",
        "augmentation",
        "weight_decay",
        "order",
        "refit",
        "pooling",
    } <= settings
    assert set(rows.index[rows.str.startswith("open")]) == settings | no_settings
    assert all(
        "The paper leaves it open" in Settings.model_fields[name].description for name in settings
    )


def test_departures_of_several_arms_name_those_that_have_a_value():
    refitted = report.as_arm([history("fedmuscle", [40] * 6, refit=1, batch_size=20)], "refit")
    rows = report.departures([history("fedmuscle", [40] * 6), *refitted])
    assert rows.loc[rows.setting == "order", "ours"].tolist() == ["local_first"]
    assert rows.loc[rows.setting == "refit", "ours"].tolist() == [
        "0 (fedmuscle)",
        "1 (fedmuscle, refit)",
    ]
    assert rows.loc[rows.setting == "public_batch_size", "ours"].tolist() == [
        "32 (fedmuscle)",
        "20 (fedmuscle, refit)",
    ]


def test_departures_name_the_training_sets_that_are_not_appendix_gs():
    sizes = {"IC10": 50, "IC100": 30, "MLC": 150}
    rows = report.departures([history("fedmuscle", [40] * 6, train_samples=sizes)]).set_index(
        "setting"
    )
    assert rows.loc["train_samples"].tolist() == ["MLC: 150, IC100: 30", "MLC: 200, IC100: 100"]
    alone = history("local", [40] * 6, train_samples=sizes, users=(6,))
    assert "train_samples" not in report.departures([alone]).setting.tolist()


def test_an_arm_is_its_run_under_another_name():
    run = history("fedmuscle", [44] * 6)
    (named,) = report.as_arm([run], "M = 1")
    (renamed,) = report.as_arm([named], "M = 2")
    assert (run.arm, named.arm, renamed.arm) == (
        "fedmuscle",
        "fedmuscle, M = 1",
        "fedmuscle, M = 2",
    )
    assert all(
        getattr(named, field.name) is getattr(run, field.name)
        for field in fields(History)
        if field.name != "setting"
    )
