"""One federation of three small users: what passes between client and server, and what each
algorithm aligns with what.
"""

import math

import pytest
import torch

from fedmuscle_lib import muscle_loss
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.randomness import batches
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.muscle import make_reply

PUBLIC, BATCH = 18, 16


@pytest.fixture
def settings(settings):
    few = {
        "rounds": 2,
        "public_size": PUBLIC,
        "batch_size": BATCH,
        "train_samples": dict.fromkeys(("MLC", "IC100", "IC10"), 18),
    }
    return lambda **given: settings(**(few | given))


def sixth(settings, **given):
    """User 6, at the beginning of a federation of its own."""
    return build(settings(algorithm="self", users=(6,), **given)).clients[0]


def unit_rows(b, d, seed=0):
    return torch.nn.functional.normalize(
        torch.randn(b, d, generator=torch.Generator().manual_seed(seed)), dim=1
    )


# --- the server


# --- the client


def test_one_forward_pass_gives_the_update_of_the_readmes_two(settings):
    """The Z^n that is sent is the Z^n that is differentiated; the README encodes a second time.

    Parameters agree to 1e-7.
    """
    rows = torch.arange(16)

    def trained(two_forwards):
        federation = build(settings())
        for _ in range(2):
            z = {c.user.number: c.represent(rows) for c in federation.clients}
            for client in federation.clients:
                others = [z[u] for u in z if u != client.user.number]

                class Dense:
                    def loss(self, anchor, client=client, others=others):
                        return muscle_loss(
                            client.model.represent(client.public[rows]) if two_forwards else anchor,
                            others,
                        )

                client.align(Dense())
        return [p for c in federation.clients for p in c.model.trainable_state().values()]

    for once, twice in zip(trained(False), trained(True), strict=True):
        torch.testing.assert_close(once, twice, rtol=0, atol=1e-7)


def test_what_is_trained_aside_leaves_no_trace(settings):
    client, other = (sixth(settings, optimisers="shared") for _ in range(2))
    for each in (client, other):
        each.fit(1)
        each.take_losses()
    generator, before = torch.get_rng_state(), client.evaluate()
    with pytest.raises(KeyboardInterrupt), client.as_copy():
        client.fit(2)
        assert client.evaluate() != before
        raise KeyboardInterrupt
    assert torch.equal(torch.get_rng_state(), generator) and client.meter.total == other.meter.total
    assert all(map(math.isnan, client.take_losses().values()))
    assert client.fit(1) == other.fit(1)
    for a, b in zip(
        client.model.trainable_state().values(), other.model.trainable_state().values(), strict=True
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "choice", [{"lora_dropout": 0.5, "lora_blocks": "all"}, {"augmentation": "weak"}]
)
def test_draws_of_local_training_have_an_address_and_none_is_made_in_evaluation(settings, choice):
    usual, client, other = (
        sixth(settings, **given) for given in ({"lora_blocks": "all"}, choice, choice)
    )
    assert client.evaluate() == usual.evaluate(), "nothing is trained yet"
    with client.as_copy():
        client.fit(1)
    loss = client.fit(2)
    torch.rand(3)
    assert loss == other.fit(2) != usual.fit(2)
    assert client.evaluate() == client.evaluate()


def steps_of(client):
    """How many steps its optimiser of local training has taken for each parameter, by name."""
    names = [name for name, p in client.model.named_parameters() if p.requires_grad]
    states = client.state()["local"]["state"]
    return {name: int(states[i]["step"]) if i in states else 0 for i, name in enumerate(names)}


@pytest.mark.parametrize("optimisers", ["separate", "shared"])
def test_a_shared_optimiser_counts_both_kinds_of_steps_and_passes_over_a_head_without_gradient(
    settings, optimisers
):
    client = sixth(settings, optimisers=optimisers)  # two batches an epoch
    client.fit(3)
    head = [p.clone() for p in client.model.head.parameters()]
    for _ in range(4):
        client.represent(torch.arange(8))

        class Any:
            def loss(self, anchor):
                return anchor[:, 0].sum()

        client.align(Any())
    assert all(map(torch.equal, head, client.model.head.parameters()))
    aligned = 4 if optimisers == "shared" else 0
    for name, steps in steps_of(client).items():
        assert steps == (
            6 if "head" in name else aligned if "projection" in name else 6 + aligned
        ), name


def test_a_frozen_projection_stays_as_it_was_drawn_while_lora_is_aligned(settings):
    client = sixth(settings, projection="frozen")
    before = {name: p.clone() for name, p in client.model.trainable_state().items()}
    client.fit(1)
    client.represent(torch.arange(8))
    client.align(
        make_reply("gradient", client.represent(torch.arange(8)), [unit_rows(8, 256)], 0.2, 0.15)
    )
    moved = {
        name
        for name, p in client.model.trainable_state().items()
        if not torch.equal(before[name], p)
    }
    assert moved and not any("projection" in name for name in moved)


def test_optimisers_of_a_round_forget_the_last_one(settings):
    client = sixth(settings, optimisers="each_round")
    client.begin_round(0)
    client.fit(1)
    assert set(steps_of(client).values()) == {0, 2}
    client.begin_round(1)
    assert set(steps_of(client).values()) == {0}
    kept = sixth(settings)
    kept.fit(1)
    kept.begin_round(1)
    assert set(steps_of(kept).values()) == {0, 2}


def test_files_that_are_fixed_train_every_seed_on_their_first_samples(settings):
    first, second = (
        sixth(settings, local_draw="fixed", seed=seed, train_samples={"IC10": 40})
        for seed in (0, 1)
    )
    whole = sixth(
        settings, local_draw="fixed", train_samples={"IC10": 300}
    ).train  # all of the file
    for client in (first, second):
        assert torch.equal(client.train.inputs, whole.inputs[:40]) and torch.equal(
            client.train.targets, whole.targets[:40]
        )
    drawn = sixth(settings, train_samples={"IC10": 40}).train
    assert not torch.equal(drawn.targets, first.train.targets)
    with pytest.raises(
        DataError,
        match="user 6, .*IC/CIFAR10/train/client_0.pkl: .* 301 was asked for, the file holds 300",
    ):
        build(settings(local_draw="fixed", train_samples={"IC10": 301}))


def test_users_with_equal_backbones_share_one_frozen_copy(settings):
    two, five = build(settings()).clients[:2]  # both ViT-Small
    address = [
        {p.data_ptr() for p in c.model.parameters() if not p.requires_grad} for c in (two, five)
    ]
    assert address[0] == address[1]
    trainable = [
        {p.data_ptr() for p in c.model.parameters() if p.requires_grad} for c in (two, five)
    ]
    assert not trainable[0] & trainable[1]


@pytest.mark.parametrize("n", [2, 31, 32, 33, 50, 64, 65])
def test_batches_cover_every_sample_once_and_none_is_a_single(n):
    parts = batches(n, 32, "any")
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert min(map(len, parts)) >= 2 and max(map(len, parts)) <= 33


# --- what passes between them


def test_nothing_but_representations_of_public_data_reaches_the_server(settings, monkeypatch):
    """Uplink is exactly |D| x d floats a user and CL epoch; a user's labels change nothing that is
    sent before it trains.
    """
    s = settings(cl_epochs=2)
    seen = []
    receive = Server.receive
    monkeypatch.setattr(
        Server,
        "receive",
        lambda self, user, batch, z: (seen.append(z.clone()), receive(self, user, batch, z)),
    )
    federation = build(s)
    algorithms.get("fedmuscle")(s).communicate(federation, 0)
    assert all(z.shape[1] == s.proj_dim and z.ndim == 2 and not z.requires_grad for z in seen)
    assert federation.server.uplink == {
        (0, user): 2 * PUBLIC * s.proj_dim * 4 for user in (2, 5, 6)
    }
    first = seen[:3]

    seen.clear()
    other = build(s)
    other.clients[0].train.targets.zero_()
    algorithms.get("fedmuscle")(s).communicate(other, 0)
    for a, b in zip(first, seen[:3], strict=True):
        assert torch.equal(a, b)


def represent_all(client):
    return client.over_public(client.model.represent)


def spied_members(s, name):
    """What users are aligned with in the first batch: {user: [(whose, matrix)]}, and the matrices
    as they were sent.
    """
    federation = build(s)
    algorithm = algorithms.get(name)(s)
    sent, members = {}, {}
    reply = algorithm.reply

    def spy(user, anchor, given):
        members.setdefault(user, given)
        sent.setdefault(user, anchor.detach())
        return reply(user, anchor, given)

    algorithm.reply = spy
    algorithm.begin(federation)
    before = {c.user.number: represent_all(c) for c in federation.clients}
    algorithm.local_update(federation, 0)
    algorithm.communicate(federation, 0)
    return members, sent, before, federation.server


def test_fedmuscle_aligns_with_live_peers(settings):
    members, sent, _, _ = spied_members(settings(), "fedmuscle")
    for user, given in members.items():
        assert {u for u, _ in given} == {2, 5, 6} - {user}
        for other, z in given:
            assert torch.equal(z, sent[other])


def test_shuffled_permutes_rows_of_live_peers(settings):
    members, sent, _, _ = spied_members(settings(), "shuffled")
    for given in members.values():
        for other, z in given:
            assert not torch.equal(z, sent[other])
            matches = torch.cdist(z, sent[other]).argmin(1)
            assert sorted(matches.tolist()) == list(range(len(z)))


def test_frozen_peers_and_anchored_use_what_was_sent_before_training(settings):
    rows = batches(PUBLIC, BATCH, "public order", 0, 0, 0)[0]
    members, sent, before, server = spied_members(settings(), "frozen_peers")
    for user, given in members.items():
        assert {u for u, _ in given} == {2, 5, 6} - {user}
        for other, z in given:
            torch.testing.assert_close(z, before[other][rows])
    assert server.uplink[0, 2] == 2 * PUBLIC * 256 * 4  # the references, and a round

    members, sent, before, _ = spied_members(settings(), "anchored")
    for user, ((first, own), (peer, z)) in members.items():
        assert first == user != peer
        torch.testing.assert_close(own, before[user][rows])
        assert torch.equal(z, sent[peer])


def test_self_communicates_nothing_and_aligns_with_its_own_start(settings):
    rows = batches(PUBLIC, BATCH, "public order", 0, 0, 0)[0]
    members, _, before, server = spied_members(settings(), "self")
    for user, given in members.items():
        assert [u for u, _ in given] == [user]
        torch.testing.assert_close(given[0][1], before[user][rows])
    assert not server.uplink and not server.downlink


def test_head_only_leaves_the_representation_alone(settings):
    s = settings()
    federation = build(s)
    algorithm = algorithms.get("head_only")(s)
    algorithm.begin(federation)
    before = [represent_all(c) for c in federation.clients]
    heads = [c.model.head[0].weight.clone() for c in federation.clients]
    algorithm.local_update(federation, 0)
    for client, z, head in zip(federation.clients, before, heads, strict=True):
        assert torch.equal(represent_all(client), z)
        assert not torch.equal(client.model.head[0].weight, head)
