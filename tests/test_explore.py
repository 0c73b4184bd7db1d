"""The widgets of ``explore``, driven from Python: what they choose, refuse, draw, stop and go on
with.
"""

import ipywidgets
import pytest
from drawn import curves_of

from fedmuscle_lib.explore import Explorer, explore
from fedmuscle_lib.runs import Interrupted, stored

TINY = {"users": [5, 6], "others": 1, "rounds": 2, "local_epochs": 1, "public_size": 32}


@pytest.fixture
def given(mini_world, store):
    return TINY | {"data_dir": str(mini_world), "models_path": str(mini_world / "models")}


def image_of(explorer):
    (image,) = [
        widget for widget in explorer.panel.children if isinstance(widget, ipywidgets.Image)
    ]
    return image


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (
            "others",
            5,
            "others: M = 5, but a user has only 1 other users in setup1; --others 1 takes them all",
        ),
        ("users", (), "users: []; setup1 has [1, 2, 3, 4, 5, 6], of whom each takes part once"),
        ("rounds", 0, "rounds: Input should be greater than or equal to 1 (got 0)"),
        ("tau", -0.1, "tau = -0.1 for user 5, user 6: must be positive"),
        ("seed", -1, "seed: Input should be greater than or equal to 0 (got -1)"),
    ],
)
def test_an_impossible_choice_gets_one_sentence_and_the_next_possible_one_none(
    given, name, value, why
):
    explorer = Explorer(given)
    before = explorer.controls[name].value
    explorer.controls[name].value = value
    assert explorer.said == why
    explorer.start()
    explorer._thread.join()
    assert explorer.said == why and explorer.figure is None
    explorer.controls[name].value = before
    assert explorer.said == ""


def test_settings_that_no_run_can_have_are_refused(given):
    with pytest.raises(ValueError, match="unknown setting 'rouds'; did you mean 'rounds'?"):
        explore(live=True, **given | {"rouds": 2})


def test_a_model_may_be_exchanged_for_one_that_does_the_same(given):
    explorer = Explorer({"setup": "setup2"})
    assert explorer.models["ViT-Tiny"].options == (
        "vit-base",
        "vit-large",
        "vit-small",
        "vit-tiny",
        "weak-vit-small",
        "weak-vit-tiny",
    )
    assert explorer.models["SegFormer-B0"].options == ("segformer-b0", "segformer-b1")
    assert explorer.models["BERT-Base"].options == ("bert-base", "distilbert-base")
    explorer.models["ViT-Tiny"].value = "vit-large"
    chosen = explorer.settings().backbones
    assert chosen["ViT-Tiny"] == "vit-large" and chosen["ViT-Base"] == "vit-base"


@pytest.mark.slow
def test_a_round_moves_the_curve_stop_keeps_it_and_run_goes_on(given):
    explorer = Explorer(given)
    drawn = []
    image_of(explorer).observe(lambda change: drawn.append(change.new), "value")
    image_of(explorer).observe(lambda _: explorer.stop() if len(drawn) == 1 else None, "value")
    explorer.start()
    explorer._thread.join()
    kept = (
        "Kept of what was begun: local voc seed 0, 1 of 2 rounds. Run this again to go on from"
        " there."
    )
    assert explorer.said == f"Interrupted. 0 of 1 runs are stored. {kept}"
    explorer.start()
    explorer._thread.join()
    assert explorer.said.startswith("FedMuscle, 2 rounds: Δ over local training ")
    assert len(set(drawn)) == len(drawn) >= 4 and drawn[-1] == image_of(explorer).value
    found = curves_of(explorer.figure)
    for name, label in (("local", "Local training"), ("fedmuscle", "FedMuscle")):
        metrics = stored(explorer.settings().model_copy(update={"algorithm": name})).metrics.query(
            "phase == 'after_alignment'"
        )
        for user, title in (
            (5, "user 5: ViT-Small, IC100, Accuracy (%)"),
            (6, "user 6: ViT-Tiny, IC10, Accuracy (%)"),
        ):
            assert (
                found[title, label] == metrics[metrics.user == user].value.tolist()
                and len(found[title, label]) == 2
            )
    assert explorer.tried["users"].tolist() == ["5, 6"] and explorer.tried.rounds.tolist() == ["2"]

    explorer.start()
    explorer._thread.join()
    assert len(explorer.tried) == 1 and explorer.said.startswith("FedMuscle, 2 rounds")
    figure = explore(live=False, **given)
    assert curves_of(figure) == found, "a finished run is stored, and shown at once"


def test_an_interrupt_without_widgets_is_told_as_everywhere(given, monkeypatch):
    monkeypatch.setattr(Explorer, "_draw", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(Interrupted, match="Run this again to go on from there"):
        explore(live=False, **given | {"rounds": 1, "algorithm": "local", "users": [6]})
