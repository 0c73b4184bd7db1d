"""Directed peers: who predicts whom, who listens to whom, and who keeps a copy of itself."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from sklearn.linear_model import Ridge

from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import directed
from fedmuscle_lib.fedmuscle.algorithms.directed import FOLDS, PENALTIES, _Forgets, predictability
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.fedmuscle.settings import parse

N, D = 64, 6
# Two local steps an epoch, also without a fold of five, and two public ones.
FEW = {
    "users": (2, 5, 6),
    "others": 2,
    "batch_size": 16,
    "public_size": 32,
    "train_samples": dict.fromkeys(("MLC", "IC100", "IC10"), 24),
}


@pytest.fixture(scope="module")
def settings(small_settings):
    return lambda **given: small_settings(**(FEW | given))


@pytest.fixture(scope="module")
def plain(settings):
    """Two rounds of what no test has patched, trained once."""
    return cache(
        lambda name, **options: trained(
            settings,
            name,
            2,
            options={f"directed.{option}": value for option, value in options.items()},
        )
    )


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def trained(settings, name, rounds=1, **given):
    """The federation and its clients' weights after some rounds."""
    s = settings(algorithm=name, rounds=max(1, rounds), **given)
    federation, algorithm = build(s), algorithms.get(name)(s)
    algorithm.begin(federation)
    for round in range(rounds):
        algorithm.local_update(federation, round)
        algorithm.communicate(federation, round)
    return federation, [
        {key: p.clone() for key, p in client.model.trainable_state().items()}
        for client in federation.clients
    ]


def equal(one, other):
    return all(torch.equal(a[key], b[key]) for a, b in zip(one, other, strict=True) for key in a)


def test_what_holds_more_predicts_what_holds_less_better_than_the_other_way_round():
    whole = drawn(N, D)
    part = whole @ drawn(D, 2, seed=1) @ drawn(2, D, seed=2)  # of rank 2
    turned = whole @ torch.linalg.qr(drawn(D, D, seed=3)).Q
    r2 = predictability(torch.stack([whole, part, turned, drawn(N, D, seed=4)]), torch.arange(N))
    assert r2[0, 1] > 0.99 and r2[1, 0] < 0.7
    assert min(r2[0, 2], r2[2, 0]) > 0.99, "a rotation loses nothing"
    assert r2[0, 3] < 0.1 and r2[3, 0] < 0.1, "of noise nothing is predicted"


def test_scale_changes_nothing_and_of_a_constant_nothing_is_predicted():
    z = torch.stack([drawn(N, D), drawn(N, D, seed=1) + drawn(N, D)])
    r2 = predictability(z, torch.arange(N))
    torch.testing.assert_close(predictability(1000 * z, torch.arange(N)), r2)
    with_constant = predictability(torch.cat([z, torch.ones(1, N, D)]), torch.arange(N))
    torch.testing.assert_close(with_constant[:2, :2], r2)
    assert with_constant[2].abs().max() < 1e-6 and with_constant[:, 2].abs().max() < 1e-6


def test_an_order_needs_samples():
    with pytest.raises(ValueError, match="4 public samples at least, got 3"):
        predictability(drawn(2, 3, D), torch.arange(3))


def test_of_many_users_the_order_is_measured_in_fewer_dimensions(monkeypatch):
    wide = drawn(4 * N, D)
    z = torch.stack(
        [wide[:, :1].repeat(1, D), *[wide] * 2]
    )  # the first user knows one direction of D
    monkeypatch.setattr(directed, "MANY", 2)
    monkeypatch.setattr(directed, "SKETCHED", D - 1)
    r2 = predictability(z, torch.arange(4 * N))
    assert r2[1, 0] > 0.5 > r2[0, 1] and min(r2[1, 2], r2[2, 1]) > 0.99


def test_it_is_a_ridge_regression_on_samples_that_it_did_not_see():
    a, b = drawn(N, D), drawn(N, D, seed=1)
    b += a @ drawn(D, D, seed=2)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(5))
    found = predictability(torch.stack([a, b]), order)[0, 1]
    x, y = ((z[order] - z.mean(0)).numpy() for z in (a, b))
    folds = torch.arange(N).numpy() * FOLDS // N
    scores = []
    for penalty in PENALTIES:
        each = []
        for fold in range(FOLDS):
            seen, unseen = folds != fold, folds == fold
            fit = Ridge(penalty * (x[seen] ** 2).sum() / D, fit_intercept=False).fit(
                x[seen], y[seen]
            )
            each.append(
                1 - ((y[unseen] - fit.predict(x[unseen])) ** 2).sum() / (y[unseen] ** 2).sum()
            )
        scores.append(sum(each) / FOLDS)
    assert float(found) == pytest.approx(max(scores), abs=1e-9)


@pytest.mark.parametrize(
    ("peers", "own", "name"),
    [("all", "never", "fedmuscle"), ("all", "always", "anchored"), ("none", "always", "self")],
)
def test_three_of_its_options_are_other_algorithms(plain, peers, own, name):
    federation, ours = plain("directed", peers=peers, own=own)
    other, theirs = plain(name)
    assert equal(ours, theirs)
    received = [federation.server.downlink[1, client.user.number] for client in federation.clients]
    assert name == "self" or received == [
        other.server.downlink[1, client.user.number] for client in other.clients
    ]


def test_of_peers_that_predict_it_a_user_may_hear_those_that_read_what_it_reads(
    settings, monkeypatch
):
    reads = {1: "image", 2: "text", 3: "image"}
    monkeypatch.setattr(directed, "task_of", lambda user: SimpleNamespace(reads=reads[user.number]))
    monkeypatch.setattr(
        directed,
        "predictability",
        lambda z, order: torch.tensor([[1.0, 0.2, 0.2], [0.5, 1.0, 0.5], [0.6, 0.2, 1.0]]),
    )
    heard = {}
    for peers in ("predicting", "same_inputs"):
        s = settings(
            algorithm="directed", users=(1, 2, 3), others=1, options={"directed.peers": peers}
        )
        federation, algorithm = build(s), algorithms.get("directed")(s)
        algorithm.begin(federation)
        heard[peers] = algorithm._listens
    assert heard == {
        "predicting": {1: (2, 3), 2: (), 3: (2,)},
        "same_inputs": {1: (3,), 2: (), 3: ()},
    }


def test_peers_for_comparison_are_as_many_or_larger(settings, monkeypatch):
    """User 1 hears one peer, user 5 two and user 6 none; user 1's checkpoint is the largest."""
    monkeypatch.setattr(
        directed,
        "predictability",
        lambda z, order: torch.tensor([[1.0, 0.9, 0.5], [0.5, 1.0, 0.5], [0.5, 0.9, 1.0]]),
    )
    monkeypatch.setattr(directed, "cka", lambda a, b: -(a - b).square().sum())
    heard = {}
    for peers in ("predicting", "alike", "random", "larger"):
        s = settings(
            algorithm="directed", users=(1, 5, 6), others=1, options={"directed.peers": peers}
        )
        federation, algorithm = build(s), algorithms.get("directed")(s)
        monkeypatch.setattr(
            directed._Size, "__call__", lambda self, client: {1: 3, 5: 2, 6: 2}[client.user.number]
        )
        algorithm.begin(federation)
        heard[peers] = algorithm._listens
    assert heard["predicting"] == {1: (), 5: (1, 6), 6: ()}
    assert all(list(map(len, heard[peers].values())) == [0, 2, 0] for peers in ("alike", "random"))
    assert heard["larger"] == {1: (), 5: (1,), 6: (1,)}


def test_with_equals_weighted_peers_are_all_at_the_usual_temperature(settings, plain, monkeypatch):
    _, theirs = plain("directed", peers="all", own="always")
    monkeypatch.setattr(
        directed, "predictability", lambda z, order: torch.full((len(z), len(z)), 0.5)
    )
    _, ours = trained(
        settings, "directed", 2, options={"directed.own": "always", "directed.peers": "weighted"}
    )
    assert all(
        torch.allclose(a[key], b[key]) for a, b in zip(ours, theirs, strict=True) for key in a
    )


def test_the_more_a_weighted_peer_knows_the_lower_its_temperature(settings, monkeypatch):
    monkeypatch.setattr(
        directed, "predictability", lambda z, order: torch.tensor([[1.0, 0.8], [0.4, 1.0]])
    )
    s = settings(
        algorithm="directed",
        users=(1, 2),
        others=1,
        tau=0.2,
        options={"directed.peers": "weighted"},
    )
    federation, algorithm = build(s), algorithms.get("directed")(s)
    algorithm.begin(federation)
    tau = [torch.tensor(algorithm._temperature("tau", [n, n, m])) for n, m in ((1, 2), (2, 1))]
    assert tau[0][0].tolist()[1:] == pytest.approx([0.2, 0.4]) and tau[1][0].tolist()[
        1:
    ] == pytest.approx([0.2, 0.1])
    assert all(torch.equal(own, own.T) for own in tau)


def test_refreshed_peers_are_chosen_by_what_was_sent_last_and_survive_a_restart(
    settings, monkeypatch
):
    sent, measured = {}, []
    receive = Server.receive
    monkeypatch.setattr(
        Server,
        "receive",
        lambda self, user, batch, z: (
            sent.update({(user, batch.position): z}),
            receive(self, user, batch, z),
        ),
    )
    monkeypatch.setattr(
        directed,
        "predictability",
        lambda z, order: measured.append(z) or torch.rand(len(z), len(z), generator=seeded),
    )
    seeded = torch.Generator().manual_seed(0)
    s = settings(
        algorithm="directed",
        cl_epochs=2,
        options={"directed.own": "never", "directed.peers": "refreshed"},
    )
    federation, algorithm = build(s), algorithms.get("directed")(s)
    algorithm.begin(federation)
    first = dict(algorithm._listens)
    algorithm.communicate(federation, 0)
    users, batches = federation.server.users, sorted({position for _, position in sent})
    assert torch.equal(
        measured[1], torch.stack([torch.cat([sent[user, k] for k in batches]) for user in users])
    )
    assert measured[1].shape == measured[0].shape and algorithm._listens != first
    noted = {
        (row["user"], row["measure"]): row["value"]
        for row in federation.server.measures
        if row["round"] == 1
    }
    assert all(
        noted[n, f"listens to {m}"] == (m in algorithm._listens[n])
        for n in users
        for m in users
        if n != m
    )
    again, once_more = build(s), algorithms.get("directed")(s)
    once_more.begin(again)
    algorithm._keeps, algorithm._vetoes = {user: user > 2 for user in users}, {users[0]}
    once_more.restore(algorithm.state())
    assert once_more.state() == algorithm.state()


@pytest.mark.parametrize("nobody", [{"directed.peers": "none"}, {"directed.floor": 1.0}])
def test_who_listens_to_nobody_and_keeps_no_copy_answers_and_is_not_aligned(settings, nobody):
    federation, ours = trained(settings, "directed", options={"directed.own": "never", **nobody})
    assert equal(ours, trained(settings, "local")[1])
    assert not federation.server.downlink and set(federation.server.uplink) == {
        (0, client.user.number) for client in federation.clients
    }


def test_the_history_says_who_predicts_whom_and_who_listens(plain):
    federation, _ = plain("directed", own="never")
    noted = {(row["user"], row["measure"]): row["value"] for row in federation.server.measures}
    users = federation.server.users
    for n in users:
        assert noted[n, "keeps a copy"] == 0
        for m in set(users) - {n}:
            there, back = noted[n, f"R2 from {m}"], noted[m, f"R2 from {n}"]
            assert noted[n, f"listens to {m}"] == (there > back + 0.02 and back >= 0.1)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_trial_leaves_no_trace_but_its_bit_and_its_operations(
    settings, plain, monkeypatch, keeps
):
    untried, theirs = plain("directed", own="always" if keeps else "never")
    decide = _Forgets.__call__

    def decided(self, client):
        decide(self, client)
        return keeps

    monkeypatch.setattr(_Forgets, "__call__", decided)
    tried, ours = trained(settings, "directed", 2, options={"directed.folds": 2})
    assert equal(ours, theirs)
    assert all(
        a.meter.total > b.meter.total for a, b in zip(tried.clients, untried.clients, strict=True)
    )


def test_the_head_alone_leaves_the_representation_as_it_was_and_its_training_possible(settings):
    client = trained(settings, "local", 0)[0].clients[0]
    representation = client.model.representation_parameters()
    before, heads = (
        [p.clone() for p in representation],
        [p.clone() for p in client.model.head.parameters()],
    )
    trial = _Forgets(1, 2)
    trial._trained(client, head_alone=True)
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, client.model.representation_parameters(), strict=True)
    )
    assert not any(
        torch.equal(a, b) for a, b in zip(heads, client.model.head.parameters(), strict=True)
    )
    trial._trained(client, head_alone=False)
    assert not all(
        torch.equal(a, b)
        for a, b in zip(before, client.model.representation_parameters(), strict=True)
    )


def test_a_tie_keeps_the_copy_and_a_spoilt_backbone_does_too(settings, monkeypatch):
    client = trained(settings, "local", 0)[0].clients[0]
    assert client.do(_Forgets(0, 2)) is True, "nobody has learnt anything"
    scores = iter([40.0, 50.0, 45.0, 40.0])  # of head and whole, fold by fold
    monkeypatch.setattr(_Forgets, "_trained", lambda self, client, head_alone: next(scores))
    assert client.do(_Forgets(1, 2)) is False
    scores = iter([50.0, 40.0, 40.0, 45.0])
    assert client.do(_Forgets(1, 2)) is True


def rehearsed(settings, monkeypatch, gains):
    """Two rounds after a rehearsal of them in which alignment adds ``gains`` to the users' metrics,
    in the order of the users.
    """
    scores = iter([50.0 for _ in gains] + [50.0 + gain for gain in gains])  # alone, aligned
    with monkeypatch.context() as patched:
        patched.setattr(Client, "evaluate", lambda client: next(scores))
        return trained(
            settings, "directed", 2, options={"directed.own": "always", "directed.rehearsals": 1}
        )


def test_who_loses_in_a_rehearsal_is_as_with_local_training(settings, plain, monkeypatch):
    _, alone = plain("local")
    federation, ours = rehearsed(
        settings, monkeypatch, [10.0 if n else -10.0 for n in range(len(alone))]
    )
    first, second = (client.user.number for client in federation.clients[:2])
    assert equal(ours[:1], alone[:1]) and not equal(ours[1:], alone[1:])
    noted = {
        row["user"]: row["value"]
        for row in federation.server.measures
        if row["measure"] == "gain in rehearsal 1"
    }
    assert (noted[first], noted[second]) == (-10, 10)
    server = federation.server
    assert server.uplink[1, first] == server.uplink[1, second] and not server.downlink[1, first], (
        "it answers others all the same"
    )


def test_who_is_not_aligned_gains_nothing_in_a_rehearsal(settings):
    """With alignment and without, everybody sees its samples in the same order."""
    federation, _ = trained(
        settings,
        "directed",
        2,
        options={"directed.own": "never", "directed.peers": "none", "directed.rehearsals": 2},
    )
    gains = [
        row["value"] for row in federation.server.measures if row["measure"].startswith("gain")
    ]
    assert gains == [0.0] * 2 * len(federation.clients)


def test_a_rehearsal_does_not_measure_the_order_again():
    with pytest.raises(
        ValueError, match="^options: directed: rehearsals: not with refreshed peers"
    ):
        parse({"options": {"directed.peers": "refreshed", "directed.rehearsals": 1}})
    assert parse({"options": {"directed.folds": 7, "directed.rehearsals": 7}}), (
        "options are checked together"
    )


def test_a_rehearsal_leaves_no_trace_but_what_it_costs(settings, plain, monkeypatch):
    unrehearsed, theirs = plain("directed", own="always")
    federation, ours = rehearsed(settings, monkeypatch, [0.0 for _ in theirs])
    assert equal(ours, theirs)
    for client, before in zip(federation.clients, unrehearsed.clients, strict=True):
        assert client.meter.total > 2 * before.meter.total, (
            "a run alone and one with alignment, on less"
        )
        assert client.take_losses() == before.take_losses()
    user, once, costs = federation.clients[0].user.number, unrehearsed.server, federation.server
    assert costs.uplink[0, user] - once.uplink[0, user] == 2 * once.uplink[1, user], (
        "each message of two rounds, no second reference"
    )
    assert (
        costs.downlink[0, user] - once.downlink[0, user]
        == once.downlink[0, user] + once.downlink[1, user]
    )


def test_each_training_of_a_trial_and_of_a_rehearsal_begins_from_the_first_weights(
    settings, monkeypatch
):
    begun, fit = [], Client.fit

    def watched(client, *args):
        begun.append(equal([client.model.trainable_state()], [client.start]))
        return fit(client, *args)

    monkeypatch.setattr(Client, "fit", watched)
    federation, _ = trained(
        settings, "directed", options={"directed.own": "decided", "directed.rehearsals": 2}
    )
    assert all(begun)
    assert len(begun) > 4 * len(federation.clients), (
        "trials and two rehearsals, each of two trainings"
    )


def test_validated_peers_are_those_with_whom_alone_a_user_is_better_than_with_none(
    settings, plain, monkeypatch
):
    unrehearsed, _ = plain("directed", peers="none", own="always")
    users = [client.user.number for client in unrehearsed.clients]
    better = [
        [k == 1 + i % (len(users) - 1) for i, _ in enumerate(users)] for k, _ in enumerate(users)
    ]  # rehearsals, users
    scores = iter([50.0 + 10 * one for rehearsal in better for one in rehearsal])
    with monkeypatch.context() as patched:
        patched.setattr(Client, "evaluate", lambda client: next(scores))
        federation, _ = trained(
            settings,
            "directed",
            2,
            options={"directed.own": "always", "directed.peers": "validated"},
        )
    assert next(scores, None) is None, "as many rehearsals as users"
    heard = {
        (row["user"], row["measure"])
        for row in federation.server.measures
        if row["measure"].startswith("listens") and row["value"]
    }
    partners = {
        user: users[(i + 1 + i % (len(users) - 1)) % len(users)] for i, user in enumerate(users)
    }
    assert heard == {(user, f"listens to {partner}") for user, partner in partners.items()}
    costs, once, user = federation.server.uplink, unrehearsed.server.uplink, users[0]
    assert costs[0, user] - once[0, user] == len(users) * 2 * once[1, user], (
        "each message of two rounds in each rehearsal"
    )
