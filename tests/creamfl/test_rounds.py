"""Rounds of a whole federation: resumed to the bit, and what each arm does and does not."""

from __future__ import annotations

from functools import cache

import pytest
import tiny
import torch

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.creamfl.rounds import Rounds

CHECKPOINTS = tiny.TINY_NETWORKS | {
    "images.images": "vit-tiny",
    "texts.texts": "distilbert-base",
    "pairs.images": "vit-tiny",
    "pairs.texts": "distilbert-base",
}


def rounds(world, count: int, **given) -> Rounds:
    made = Rounds(tiny.settings(world, **given))
    for round in range(count):
        made.round(round)
    return made


def weights(party) -> list[torch.Tensor]:
    return [t.clone() for model in party.models.values() for t in model.trainable_state().values()]


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


@pytest.fixture(scope="module")
def after_one(mini_world):
    """Gives the federation after a first round with settings, the same for all tests: only look at
    it.
    """
    return cache(lambda algorithm, seed=0: rounds(mini_world, 1, algorithm=algorithm, seed=seed))


@pytest.fixture(scope="module")
def start(mini_world):
    """The federation before its first round: only look at it."""
    return rounds(mini_world, 0).federation


@pytest.mark.slow
def test_an_interrupted_run_is_the_uninterrupted_one_to_the_bit(mini_world, cut_off_and_resumed):
    cut_off_and_resumed(tiny.settings(mini_world, algorithm="frozen"), 2)


def test_one_seed_gives_one_schedule_to_all_arms_and_another_seed_another(after_one):
    runs = [after_one("creamfl"), after_one("shuffled"), after_one("creamfl", 1)]
    drawn = [set(run.federation.server.downlink) for run in runs]
    assert drawn[0] == drawn[1] != drawn[2]
    first = [run.rows["losses"][0]["local"] for run in runs]
    assert first[0] == first[1] != first[2], "the server's first pass comes before anybody answers"


def test_who_rests_is_not_trained_and_who_takes_part_is(after_one, start):
    federation = after_one("creamfl_muscle").federation
    drawn = {number for _, number in federation.server.downlink}
    assert len(drawn) == 4
    assert drawn == {
        k for k, client in federation.clients.items() if not same(client, start.clients[k])
    }


def test_controls_leave_out_what_they_say(after_one, start):
    by = {
        name: after_one(name).federation
        for name in ("local", "own", "frozen", "creamfl_muscle", "shuffled", "momentum")
    }
    for name in ("local", "own", "momentum"):
        assert not by[name].server.downlink and not by[name].server.uplink
    for name in ("local", "own", "frozen", "momentum"):
        assert all(same(client, start.clients[k]) for k, client in by[name].clients.items())
    for k in range(6):
        assert same(by["shuffled"].clients[k], by["creamfl_muscle"].clients[k]), (
            "clients are shuffled at the server"
        )
    servers = [by[name].server for name in by]
    assert not any(same(a, b) for i, a in enumerate(servers) for b in servers[:i])


def test_momentum_alone_is_creamfl_whose_clients_count_for_nothing(mini_world, after_one):
    nothing = rounds(
        mini_world, 1, algorithm="creamfl", options={"creamfl.weight": 0.0}
    ).federation.server
    assert same(after_one("momentum").federation.server, nothing)


def test_shuffled_embeddings_are_rows_of_what_was_sent(mini_world):
    run = rounds(mini_world, 0, algorithm="shuffled")
    server, clients = run.federation.server, run.federation.clients
    shuffled = run.algorithm.gather(server, clients, 0)
    orders = []
    for (_, number), seen in zip(server.downlink, shuffled, strict=True):
        sent = clients[number].represent()
        own = [torch.cdist(z, sent[modality]).argmin(1) for modality, z in seen.items()]
        assert all(torch.equal(order, own[0]) for order in own), "one order for both modalities"
        assert all(torch.equal(z, sent[modality][own[0]]) for modality, z in seen.items())
        orders.append(tuple(own[0].tolist()))
    assert len(set(orders)) == len(orders) == 4, "another one for each client"


def test_a_loss_that_is_not_finite_names_its_party(mini_world):
    with pytest.raises(Diverged, match=r"^(the server|client \d): "):
        rounds(mini_world, 2, server_lr=1e30)
