"""Runs as a whole: repeatable, resumable, stored, and the same whichever way the reply travels."""

import shutil

import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from fedmuscle_lib import run
from fedmuscle_lib.core.errors import DataError, Diverged
from fedmuscle_lib.fedmuscle.algorithms import PHASES
from fedmuscle_lib.fedmuscle.system import TABLES
from fedmuscle_lib.runs import NotStored, stored


@pytest.fixture
def settings(settings):
    """Makes settings of two users of two tasks with few samples."""
    return lambda **given: settings(
        **({"users": (5, 6), "others": 1, "train_samples": {"IC10": 32, "IC100": 32}} | given)
    )


def quiet(settings, store):
    return run(settings, progress=str, store=store)


def test_a_run_that_was_cut_off_resumes_to_the_same_tables_which_are_read_again(
    settings, store, cut_off_and_resumed
):
    h = cut_off_and_resumed(settings())
    ticks = []
    again = run(settings(), progress=ticks.append, store=store)
    assert not ticks and again.origin == "computed" and not again.caveats
    pd.testing.assert_frame_equal(h.metrics, again.metrics)

    assert (h.costs.flops > 0).all() and len(h.costs) == len(h.losses) == 2 * 2
    assert h.provenance["seconds"] > 0 and h.provenance["peak_memory_bytes"] > 1e8
    assert (h.losses.local > 0).all() and (h.losses.alignment > 0).all()
    assert set(h.metrics.phase) == set(PHASES)
    assert sorted(h.final().user) == [5, 6]
    assert h.measures.empty and list(h.measures) == list(TABLES["measures"])
    local = quiet(settings(algorithm="local"), store)
    assert local.costs.flops.sum() < h.costs.flops.sum()
    assert local.losses.alignment.isna().all()


@pytest.mark.slow
def test_the_three_replies_train_alike(settings, store, mini_world):
    """Accuracies move in steps of one sample; float rounding may flip a few of a thousand, so
    metrics agree to 0.5 points.
    """
    three = {"users": (2, 5, 6), "others": 2, "train_samples": {"MLC": 64}, "data_dir": mini_world}
    histories = {
        reply: quiet(settings(**three, reply=reply), store)
        for reply in ("gradient", "factored", "dense")
    }
    for reply in ("factored", "dense"):
        difference = (histories[reply].metrics.value - histories["gradient"].metrics.value).abs()
        assert difference.max() <= 0.5
        assert (
            histories[reply].costs.uplink_bytes == histories["gradient"].costs.uplink_bytes
        ).all()
    down = {reply: h.costs.downlink_bytes.sum() for reply, h in histories.items()}
    assert down["gradient"] < down["factored"] < down["dense"]


def test_one_local_run_serves_every_public_set_and_sends_nothing(settings, store):
    a = quiet(settings(algorithm="local", public="voc"), store)
    b = quiet(settings(algorithm="local", public="cifar100"), store)
    assert len(list(store.entries())) == 1  # one run serves both
    pd.testing.assert_frame_equal(a.metrics, b.metrics)
    assert not a.costs[["uplink_bytes", "downlink_bytes"]].any().any()
    assert a.final("after_local").value.equals(a.final("after_alignment").value)


def test_nothing_is_computed_where_the_environment_says_so(settings, store, monkeypatch):
    monkeypatch.setenv("FEDMUSCLE_COMPUTE", "0")
    with pytest.raises(NotStored, match="fedmuscle voc seed 0 is not stored"):
        quiet(settings(), store)
    assert stored(settings(), store) is None


def test_missing_data_is_named(settings, store, tmp_path):
    (tmp_path / "nowhere").mkdir()
    with pytest.raises(DataError, match="nowhere.*client_1.pkl.*no such file"):
        quiet(settings(data_dir=tmp_path / "nowhere"), store)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (None, "not a readable checkpoint"),
        (lambda tensors: tensors.pop("layernorm.weight"), "lacks layernorm.weight"),
    ],
)
def test_a_damaged_backbone_is_named(settings, store, small_world, tmp_path, damage, message):
    shutil.copytree(small_world / "models", tmp_path / "models")
    victim = tmp_path / "models/vit-small/model.safetensors"
    tensors = load_file(victim)
    if damage is None:
        victim.write_bytes(victim.read_bytes()[:2000])
    else:
        damage(tensors)
        save_file(tensors, victim, metadata={"format": "pt"})
    with pytest.raises(OSError, match=f"vit-small: .*{message}") as caught:
        quiet(settings(models_path=tmp_path / "models"), store)
    assert str(caught.value).isprintable()


def test_a_backbone_that_is_exchanged_is_read_again(settings, store, small_world, tmp_path):
    """A process that trained with the former one shares its weights in memory; the run of the new
    one is not of those.
    """
    shutil.copytree(small_world / "models", tmp_path / "models")
    s = settings(algorithm="local", users=(6,), rounds=1, models_path=tmp_path / "models")
    former = quiet(s, store)
    for victim in tmp_path.glob("models/*/model.safetensors"):
        tensors = {name: tensor.flip(0) for name, tensor in load_file(victim).items()}
        save_file(tensors, victim, metadata={"format": "pt"})
    assert not quiet(s, store).losses.local.equals(former.losses.local)
    assert len(list(store.entries())) == 2


def test_a_diverging_user_is_named(settings, store):
    lost = settings(algorithm="local", lr=1e9, local_epochs=3)
    with pytest.raises(Diverged, match="user 5: the loss is not finite in epoch"):
        quiet(lost, store)
    assert not any(entry.done for entry in store.entries())
