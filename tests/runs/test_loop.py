"""A run goes on from its checkpoint, or says why not and begins anew: whatever lies there, its
tables are the same.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pandas as pd
import pytest
import torch
from tiny import TINY
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedmuscle_lib import run
from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.runs import RunSettings, Store, Tick, named
from fedmuscle_lib.runs.archive import Damaged
from fedmuscle_lib.runs.loop import Listener, _Training, train
from fedmuscle_lib.runs.store import packed, unpacked

SYSTEMS = ("fedmuscle", "fedloge", "creamfl")


@pytest.fixture(scope="module")
def first_rounds() -> dict[str, tuple[RunSettings, dict[str, Any]]]:
    """Settings and the checkpoint after the first of two rounds, by system; filled by
    :func:`begun`.
    """
    return {}


@pytest.fixture
def begun(
    settings, mini_world, first_rounds
) -> Callable[[str], tuple[RunSettings, dict[str, Any]]]:
    def checkpoint(system: str) -> tuple[RunSettings, dict[str, Any]]:
        if system not in first_rounds:
            two = {
                "users": (5, 6),
                "others": 1,
                "rounds": 2,
                "train_samples": {"IC10": 32, "IC100": 32},
            }
            asked: dict[str, Callable[[], RunSettings]] = {
                "fedmuscle": lambda: settings(**two),
                "fedloge": (
                    lambda: named("fedloge").settings(
                        data_dir=mini_world,
                        clients=3,
                        rounds=2,
                        imbalance=0.05,
                        local_epochs=1,
                        network="small_cnn",
                    )
                ),
                "creamfl": (
                    lambda: named("creamfl").settings(
                        **(
                            TINY
                            | {
                                "data_dir": mini_world,
                                "models_path": mini_world / "models",
                                "rounds": 2,
                            }
                        )
                    )
                ),
            }
            training = _Training(asked[system](), Listener())
            training.experiment.round(0)
            training.finished_rounds = 1
            first_rounds[system] = training.settings, training._checkpoint()
        return first_rounds[system][0], copy.deepcopy(first_rounds[system][1])

    return checkpoint


def _tensors(state: Any, path: tuple = ()) -> Iterator[tuple]:
    """Where the tensors are."""
    if isinstance(state, torch.Tensor):
        yield path
    elif isinstance(state, dict | list | tuple):
        for key, value in state.items() if isinstance(state, dict) else enumerate(state):
            yield from _tensors(value, (*path, key))


def _places(state: dict[str, Any]) -> list[tuple]:
    """The last tensor of each kind: of which model or optimiser it is, whichever layer's and
    client's.
    """
    return list(
        {
            tuple(key for key in path if str(key).isidentifier()): path for path in _tensors(state)
        }.values()
    )


CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "another shape": lambda tensor: torch.zeros(7, 3, 2, dtype=tensor.dtype),
    "one number for all": lambda tensor: tensor.reshape(-1)[:1].reshape([1] * (tensor.ndim + 1)),
    "another type": lambda tensor: tensor.to(
        torch.float16 if tensor.is_floating_point() else torch.int8
    ),
    "no end": lambda tensor: (
        torch.full_like(tensor, math.inf)
        if tensor.is_floating_point()
        else tensor.to(torch.float32) * math.inf
    ),
    "no tensor": lambda tensor: "weights",
}
OF_OPTIMISERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "moments of another shape": lambda state: state["state"][0].update(exp_avg=torch.zeros(3)),
    "another learning rate": lambda state: state["param_groups"][0].update(lr=9.0),
    "no group": lambda state: state.update(param_groups=[]),
    "another weight's": lambda state: state["state"].update({0: state["state"][1]}),
}
OF_ALL: dict[str, Callable[[dict[str, Any]], object]] = {
    "no rounds": lambda state: state.update(finished_rounds=0),
    "rounds before the first": lambda state: state.update(finished_rounds=-1),
    "more rounds than there are": lambda state: state.update(finished_rounds=3),
    "half a round": lambda state: state.update(finished_rounds=0.5),
    "truth for a number": lambda state: state.update(finished_rounds=True),
    "a word for rounds": lambda state: state.update(finished_rounds="1"),
    "no end of seconds": lambda state: state.update(seconds=math.inf),
    "rows of later rounds": lambda state: state["rows"]["losses"][0].update(round=2),
    "rows that are none": lambda state: state["rows"].update(metrics=["row"]),
    "no rows": lambda state: state.pop("rows"),
    "another run": lambda state: state.update(address="another"),
    "nothing": lambda state: state.clear(),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_checkpoint_with_another_tensor_is_not_gone_on_from(begun, system):
    """One of each kind is changed in each way; what was kept is taken."""
    settings, kept = begun(system)
    training = _Training(settings, Listener())
    places = _places({name: kept[name] for name in training.experiment.state()})
    assert len(places) > 1
    accepted = []
    for *way, last in places:
        holder = kept
        for key in way:
            holder = holder[key]
        whole = holder[last]
        for name, change in CHANGES.items():
            holder[last] = change(whole)
            try:
                training._restore(kept)
                accepted.append((name, *way, last))
            except Exception as error:
                assert not isinstance(error, Diverged)
        holder[last] = whole
    assert not accepted and training.finished_rounds == 0
    training._restore(kept)
    assert training.finished_rounds == 1


@pytest.mark.parametrize("change", OF_ALL)
def test_a_checkpoint_of_other_rounds_or_of_none_is_not_gone_on_from(begun, change):
    settings, kept = begun("fedloge")
    training = _Training(settings, Listener())
    OF_ALL[change](kept)
    with pytest.raises((ValueError, TypeError, AttributeError, KeyError)):
        training._restore(kept)
    assert training.finished_rounds == 0


@pytest.mark.parametrize("change", OF_OPTIMISERS)
def test_an_optimiser_takes_no_state_that_does_not_fit(begun, change):
    """Torch's own takes moments of any shape, and may end the process at the next step."""
    settings, kept = begun("fedmuscle")
    OF_OPTIMISERS[change](kept["clients"][0]["local"])
    with pytest.raises(ValueError, match="its local optimiser|parameter group"):
        _Training(settings, Listener())._restore(kept)


def test_a_name_in_a_checkpoint_changes_no_weight_that_others_share(begun):
    """Every model of a process has the same frozen weights in memory."""
    settings, kept = begun("fedmuscle")
    training = _Training(settings, Listener())
    model = training.experiment.federation.clients[0].model
    frozen = next(
        name for name, parameter in model.named_parameters() if not parameter.requires_grad
    )
    before = model.get_parameter(frozen).clone()
    kept["clients"][0]["model"][frozen] = torch.zeros_like(before)
    with pytest.raises(ValueError, match="is not of this model"):
        training._restore(kept)
    assert torch.equal(model.get_parameter(frozen), before)


@pytest.mark.parametrize("state", [[], torch.zeros(3), 7, "text", None])
def test_a_checkpoint_that_holds_no_names_is_none(state):
    with pytest.raises(Damaged, match="not a readable checkpoint"):
        unpacked(packed(state))


def test_a_checkpoint_is_as_it_was_written_or_none():
    content = packed({"finished_rounds": 1, "weights": torch.arange(100.0)})
    assert torch.equal(unpacked(content)["weights"], torch.arange(100.0))
    for at in range(0, len(content), 97):
        with pytest.raises(Damaged):
            unpacked(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def test_a_checkpoint_with_which_no_round_can_be_done_is_left(settings, store, tmp_path, caplog):
    """An algorithm, for one, may keep a state that fits nothing, and fail in the next round."""
    s = settings(algorithm="local", users=(6,), rounds=2)

    def cut(tick):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(s, progress=cut, store=store)
    (path,) = store.root.glob("*/checkpoint.pt")
    state = unpacked(path.read_bytes())
    state["clients"][0]["epochs"] = "many"
    path.write_bytes(packed(state))
    ticks: list[Tick] = []
    history = run(s, progress=ticks.append, store=store)
    assert [tick.round for tick in ticks] == [1, 1, 2] and [tick.resumed for tick in ticks] == [
        True,
        False,
        False,
    ]
    assert (
        "its checkpoint can't be gone on from" in caplog.text
        and path.with_name("checkpoint.pt.damaged").exists()
    )
    whole = run(s, progress=str, store=Store(tmp_path / "whole"))
    pd.testing.assert_frame_equal(history.metrics, whole.metrics, check_exact=True)
    pd.testing.assert_frame_equal(history.losses, whole.losses, check_exact=True)


class _Kept(Listener):
    """To whom a run speaks that finds a checkpoint."""

    def __init__(self, checkpoint: dict[str, Any]) -> None:
        self.checkpoint, self.discarded = packed(checkpoint), False

    def last(self) -> bytes:
        return self.checkpoint

    def discard(self, why: str) -> None:
        self.discarded = True


TORCHS = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"
)


@pytest.mark.parametrize(
    ("at", "error"), [("unpacked", TORCHS), ("restore", MemoryError()), ("round", TORCHS)]
)
def test_a_checkpoint_outlives_a_memory_that_is_too_small(begun, monkeypatch, error, at):
    settings, kept = begun("fedmuscle")
    listener = _Kept(kept)

    def fails(*_, **__):
        raise error

    if at == "unpacked":
        monkeypatch.setattr(torch, "load", fails)
    else:
        monkeypatch.setattr("fedmuscle_lib.fedmuscle.rounds.Rounds." + at, fails)
    with pytest.raises(type(error)):
        _Training.resumed(settings, listener).complete()
    assert not listener.discarded


@pytest.mark.parametrize(
    "system",
    [
        "fedmuscle",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("fedloge", "creamfl")),
    ],
)
def test_a_run_has_the_same_numbers_whatever_the_caller_told_torch(system, begun, counted):
    settings = begun(system)[0].model_copy(update={"rounds": 1})
    right = train(settings, Listener())
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
        record = train(settings, Listener())
    assert record.tables["metrics"].equals(right.tables["metrics"])
