"""Directed peers: who predicts whom, who listens to whom, and who keeps a copy of itself."""

from functools import cache

import pytest
import torch
from sklearn.linear_model import Ridge

from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import directed
from fedmuscle_lib.fedmuscle.algorithms.directed import FOLDS, PENALTIES, _Forgets, predictability
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.client import Client

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


EVERYBODY = {"margin": -0.99, "floor": -1.0}


@pytest.mark.parametrize(
    ("options", "keeps", "name"),
    [
        (EVERYBODY, False, "fedmuscle"),
        (EVERYBODY, True, "anchored"),
        ({"floor": 1.0}, True, "self"),
    ],
)
def test_with_all_or_no_peers_it_is_another_algorithm(
    settings, plain, monkeypatch, options, keeps, name
):
    monkeypatch.setattr(_Forgets, "__call__", lambda self, client: keeps)
    given = {f"directed.{option}": value for option, value in options.items()}
    federation, ours = trained(settings, "directed", 2, options=given)
    other, theirs = plain(name)
    assert equal(ours, theirs)
    received = [federation.server.downlink[1, client.user.number] for client in federation.clients]
    assert name == "self" or received == [
        other.server.downlink[1, client.user.number] for client in other.clients
    ]


def test_random_peers_are_as_many(settings, monkeypatch):
    """User 5 listens to both others, users 1 and 6 to nobody; then 5 to one."""
    r2 = torch.tensor([[1.0, 0.9, 0.5], [0.5, 1.0, 0.5], [0.5, 0.9, 1.0]])
    monkeypatch.setattr(directed, "predictability", lambda z, order: r2)
    listens = {}
    for peers in ("predicting", "random"):
        s = settings(
            algorithm="directed", users=(1, 5, 6), others=1, options={"directed.peers": peers}
        )
        federation, algorithm = build(s), algorithms.get("directed")(s)
        algorithm.begin(federation)
        listens[peers] = algorithm._listens
    assert listens["predicting"] == {1: (), 5: (1, 6), 6: ()}
    assert list(map(len, listens["random"].values())) == [0, 2, 0]


def test_it_goes_on_after_a_restart(settings, plain):
    federation, theirs = plain("directed")
    s = settings(algorithm="directed", rounds=2)
    first, algorithm = build(s), algorithms.get("directed")(s)
    algorithm.begin(first)
    algorithm.local_update(first, 0)
    algorithm.communicate(first, 0)
    again, resumed = build(s), algorithms.get("directed")(s)
    resumed.begin(again)
    for client, before in zip(again.clients, first.clients, strict=True):
        client.restore(before.state())
    resumed.restore(algorithm.state())
    resumed.local_update(again, 1)
    resumed.communicate(again, 1)
    assert equal([client.model.trainable_state() for client in again.clients], theirs)


def test_who_listens_to_nobody_and_keeps_no_copy_answers_and_is_not_aligned(settings):
    federation, ours = trained(
        settings, "directed", options={"directed.own": "never", "directed.floor": 1.0}
    )
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


def test_a_trial_leaves_no_trace_but_its_bit_and_its_operations(settings, plain, monkeypatch):
    untried, theirs = plain("directed", own="never")
    decide = _Forgets.__call__

    def decided(self, client):
        decide(self, client)
        return False

    monkeypatch.setattr(_Forgets, "__call__", decided)
    tried, ours = trained(settings, "directed", 2, options={"directed.folds": 2})
    assert equal(ours, theirs)
    for after, before in zip(tried.clients, untried.clients, strict=True):
        assert after.meter.total > before.meter.total
        assert after.take_losses() == before.take_losses()


def test_a_tie_keeps_the_copy_and_a_spoilt_backbone_does_too(settings, monkeypatch):
    client = trained(settings, "local", 0)[0].clients[0]
    assert client.do(_Forgets(0, 2)) is True, "nobody has learnt anything"
    scores = iter([40.0, 50.0, 45.0, 40.0])  # of head and whole, fold by fold
    monkeypatch.setattr(_Forgets, "_trained", lambda self, client, head_alone: next(scores))
    assert client.do(_Forgets(1, 2)) is False
    scores = iter([50.0, 40.0, 40.0, 45.0])
    assert client.do(_Forgets(1, 2)) is True


def test_each_training_of_a_trial_begins_from_the_first_weights(settings, monkeypatch):
    begun, fit = [], Client.fit

    def watched(client, *args):
        begun.append(equal([client.model.trainable_state()], [client.start]))
        return fit(client, *args)

    monkeypatch.setattr(Client, "fit", watched)
    federation, _ = trained(settings, "directed")
    assert all(begun) and len(begun) > 2 * 5 * len(federation.clients)
