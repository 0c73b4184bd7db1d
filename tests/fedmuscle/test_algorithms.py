"""Table 1's algorithms: what each exchanges, whom it leaves alone, and what its steps are, on a
federation of small users.

Users 2 and 3 have MLC, 4 and 5 IC100, and user 6 is alone with IC10.
"""

import pickle
import sys
from functools import cache
from types import SimpleNamespace

import pytest
import torch

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Algorithm, Federation, IgnoredSetting
from fedmuscle_lib.fedmuscle.algorithms.cofed import FitLabelled, Keep, Vote, merge
from fedmuscle_lib.fedmuscle.algorithms.feddf import ensemble
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle
from fedmuscle_lib.fedmuscle.algorithms.local import LocalTraining
from fedmuscle_lib.fedmuscle.algorithms.pseudo_labeling import Surest, phase
from fedmuscle_lib.fedmuscle.augmentation import View
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.messages import LabelSpace
from fedmuscle_lib.fedmuscle.settings import parse
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.tasks import TASKS

PUBLIC = 34
INSIDE = {
    "cofed",
    "fedhenn",
    "fedrcl",
    "pseudo_labeling",
    "sage",
}  # all that they train on is in the local update
ALONE = {"simclr", "pseudo_labeling", "fedrcl", "local", "own_teacher"}  # exchange nothing
FEW = {"users": (4, 5, 6)}
EAGER = {
    "cofed.margin": 0.0,
    "sage.threshold": 0.02,
}  # so that models of a few steps have something to say
SECOND_HALF = 3  # a round of six in which every algorithm does all that it does
# Clients do something else in each; others of the kind are tried where there is time.
TOLD = {
    "cofed",
    "feddf",
    "fedhenn",
    "fedmuscle",
    "fedrcl",
    "frozen_peers",
    "head_only",
    "probe",
    "pseudo_labeling",
    "sage",
}
BASELINES = ["cofed", "feddf", "fedhenn", "fedrcl", "pseudo_labeling", "sage", "simclr"]


@pytest.fixture(scope="module")
def settings(small_settings):
    small = {
        "users": (2, 4, 5, 6),
        "rounds": 6,
        "public_size": PUBLIC,
        "batch_size": 16,
        "head_hidden": 32,
        "train_samples": dict.fromkeys(("MLC", "IC100", "IC10"), 18),
    }
    return lambda **given: small_settings(**(small | given))


def begun(settings, name, where=lambda client: client, **given):
    s = settings(algorithm=name, **given)
    federation = build(s)
    federation = Federation([where(client) for client in federation.clients], federation.server)
    algorithm = algorithms.get(name)(s)
    algorithm.begin(federation)
    return federation, algorithm


def play(settings, name, where=lambda client: client):
    """A round in which every algorithm does all that it does: its losses, and users' weights and
    operations after each phase.
    """
    federation, algorithm = begun(
        settings, name, where, options=EAGER | {"pseudo_labeling.restart": True}, **FEW
    )
    clients = [getattr(client, "_client", client) for client in federation.clients]
    losses, after = [], []
    for step in (algorithm.local_update, algorithm.communicate):
        losses.append(step(federation, SECOND_HALF))
        after.append([(weights(client), client.meter.total) for client in clients])
    return SimpleNamespace(losses=losses, after=after, server=federation.server)


@pytest.fixture(scope="module")
def played(settings):
    return cache(lambda name: play(settings, name))


@pytest.fixture(scope="module")
def locally(settings):
    """Users' weights after each round of local training."""
    federation, algorithm = begun(settings, "local")
    after = []
    for round in range(algorithm.settings.rounds):
        algorithm.local_update(federation, round)
        after.append([weights(client) for client in federation.clients])
    return after


def weights(client):
    return {name: p.clone() for name, p in client.model.trainable_state().items()}


def equal(one, other):
    return all(torch.equal(one[name], p) for name, p in other.items())


def same(before, client):
    return equal(before, client.model.trainable_state())


def unlike(n, classes, seed=0):
    return torch.randn(n, classes, generator=torch.Generator().manual_seed(seed))


# --- what every algorithm has to do


@pytest.mark.parametrize("name", BASELINES)
def test_a_round_trains_with_finite_losses_and_counts_its_operations(played, name):
    one = played(name)
    local, loss = one.losses
    assert local > 0 and (loss is None if name in INSIDE else 0 < loss < 50)
    for user, (before, counted), (after, total) in zip(FEW["users"], *one.after, strict=True):
        skips = name in INSIDE or (name == "feddf" and user == 6)  # who is alone in its label space
        assert counted > 0 and (total == counted) == equal(before, after) == skips


@pytest.mark.slow
@pytest.mark.parametrize("name", BASELINES)
def test_a_resumed_run_is_the_uninterrupted_one(settings, cut_off_and_resumed, name):
    """The same tables to the bit, though the run was cut off in the middle of a phase."""
    rounds, after = {"pseudo_labeling": (9, 4), "cofed": (4, 3)}.get(
        name, (2, 1)
    )  # labels are made before, and trained on afterwards
    options = EAGER | {"pseudo_labeling.restart": True}
    cut_off_and_resumed(
        settings(algorithm=name, users=(4, 5, 6), rounds=rounds, options=options), after
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", BASELINES)
def test_test_data_choose_nothing(settings, name):
    """With other test data a run trains to the same weights."""
    states = []
    for spoiled in (False, True):
        federation, algorithm = begun(settings, name, options=EAGER, **FEW)
        for client in federation.clients:
            if spoiled:
                client.evaluation.targets.zero_()
        algorithm.local_update(federation, SECOND_HALF)
        for client in federation.clients:
            client.evaluate()
        algorithm.communicate(federation, SECOND_HALF)
        states.append([weights(client) for client in federation.clients])
    assert all(map(equal, *states))


@pytest.mark.parametrize("name", sorted(ALONE))
def test_users_on_their_own_send_and_get_nothing(played, name):
    server = played(name).server
    assert not server.uplink and not server.downlink


@pytest.mark.parametrize("name", ["feddf", "sage"])
def test_predictions_travel_within_a_label_space(settings, name):
    federation, algorithm = begun(settings, name)
    algorithm.local_update(federation, 0)
    algorithm.communicate(federation, 0)
    expected = {
        (0, user): PUBLIC * 100 * 4 for user in (4, 5)
    }  # MLC's user 2 is alone here, and so is user 6
    assert dict(federation.server.uplink) == expected == dict(federation.server.downlink)


def test_a_client_that_sends_nonsense_is_named(settings):
    federation, algorithm = begun(settings, "feddf", **FEW)
    federation.clients[1].do = lambda part: torch.full((PUBLIC, 100), torch.nan)
    with pytest.raises(RefusedMessage, match="user 5 sent predictions that are not finite"):
        algorithm.communicate(federation, 0)
    federation.clients[1].do = lambda part: torch.zeros(PUBLIC, 10)
    with pytest.raises(
        RefusedMessage, match=r"user 5 sent predictions of shape \(34, 10\); \(34, 100\)"
    ):
        algorithm.communicate(federation, 1)


def test_groups_are_label_spaces(settings):
    federation = build(settings(users=(1, 2, 3, 6)))
    assert [[c.user.number for c in group.clients] for group in federation.groups()] == [
        [1, 2, 3],
        [6],
    ]
    assert federation.groups()[1].space == LabelSpace("IC10", tuple(range(10)))
    federation.clients[1].classes = federation.clients[1].classes[:-1]
    assert [[c.user.number for c in group.clients] for group in federation.groups()] == [
        [1, 3],
        [2],
        [6],
    ]


# --- messages


class Elsewhere:
    """A client at the other end of a wire: what it is told and what it answers are pickled, and it
    has nothing but methods.
    """

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        answer = getattr(self._client, name)
        if not callable(answer):
            assert name in {"user", "label_space"}, f"{name} is the client's own"
            return carried(answer)
        assert name not in {"evaluate", "state", "restore"}, f"{name} is not for an algorithm"
        return lambda *told: carried(answer(*carried(told)))


def carried(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize(
    "name",
    [
        each if each in TOLD else pytest.param(each, marks=pytest.mark.slow)
        for each in algorithms.names()
    ],
)
def test_an_algorithm_does_the_same_to_clients_elsewhere(settings, played, name):
    here, there = played(name), play(settings, name, Elsewhere)
    assert (here.server.uplink, here.server.downlink) == (
        there.server.uplink,
        there.server.downlink,
    )
    assert all(equal(a, b) for (a, _), (b, _) in zip(here.after[1], there.after[1], strict=True))


# --- which settings an algorithm reads


@pytest.fixture
def registry(monkeypatch):
    """What a test registers is forgotten afterwards."""
    monkeypatch.setattr(Algorithm, "registry", dict(Algorithm.registry))


def test_a_setting_that_is_read_and_ignored_is_an_error_that_names_both(settings, registry):
    class Warm(FedMuscle):
        name, label = "warm", "Warm"
        ignores = ("tau",)

    federation, algorithm = begun(settings, "warm", **FEW)
    with pytest.raises(
        IgnoredSetting, match="^warm ignores 'tau' but reads it: take it out of Warm.ignores$"
    ):
        algorithm.communicate(federation, 0)

    class Curious(LocalTraining):
        name, label = "curious", "Curious"

        def communicate(self, federation, round):
            return self.settings.tau

    curious = Curious(settings(algorithm="curious"))  # inherits what local training ignores
    with pytest.raises(IgnoredSetting, match="curious ignores 'tau'.*Curious.ignores"):
        curious.communicate(None, 0)


def test_public_batches_may_have_a_size_of_their_own(settings):
    def sizes(**given):
        return [batch.size for batch, _ in FedMuscle(settings(**given)).public_batches(0)]

    assert sizes() == sizes(public_batch_size=16) == [16, 16, 2] and sizes(
        public_batch_size=10
    ) == [10, 10, 10, 4]


# --- a new file


@pytest.fixture
def folder(registry, tmp_path, monkeypatch):
    """One more folder of algorithms, in which nothing is yet."""
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    loaded = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - loaded:
        if name.startswith("fedmuscle_lib.fedmuscle.algorithms."):
            del sys.modules[name]


PLAIN = """
from fedmuscle_lib.fedmuscle.algorithms.local import LocalTraining

class Plain(LocalTraining):
    name, label = "plain", "Plain"
"""


def test_a_file_that_is_written_while_the_program_runs_is_found(folder):
    with pytest.raises(ValueError, match="unknown algorithm 'plain'; known: anchored, "):
        algorithms.get("plain")
    (folder / "plain.py").write_text(PLAIN)
    assert algorithms.get("plain").label == "Plain"


# --- options


def test_options_belong_to_one_algorithm_and_leave_the_runs_of_others_alone(settings):
    plain, other = (
        settings(algorithm="simclr"),
        settings(algorithm="simclr", options={"simclr.tau": 0.1}),
    )
    default = settings(
        algorithm="simclr",
        options={"simclr.tau": 0.5, "fedhenn.samples": 64, "sage.balanced": False},
    )
    assert address_of(plain) == address_of(default) != address_of(other)
    assert algorithms.get("simclr")(other).options.tau == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"simclr.taw": 1}, "options of simclr: .*'taw'; did you mean 'tau'"),
        ({"simclr.tau": -1}, "options of simclr: tau: .*greater than 0.*-1"),
        (
            {"feddf.average": "losses"},
            "options of feddf: average: .*'logits' or 'probabilities'.*'losses'",
        ),
        ({"nobody": 1}, "no algorithm 'nobody'; known: .*fedmuscle"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        parse({"options": options})


# --- FedRCL


def test_fedrcl_without_its_terms_is_local_training(settings, locally):
    federation, algorithm = begun(settings, "fedrcl", options={"fedrcl.weight": 0.0})
    algorithm.local_update(federation, 0)
    for client, local in zip(federation.clients, locally[0], strict=True):
        for name, p in client.model.trainable_state().items():
            if "projection" in name:
                continue  # has a gradient, of zero, so that AdamW's decay acts on it
            torch.testing.assert_close(p, local[name], rtol=0, atol=1e-6, msg=name)


def test_levels_go_from_shallow_to_the_representation(settings):
    client = build(settings(users=(5, 6), others=1, lora_blocks="all")).clients[0]
    images = client.train.inputs[:4]
    outputs, levels = client.model.forward_with_levels(images)
    width = client.model.projection.in_features
    assert [level.shape for level in levels] == [(4, width)] * 4 + [(4, 256)]
    torch.testing.assert_close(outputs, client.model(images))
    torch.testing.assert_close(
        torch.nn.functional.normalize(levels[-1], dim=-1), client.model.represent(images)
    )
    assert len({level.sum().item() for level in levels}) == 5


# --- FedDF


def test_own_teacher_is_feddf_where_all_teachers_agree(settings, monkeypatch):
    """With equal predictions of both users the ensemble is each user's own."""
    states = []
    for name in ("feddf", "own_teacher"):
        federation, algorithm = begun(settings, name, **FEW)
        for client in federation.clients[:2]:
            monkeypatch.setattr(client, "over_public", lambda call: unlike(PUBLIC, 100))
        algorithm.communicate(federation, 0)
        states.append([weights(client) for client in federation.clients])
    for a, b in zip(*states, strict=True):
        torch.testing.assert_close(
            a, b, rtol=0, atol=1e-4
        )  # AdamW amplifies rounding; a step moves a weight by lr, 1e-3


@pytest.mark.parametrize("task", ["IC10", "MLC"])
@pytest.mark.parametrize("average", ["logits", "probabilities"])
def test_the_ensemble_of_equals_is_each_of_them(task, average):
    outputs = unlike(5, 10)
    mean = ensemble(TASKS[task], [outputs, outputs, outputs], average)
    torch.testing.assert_close(TASKS[task].decisions(mean), TASKS[task].decisions(outputs))


@pytest.mark.parametrize("task", ["IC10", "MLC"])
def test_decisions_are_distributions_and_travel_as_outputs(task):
    log_p = TASKS[task].decisions(unlike(5, 10))
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(log_p.shape[:2]))
    assert log_p.shape[-1] == TASKS[task].outcomes
    torch.testing.assert_close(TASKS[task].decisions(TASKS[task].outputs(log_p)), log_p)


def test_the_ensemble_of_probabilities_is_their_mean():
    a, b = unlike(5, 10), unlike(5, 10, seed=1)
    mean = {
        task: TASKS[task].decisions(ensemble(TASKS[task], [a, b], "probabilities")).exp()
        for task in ("IC10", "MLC")
    }
    torch.testing.assert_close(mean["IC10"][:, 0], (a.softmax(-1) + b.softmax(-1)) / 2)
    torch.testing.assert_close(mean["MLC"][..., 1], (a.sigmoid() + b.sigmoid()) / 2)


# --- CoFED


def test_votes_are_cast_by_margin():
    p = torch.tensor(
        [[[0.59, 0.3, 0.11]], [[0.65, 0.34, 0.01]], [[0.1, 0.2, 0.7]], [[0.4, 0.35, 0.25]]]
    )
    assert Vote(0.3).labels(p.log()).flatten().tolist() == [-1, 0, 2, -1]
    present = torch.tensor([0.7, 0.6, 0.4, 0.3])
    mlc = torch.stack([1 - present, present], -1)[:, None]
    assert Vote(0.3).labels(mlc.log()).flatten().tolist() == [1, -1, -1, 0]


def test_votes_are_merged_by_quorum_and_contradictions_dropped():
    votes = torch.tensor([[2, 2, -1, 0, -1], [2, 0, 1, 0, -1], [-1, -1, -1, 1, -1]])[..., None]
    assert merge(votes, 3, 0.3).flatten().tolist() == [
        2,
        -1,
        1,
        -1,
        -1,
    ]  # one of three is enough; 2 against 0 and 0 against 1 are dropped
    assert merge(votes, 3, 0.5).flatten().tolist() == [2, -1, -1, 0, -1]
    assert (merge(votes, 3, 1.0) == -1).all()
    assert torch.equal(merge(votes[[2, 0, 1]], 3, 0.3), merge(votes, 3, 0.3))


def test_cofed_votes_once_by_a_byte_a_decision(settings):
    federation, algorithm = begun(settings, "cofed", users=(2, 3, 4, 5, 6))
    for round in range(6):
        algorithm.communicate(federation, round)
    classes = len(federation.clients[0].classes)
    once = {
        (2, 2): PUBLIC * classes,
        (2, 3): PUBLIC * classes,
        (2, 4): PUBLIC,
        (2, 5): PUBLIC,
    }  # at half time
    assert dict(federation.server.uplink) == once == dict(federation.server.downlink)


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"rounds": 6}, 3),
        ({"rounds": 60}, 40),
        (
            {"rounds": 20, "epochs": {"default": 20, "IC10": 60}},
            14,
        ),  # user 6 has three epochs a round
        ({"rounds": 60, "options": {"cofed.epochs": 5}}, 55),
    ],
)
def test_cofed_ends_with_at_most_twenty_epochs_on_both_sets(settings, given, first):
    usual = {"options": {"cofed.epochs": 20}}  # the default, whatever the profile tuned
    algorithm = algorithms.get("cofed")(settings(algorithm="cofed", **usual | given))
    assert algorithm._first_together() == first


def steps(client):
    """Steps of the optimiser of local training."""
    return max(int(state["step"]) for state in client.state()["local"]["state"].values())


@pytest.mark.parametrize("name", ["fedmuscle", "fedrcl"])
def test_users_train_for_the_epochs_of_their_task(settings, name):
    given = {"epochs": {"default": 12, "IC10": 3}, "lr": {"default": 1e-3, "MLC": 2e-3}}
    federation, algorithm = begun(settings, name, users=(2, 5, 6), **given)
    for round, (usual, own) in enumerate([(2, 0), (4, 1), (6, 1)]):
        algorithm.local_update(federation, round)
        assert [client.state()["epochs"] for client in federation.clients] == [usual, usual, own]
    assert [client.state()["local"]["param_groups"][0]["lr"] for client in federation.clients] == [
        2e-3,
        1e-3,
        1e-3,
    ]


def test_models_are_built_by_task(settings):
    by_task = {
        "lora_blocks": {"default": "all", "MLC": "none"},
        "lora_layers": {"default": "attention", "IC10": "linear"},
    }
    by_task |= {
        "head_layers": {"default": 2, "IC100": 1},
        "head_hidden": {"default": 8, "IC10": 16},
    }
    mlc, ic100, _, ic10 = build(settings(**by_task)).clients
    usual = {
        client.user.number: client
        for client in build(settings(lora_layers="attention", lora_blocks="all")).clients
    }

    def adapted(client):
        return {name for name in client.model.trainable_state() if "lora_" in name}

    assert (
        not adapted(mlc)
        and adapted(ic100) == adapted(usual[4])
        and adapted(ic10) > adapted(usual[6])
    )
    assert isinstance(ic100.model.head, torch.nn.Linear)
    assert [client.model.head[0].out_features for client in (mlc, ic10)] == [8, 16]


def is_local_training(settings, locally, name, rounds, but=(), **options):
    """Whether users have the weights of local training to the bit, but for those with such a
    name.
    """
    federation, algorithm = begun(
        settings,
        name,
        rounds=rounds,
        options={f"{name}.{option}": value for option, value in options.items()},
    )
    for round in range(rounds):
        algorithm.local_update(federation, round)
        algorithm.communicate(federation, round)
    for client, theirs in zip(federation.clients, locally[rounds - 1], strict=True):
        mine = client.model.trainable_state()
        assert [
            name
            for name, p in mine.items()
            if not torch.equal(p, theirs[name]) and not any(word in name for word in but)
        ] == []
    return True


def test_cofed_without_accepted_labels_is_local_training(settings, locally):
    assert is_local_training(settings, locally, "cofed", 4, quorum=1.0)


def test_labelled_and_accepted_samples_are_passed_over_together(settings):
    """Labels that a user's own samples already have change the loss of a pass by nothing but its
    order; each sample is seen once.
    """
    client = build(settings(users=(5, 6), others=1, train_samples={"IC10": 27})).clients[1]
    seen = []
    read = client.read
    client.read = lambda inputs, rows: (
        seen.append((inputs is client.public, rows.tolist())),
        read(inputs, rows),
    )[1]
    labels = torch.full((PUBLIC, 1), -1, dtype=torch.int8)
    labels[[3, 7, 9]] = 4
    client.do(Keep(labels))
    client.do(FitLabelled(2))
    assert steps(client) == 4  # two batches of 30 samples, twice
    own, public = (
        sorted(row for there, rows in seen if there == kind for row in rows)
        for kind in (False, True)
    )
    assert own == sorted([*range(27), *range(27)]) and public == [3, 3, 7, 7, 9, 9]


# --- FedHeNN


def test_fedhenn_exchanges_gram_matrices_of_a_few_samples_but_not_in_round_0(settings):
    federation, algorithm = begun(settings, "fedhenn")
    algorithm.local_update(federation, 0)
    assert not federation.server.uplink
    algorithm.local_update(federation, 1)
    assert dict(federation.server.uplink) == {(1, user): 32 * 32 * 4 for user in (2, 4, 5, 6)}
    assert dict(federation.server.downlink) == {
        (1, user): 32 * 32 * 4 + 32 * 8 for user in (2, 4, 5, 6)
    }
    before = [weights(client) for client in federation.clients]
    assert algorithm.communicate(federation, 1) is None
    assert all(
        same(state, client) for state, client in zip(before, federation.clients, strict=True)
    )


def test_fedhenn_without_a_weight_is_local_training(settings, locally):
    """But for the projection, which has a gradient of zero, so that AdamW's decay acts on it."""
    assert is_local_training(settings, locally, "fedhenn", 3, but=("projection",), eta=0.0)


# --- SAGE and SimCLR: views


@pytest.fixture(scope="module")
def pictures():
    return torch.randint(
        0, 256, (6, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )


@pytest.mark.parametrize(
    "view",
    ["weak", "strong", "simclr"],
)
def test_views_depend_on_their_address_alone(pictures, view):
    first = View(view, ("user", 3), 0.5)(pictures)
    torch.rand(7)
    assert torch.equal(first, View(view, ("user", 3), 0.5)(pictures))
    assert not torch.equal(first, View(view, ("user", 4), 0.5)(pictures))
    assert first.shape[1:] == pictures.shape[1:] and first.min() >= 0 and first.max() <= 255.01


def test_a_weak_view_is_the_picture_moved_by_an_eighth_at_most(pictures):
    padded = torch.nn.functional.pad(pictures.float(), (4, 4, 4, 4), mode="reflect")
    for row, seen in enumerate(View("weak", (1,))(pictures)):
        crops = [padded[row, :, y : y + 32, x : x + 32] for y in range(9) for x in range(9)]
        assert any(
            torch.allclose(seen, c, atol=0.01) or torch.allclose(seen, c.flip(-1), atol=0.01)
            for c in crops
        )


def test_a_strong_view_hides_a_quarter_and_simclr_sees_every_picture_twice(pictures):
    grey = (View("strong", (2,))(pictures) - 127.5).abs().amax(1) < 0.01
    assert (grey.flatten(1).float().mean(1) >= 0.249).all()
    two = View("simclr", (3,), 0.5)(pictures)
    assert len(two) == 12 and not torch.equal(two[:6], two[6:])


def test_sage_is_local_training_where_nobody_is_sure(settings, locally):
    assert is_local_training(settings, locally, "sage", 2, threshold=1.0)


def test_sage_gives_a_decisions_rare_outcome_more_weight_and_classes_that_exclude_each_other_one(
    settings,
):
    _, algorithm = begun(settings, "sage", users=(5, 6), others=1, options={"sage.balanced": True})
    present = torch.tensor([0.99, 0.01, 0.01, 0.01, 0.5])
    decisions = torch.stack([1 - present, present], -1)[:, None].expand(
        -1, 2, -1
    )  # two classes, each present in one of four sure samples
    torch.testing.assert_close(
        algorithm._weights(decisions), torch.tensor([[1 / 3, 1.0], [1 / 3, 1.0]])
    )
    torch.testing.assert_close(algorithm._weights(torch.rand(5, 1, 10)), torch.ones(1, 10))


# --- pseudo-labelling


def surest(task, outputs, share):
    log_p = TASKS[task].decisions(outputs)
    return Surest(share).labels(log_p, TASKS[task].certainty(log_p))


@pytest.mark.parametrize("part", range(1, 6))
@pytest.mark.parametrize("task", ["IC10", "MLC"])
def test_a_phase_accepts_a_fifth_more_of_the_public_set(task, part):
    outputs = 3 * unlike(100, 10)
    labels = surest(task, outputs, part / 5)
    certainty = TASKS[task].certainty(TASKS[task].decisions(outputs))
    accepted = (labels >= 0).any(1)
    assert accepted.sum() == 20 * part
    assert part == 5 or certainty[accepted].min() > certainty[~accepted].max()


def test_pseudo_labels_are_the_models_and_leave_out_unsure_classes():
    outputs = torch.tensor([[3.0, -3.0, 0.1]])
    assert surest("MLC", outputs, 1.0).tolist() == [[1, 0, -1]]
    assert surest("IC10", outputs, 1.0).tolist() == [[0]]


def test_pseudo_labelling_that_accepts_nothing_is_local_training(settings, locally, monkeypatch):
    nothing = Surest.labels
    monkeypatch.setattr(
        Surest,
        "labels",
        lambda self, log_p, certainty: torch.full_like(nothing(self, log_p, certainty), -1),
    )
    assert is_local_training(settings, locally, "pseudo_labeling", 6)


def test_phases_are_equal_parts_of_the_rounds():
    assert [phase(r, 150) for r in (0, 24, 25, 124, 125, 149)] == [0, 0, 1, 4, 5, 5]
    assert [phase(r, 6) for r in range(6)] == list(range(6))


def test_a_phase_begins_from_the_initial_weights(settings):
    federation, algorithm = begun(
        settings, "pseudo_labeling", options={"pseudo_labeling.restart": True}, **FEW
    )
    start = [weights(client) for client in federation.clients]
    algorithm.local_update(federation, 1)
    assert not any(
        same(state, client) for state, client in zip(start, federation.clients, strict=True)
    )
    algorithm.local_phase = lambda client, round: 0.0
    algorithm.local_update(federation, 2)
    assert all(same(state, client) for state, client in zip(start, federation.clients, strict=True))
    assert not any(
        client.state()["local"]["state"] for client in federation.clients
    )  # new optimisers


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"local_epochs": 20}, [True] * 4),
        ({"local_epochs": 19}, [False] * 4),
        ({"epochs": {"default": 120, "IC10": 119}}, [True, True, True, False]),
        ({"options": {"pseudo_labeling.restart": True}}, [True] * 4),
        ({"local_epochs": 20, "options": {"pseudo_labeling.restart": False}}, [False] * 4),
    ],
)
def test_users_begin_anew_where_their_phases_are_long_enough(settings, given, expected):
    s = settings(algorithm="pseudo_labeling", **given)
    algorithm = algorithms.get("pseudo_labeling")(s)
    assert [algorithm._restarts(SimpleNamespace(user=user)) for user in s.members] == expected
