"""A run resumes from its checkpoint, or says why not and starts again."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from tiny import TINY
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedmuscle_lib import run
from fedmuscle_lib.runs import Tick, named
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.compute import train
from fedmuscle_lib.runs.store import packed


@pytest.mark.parametrize(
    "content", [b"text", packed({"finished_rounds": 1}), packed({"clients": torch.zeros(3)})]
)
def test_a_checkpoint_that_can_not_be_read_is_renamed_and_the_run_starts_again(
    settings, store, caplog, content
):
    s = settings(algorithm="local", users=(6,), rounds=1, train_samples={"IC10": 32})
    entry = store.entry(address_of(s))
    entry.path.parent.mkdir(parents=True)
    (entry.path.parent / "checkpoint.pt").write_bytes(content)
    ticks: list[Tick] = []
    run(s, progress=ticks.append, store=store)
    assert [tick.round for tick in ticks] == [1] and not ticks[0].resumed
    assert "checkpoint.pt can't be read" in caplog.text
    assert (entry.path.parent / "checkpoint.pt.damaged").exists()


@pytest.mark.parametrize(
    "system",
    ["fedmuscle", *(pytest.param(name, marks=pytest.mark.slow) for name in ("fedloge", "creamfl"))],
)
def test_a_run_has_the_same_numbers_whatever_the_caller_told_torch(
    settings, mini_world, counted, system
):
    if system == "fedmuscle":
        two = {"users": (5, 6), "others": 1, "train_samples": {"IC10": 32, "IC100": 32}}
        s = settings(**two, rounds=1)
    else:
        few = {"clients": 3, "local_epochs": 1, "network": "small_cnn"}
        own = TINY | {"models_path": mini_world / "models"} if system == "creamfl" else few
        s = named(system).settings(**own | {"data_dir": mini_world, "rounds": 1})
    right = train(s)
    with ExitStack() as stack:
        for caller in (
            torch.autocast("cpu", torch.bfloat16),
            torch.inference_mode(),
            torch.device("meta"),
            sdpa_kernel(SDPBackend.MATH),
        ):
            stack.enter_context(caller)
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        record = train(s)
    assert record.tables["metrics"].equals(right.tables["metrics"])
