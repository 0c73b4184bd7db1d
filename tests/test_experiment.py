"""Runs as a whole: repeatable, resumable, cached, shared, and the same whichever way the reply travels."""

import errno
import multiprocessing
import os
import shutil
import signal
import time

import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from fedmuscle_lib import Settings, experiment, run
from fedmuscle_lib.pickles import DataError

SMALL = {"users": (2, 5, 6), "others": 2, "rounds": 3, "local_epochs": 1, "public_size": 64, "evaluate_every": 1}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "RUNS", tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def settings(mini_world, runs):
    return lambda **given: Settings(**(SMALL | {"data_dir": mini_world, "models_path": mini_world / "models"} | given))


def rerun(monkeypatch, folder, settings):
    """The same run computed anew, in a store of its own."""
    monkeypatch.setattr(experiment, "RUNS", folder)
    return run(settings)


def test_two_runs_are_identical_and_another_seed_is_not(settings, monkeypatch, tmp_path):
    first = run(settings())
    again = rerun(monkeypatch, tmp_path / "again", settings())
    pd.testing.assert_frame_equal(first.metrics, again.metrics)
    pd.testing.assert_frame_equal(first.costs, again.costs)
    assert (run(settings(seed=1)).metrics.value != first.metrics.value).any()


def test_a_finished_run_is_read_and_not_repeated(settings):
    lines = []
    first = run(settings(), progress=lines.append)
    assert lines
    lines.clear()
    again = run(settings(), progress=lines.append)
    assert not lines
    pd.testing.assert_frame_equal(first.metrics, again.metrics)


class Stop(Exception):
    pass


@pytest.mark.parametrize("name", ["fedmuscle", "anchored", "self", "local"])
def test_a_run_that_was_cut_off_resumes_to_the_same_metrics_and_ledger(settings, monkeypatch, tmp_path, name):
    def cut(line):
        if "round 2/3" in line:
            raise Stop

    s = settings(algorithm=name)
    with pytest.raises(Stop):
        run(s, progress=cut)
    lines = []
    resumed = run(s, progress=lines.append)
    assert "resumed after round 1" in lines[0] and not any("round 1/3" in line for line in lines)
    whole = rerun(monkeypatch, tmp_path / "whole", s)
    pd.testing.assert_frame_equal(resumed.metrics, whole.metrics)
    pd.testing.assert_frame_equal(resumed.costs, whole.costs)


def _run_in_a_process(folder, s):
    experiment.RUNS = folder
    run(s)


def test_kill_9_loses_at_most_the_round_it_hits(settings, runs, monkeypatch, tmp_path):
    s = settings(rounds=6)
    process = multiprocessing.get_context("spawn").Process(target=_run_in_a_process, args=(runs, s))
    process.start()
    deadline = time.monotonic() + 120
    while not list(runs.glob("*/checkpoint.pt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    lines = []
    resumed = run(s, progress=lines.append)
    assert "resumed after round" in lines[0]
    pd.testing.assert_frame_equal(resumed.metrics, rerun(monkeypatch, tmp_path / "whole", s).metrics)


def test_the_three_replies_train_alike(settings):
    """Accuracies move in steps of one sample; float rounding may flip a few of a thousand, so metrics agree to 0.5 points."""
    histories = {reply: run(settings(reply=reply)) for reply in ("gradient", "factored", "dense")}
    for reply in ("factored", "dense"):
        difference = (histories[reply].metrics.value - histories["gradient"].metrics.value).abs()
        assert difference.max() <= 0.5
        assert (histories[reply].costs.uplink_bytes == histories["gradient"].costs.uplink_bytes).all()
    down = {reply: h.costs.downlink_bytes.sum() for reply, h in histories.items()}
    assert down["gradient"] < down["factored"] < down["dense"]


def test_local_training_never_looks_at_public_data(settings, runs):
    a = run(settings(algorithm="local", public="voc"))
    b = run(settings(algorithm="local", public="cifar100", others=1))
    assert len(list(runs.iterdir())) == 1  # one run serves both
    pd.testing.assert_frame_equal(a.metrics, b.metrics)
    assert not a.costs[["uplink_bytes", "downlink_bytes"]].any().any()
    assert a.final("after_local").value.equals(a.final("after_alignment").value)


def test_costs_are_metered(settings):
    h = run(settings())
    assert (h.costs.flops > 0).all() and len(h.costs) == 3 * 3
    assert h.provenance["seconds"] > 0 and h.provenance["peak_memory_bytes"] > 1e8
    local = run(settings(algorithm="local"))
    assert local.costs.flops.sum() < h.costs.flops.sum()
    assert set(h.metrics.phase) == set(experiment.PHASES)
    assert sorted(h.final().user) == [2, 5, 6]


def test_missing_data_is_named_and_nothing_is_lost(settings, tmp_path):
    done = run(settings(algorithm="local"))
    with pytest.raises(DataError, match="nowhere.*client_1.json.*no such file"):
        run(settings(data_dir=tmp_path / "nowhere"))
    pd.testing.assert_frame_equal(run(settings(algorithm="local")).metrics, done.metrics)


def test_missing_checkpoint_is_named(settings, tmp_path):
    with pytest.raises(FileNotFoundError, match="vit-small"):
        run(settings(models_path=tmp_path))


def test_public_set_smaller_than_asked_for(settings):
    with pytest.raises(DataError, match="public_Pascal.*5000.*1024"):
        run(settings(public_size=5000))


def test_changed_data_is_another_run(settings, mini_world, tmp_path, runs):
    """The same settings on other files, though a manifest lies beside them."""
    copy = tmp_path / "world"
    shutil.copytree(mini_world, copy)
    run(settings(algorithm="local"))
    run(settings(algorithm="local", data_dir=copy, models_path=copy / "models"))
    assert len(list(runs.iterdir())) == 1  # the same content elsewhere
    victim = copy / "IC/CIFAR10/train/client_0.pkl"
    victim.write_bytes(victim.read_bytes()[:1000])
    with pytest.raises(DataError, match="client_0.pkl: not a readable pickle"):
        run(settings(algorithm="local", data_dir=copy, models_path=copy / "models"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensors: None, "not a readable checkpoint"),
        (lambda tensors: tensors.pop("layernorm.weight"), "lacks layernorm.weight"),
    ],
)
def test_a_damaged_checkpoint_is_named(settings, mini_world, tmp_path, damage, message):
    shutil.copytree(mini_world / "models", tmp_path / "models")
    victim = tmp_path / "models/vit-small/model.safetensors"
    tensors = load_file(victim)
    damage(tensors)
    save_file(tensors, victim, metadata={"format": "pt"})
    if len(tensors) == len(load_file(mini_world / "models/vit-small/model.safetensors")):
        victim.write_bytes(victim.read_bytes()[:2000])
    with pytest.raises(OSError, match=f"vit-small: .*{message}"):
        run(settings(models_path=tmp_path / "models"))


def test_a_diverging_user_is_named_and_not_stored(settings):
    with pytest.raises(ValueError, match="user 2: the local loss is not finite"):
        run(settings(algorithm="local", lr=1e9))


def test_a_full_disk_is_told_as_such(settings, monkeypatch):
    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space left on device: .*checkpoint.pt"):
        run(settings(algorithm="local"))


def test_results_survive_a_store_that_cannot_be_written(settings, runs):
    runs.write_text("a file where a folder should be")
    with pytest.raises(OSError):
        run(settings())
