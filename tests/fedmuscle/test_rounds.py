"""A run's rounds: in which order their phases are done, and what is evaluated in them."""

import pandas as pd
import pytest
import torch

from fedmuscle_lib import run
from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.client import Client

FAMILY = sorted(
    name
    for name in algorithms.names()
    if issubclass(algorithms.get(name), algorithms.get("fedmuscle"))
)
PHASES = ["after_local", "after_alignment"]
TWO = {"users": (5, 6), "others": 1}


@pytest.fixture
def settings(settings):
    few = {
        "rounds": 2,
        "batch_size": 16,
        "public_size": 18,
        "train_samples": dict.fromkeys(("MLC", "IC100", "IC10"), 18),
    }  # two batches
    return lambda **given: settings(**(few | given))


def by_hand(s):
    """What each user's metric is after each phase, in the order in which they are done."""
    federation, algorithm = build(s), algorithms.get(s.algorithm)(s)
    algorithm.begin(federation)
    steps = [algorithm.local_update, algorithm.communicate]
    values = []
    for round in range(s.rounds):
        for step in steps if s.order == "local_first" else steps[::-1]:
            step(federation, round)
            values += [client.evaluate() for client in federation.clients]
    return values


@pytest.mark.slow
@pytest.mark.parametrize("order", ["local_first", "alignment_first"])
@pytest.mark.parametrize("name", FAMILY)
def test_a_round_begins_with_what_the_order_says(settings, name, order):
    s = settings(algorithm=name, order=order, evaluate_every=1)
    history = run(s, progress=str)
    phases = PHASES if order == "local_first" else PHASES[::-1]
    assert history.metrics.phase.tolist() == 2 * [phase for phase in phases for _ in s.members]
    assert history.metrics.value.tolist() == by_hand(s)
    assert history.final().phase.unique().tolist() == phases[1:]


@pytest.mark.parametrize("name", sorted(set(algorithms.names()) - set(FAMILY)))
def test_other_algorithms_have_no_such_order(settings, name):
    assert algorithms.get(name)(
        settings(algorithm=name, order="alignment_first")
    ).phases() == tuple(PHASES)


def test_one_round_of_algorithm_1_is_local_training_before_it_aligns_and_a_round_that_aligns_first_never_is(
    settings,
):
    """Table 8 has Delta +5.7 for R = 1."""
    local = run(settings(algorithm="local", rounds=1, **TWO), progress=str)
    literal, aligned = (
        run(settings(rounds=1, order=order, **TWO), progress=str)
        for order in ("local_first", "alignment_first")
    )
    pd.testing.assert_frame_equal(
        literal.final("after_local"), local.final("after_local"), check_exact=True
    )
    assert aligned.final("after_local").value.tolist() != local.final("after_local").value.tolist()


@pytest.mark.parametrize(
    "name",
    [
        "fedmuscle",
        "fedrcl",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("local", "head_only")),
    ],
)
def test_refitting_a_copy_leaves_training_as_it_was(settings, name):
    plain, refitted = (
        run(settings(algorithm=name, refit=refit, **TWO), progress=str) for refit in (0, 1)
    )
    for table in ("losses", "costs", "measures"):
        pd.testing.assert_frame_equal(
            getattr(plain, table), getattr(refitted, table), check_exact=True
        )
    assert plain.metrics.value.tolist() != refitted.metrics.value.tolist()


@pytest.mark.slow
def test_a_run_of_every_open_choice_is_resumed_to_the_bit(settings, cut_off_and_resumed):
    choices = {
        "order": "alignment_first",
        "refit": 1,
        "optimisers": "shared",
        "public_batch_size": 10,
        "local_draw": "fixed",
    }
    cut_off_and_resumed(settings(rounds=3, **choices), 2)
    cut_off_and_resumed(
        settings(rounds=3, optimisers="each_round", projection="frozen", head_on="normalised"), 2
    )
    cut_off_and_resumed(
        settings(rounds=3, lora_blocks="all", lora_dropout=0.5, augmentation="weak", refit=1), 2
    )


# --- numbers that are not finite


def test_a_loss_that_is_not_finite_ends_the_run_with_nothing_stored(settings, store):
    """Of an alignment whose temperature is too small for float32."""
    with pytest.raises(
        Diverged,
        match=r"^user \d: the loss is not finite in public batch 1 of the round; .*\(round 1\)$",
    ):
        run(
            settings(tau=1e-300, tau_prime=1e-301, evaluate_every=2, **TWO),
            progress=str,
            store=store,
        )
    assert not any(entry.done for entry in store.entries())


def spoiled(monkeypatch, method, spoil, user=5, call=1):
    """Of one call of a client's method, ``spoil`` changes the client afterwards."""
    calls, plain = [], getattr(Client, method)

    def spoiling(self, *told, **named):
        result = plain(self, *told, **named)
        calls.append(self.user.number)
        if self.user.number == user and calls.count(user) == call:
            spoil(self)
        return result

    monkeypatch.setattr(Client, method, spoiling)


def poisoned(name, value):
    def spoil(client):
        with torch.no_grad():
            next(
                p for n, p in client.model.named_parameters() if p.requires_grad and name in n
            ).view(-1)[0] = value

    return spoil


@pytest.mark.parametrize(
    ("method", "call", "name"), [("fit", 2, "lora"), ("fit", 2, "head"), ("align", 4, "projection")]
)
def test_a_weight_that_the_last_step_of_a_phase_spoils_is_noticed(
    settings, store, monkeypatch, method, call, name
):
    """Its own loss was finite, and no evaluation follows."""
    spoiled(monkeypatch, method, poisoned(name, torch.nan), call=call)
    with pytest.raises(
        Diverged, match=rf"^user 5: .*{name}.* is not finite after training; .*\(round 2\)$"
    ):
        run(settings(rounds=3, evaluate_every=3, **TWO), progress=str, store=store)
    assert not any(entry.done for entry in store.entries())
