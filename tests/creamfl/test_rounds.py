"""Rounds of a whole federation: resumed to the bit, and what each arm does and does not."""

from __future__ import annotations

from functools import cache

import pandas as pd
import pytest
import tiny
import torch

from fedmuscle_lib.core.errors import Diverged, RefusedMessage
from fedmuscle_lib.creamfl import algorithms
from fedmuscle_lib.creamfl.algorithms.creamfl import CreamFL
from fedmuscle_lib.creamfl.networks import Pooled
from fedmuscle_lib.creamfl.rounds import Rounds
from fedmuscle_lib.creamfl.server import Server
from fedmuscle_lib.runs import Store, run

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


@pytest.mark.slow
def test_so_it_is_with_checkpoints_whose_frozen_parts_are_shared(mini_world, cut_off_and_resumed):
    cut_off_and_resumed(
        tiny.settings(mini_world, algorithm="creamfl", networks=CHECKPOINTS, image_size=32), 2
    )


def test_a_run_that_a_refused_message_ended_goes_on_to_the_bit(
    mini_world, store, counted, tmp_path, monkeypatch
):
    """It ends it in the round after a resumption, too.

    What a resumed client computes again is not counted twice.
    """
    settings, receive = (
        tiny.settings(mini_world, rounds=2, label_order=1, augmented_public=1),
        Server.receive,
    )

    def spoilt(self, client, round, embeddings):
        receive(
            self,
            client,
            round,
            {name: 2 * z for name, z in embeddings.items()} if round == 1 else embeddings,
        )

    with monkeypatch.context() as patch:
        patch.setattr(Server, "receive", spoilt)
        for _ in range(2):
            finished = []
            with pytest.raises(
                RefusedMessage, match=r"^client \d sent a representation that has norm 2, not 1"
            ):
                run(settings, progress=finished.append, store=store)
            assert [tick.round for tick in finished] == [1]
    finished = []
    resumed = run(settings, progress=finished.append, store=store)
    assert finished[0].resumed and [tick.round for tick in finished] == [1, 2]
    whole = run(settings, progress=str, store=Store(tmp_path / "whole"))
    for name in ("metrics", "costs", "losses", "measures"):
        pd.testing.assert_frame_equal(
            getattr(resumed, name), getattr(whole, name), check_exact=True
        )
    assert len(whole.costs) == 2 * 5 and set(whole.costs.kind) == {
        "server",
        "images",
        "texts",
        "pairs",
    }


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


def test_shuffled_embeddings_are_rows_of_what_was_sent_in_one_order_for_both_modalities(
    mini_world, monkeypatch
):
    run, sent = rounds(mini_world, 0, algorithm="shuffled"), []
    receive = Server.receive
    monkeypatch.setattr(
        Server,
        "receive",
        lambda self, client, round, z: (sent.append(z), receive(self, client, round, z)),
    )
    seen = run.algorithm.gather(run.federation.server, run.federation.clients, 0)
    orders = []
    for plain, shuffled in zip(sent, seen, strict=True):
        own = [torch.cdist(shuffled[modality], z).argmin(1) for modality, z in plain.items()]
        assert all(torch.equal(order, own[0]) for order in own) and torch.equal(
            own[0].sort().values, torch.arange(24)
        )
        assert all(torch.equal(shuffled[modality], z[own[0]]) for modality, z in plain.items())
        orders.append(own[0].tolist())
    assert len(set(map(tuple, orders))) == len(orders), "another one for each client"


def test_the_servers_own_embeddings_are_those_of_this_round(mini_world):
    run = rounds(mini_world, 0, algorithm="own")
    (own,) = run.algorithm.gather(run.federation.server, run.federation.clients, 0)
    assert own.keys() == {"images", "texts"}
    assert all(
        torch.equal(z, run.federation.server.represent()[modality]) for modality, z in own.items()
    )


def test_a_server_in_training_mode_embeds_public_pairs_so_and_test_pairs_not(mini_world, start):
    publishes = tiny.federation(mini_world, server_training_mode=1).server
    images = {modality: publishes.represent()[modality] for modality in ("images", "texts")}
    assert not torch.allclose(
        images["images"], start.server.embed("images", start.server.public["images"])
    ), "batch statistics"
    again = tiny.federation(mini_world, server_training_mode=1).server
    assert torch.equal(
        again.embed("images", start.server.public["images"]),
        start.server.embed("images", start.server.public["images"]),
    )


def test_an_embedding_that_is_not_finite_names_its_party(start, monkeypatch):
    monkeypatch.setattr(
        start.server.models["images"],
        "represent",
        lambda inputs: torch.full((len(inputs), 8), torch.nan),
    )
    with pytest.raises(Diverged, match="^the server: its embeddings of images are not finite"):
        start.server.embed("images", start.server.public["images"])


def test_public_pairs_are_embedded_once_a_round_and_party(mini_world, monkeypatch):
    passes = []
    represent = Pooled.represent

    def counted(self, inputs):
        passes.append((id(self), len(inputs), torch.is_grad_enabled()))
        return represent(self, inputs)

    monkeypatch.setattr(Pooled, "represent", counted)
    run = rounds(mini_world, 1, algorithm="creamfl", evaluate_every=9)
    embedded = [model for model, n, graded in passes if n == 24 and not graded]
    server = [id(model) for model in run.federation.server.models.values()]
    drawn = [
        client
        for number, client in run.federation.clients.items()
        if (0, number) in run.federation.server.downlink
    ]
    assert all(embedded.count(model) == 1 for model in server)
    assert all(
        embedded.count(id(model)) == 2 for client in drawn for model in client.models.values()
    ), "before its first round, and after"
    passes.clear()
    run.round(1)
    again = [
        k for k in run.federation.clients if {(0, k), (1, k)} <= set(run.federation.server.downlink)
    ]
    embedded = [model for model, n, graded in passes if n == 24 and not graded]
    assert again and all(
        embedded.count(id(model)) == 1
        for k in again
        for model in run.federation.clients[k].models.values()
    )


def test_clients_of_a_checkpoint_share_what_is_frozen(mini_world):
    federation = tiny.federation(mini_world, networks=CHECKPOINTS)
    readers = [federation.clients[k].models["images"] for k in (0, 1, 4, 5)]
    frozen = [{id(p) for p in model.parameters() if not p.requires_grad} for model in readers]
    trained = [{id(p) for p in model.parameters() if p.requires_grad} for model in readers]
    backbones = [
        {id(p) for p in model.backbone.parameters() if not p.requires_grad} for model in readers
    ]
    assert (
        len(backbones[0]) > 20
        and all(own == backbones[0] for own in backbones)
        and all(own > backbones[0] for own in frozen)
    )
    assert not trained[0] & trained[1]


def test_labels_of_sorted_texts_are_those_of_others(mini_world, start):
    """The authors' code sorts a batch's texts by length, and not its labels."""
    kinds = [
        federation.clients[2].kind
        for federation in (start, tiny.federation(mini_world, label_order=1))
    ]
    rows = torch.arange(40)
    lengths = (kinds[0].samples.inputs[rows] != 0).sum(1)
    assert torch.equal(kinds[0].read_order(rows), rows)
    assert torch.equal(
        (kinds[1].samples.inputs[kinds[1].read_order(rows)] != 0).sum(1),
        lengths.sort(descending=True).values,
    )


def test_augmented_pairs_differ_between_parties_and_not_between_rounds(mini_world, start):
    plain, one = start, tiny.federation(mini_world, augmented_public=1)
    images = [one.clients[k].public["images"] for k in (0, 1)]
    assert not torch.equal(images[0], images[1]) and not torch.equal(
        images[0], plain.clients[0].public["images"]
    )
    assert torch.equal(one.server.public["texts"], plain.server.public["texts"]), (
        "the server reads captions as they are"
    )
    dropped = (plain.clients[2].public["texts"] != 0).sum() - (
        one.clients[2].public["texts"] != 0
    ).sum()
    assert 0 < dropped < 0.25 * (plain.clients[2].public["texts"] != 0).sum()


def test_a_loss_that_is_not_finite_names_its_party(mini_world):
    with pytest.raises(Diverged, match=r"^(the server|client \d): "):
        rounds(mini_world, 2, server_lr=1e30)


def test_learning_rates_fall_as_the_code_has_it(mini_world):
    run = rounds(mini_world, 0, drops=(1, 2), server_lr=1.0, algorithm="local")
    rates = []
    fit = run.federation.server.fit
    parties = (run.federation.server, run.federation.clients[0], run.federation.clients[4])

    def watched(round):
        rates.append(
            [party._optimiser.param_groups[0]["lr"] / party.recipe.lr for party in parties]
        )
        return 0.0 * round if round else fit(round) * 0

    run.federation.server.fit = watched
    for round in range(3):
        run.federation.server.check_weights = lambda: None
        run.round(round)
    assert rates == [pytest.approx(row) for row in ([1, 1, 1], [0.75, 0.1, 1], [0.25, 0.01, 1])]


def test_an_aggregation_of_ones_own_is_a_subclass(mini_world, after_one, monkeypatch):
    monkeypatch.setattr(algorithms.Algorithm, "registry", dict(algorithms.Algorithm.registry))

    class Mean(CreamFL):
        name, label, source = "mean_of_clients", "CreamFL, mean", "ours"

        def aggregate(self, uploads, received, modality):
            return torch.stack(list(uploads)).mean(0)

    mean = rounds(mini_world, 1, algorithm="mean_of_clients").federation.server
    assert not same(mean, after_one("creamfl").federation.server)
