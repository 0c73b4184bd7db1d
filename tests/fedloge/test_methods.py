"""Federated methods: what each trains, sends and keeps, and what reduces to what."""

from __future__ import annotations

import math

import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.methods import Method, Recipe, Visit
from fedmuscle_lib.fedloge.methods.method import balanced_softmax
from fedmuscle_lib.fedloge.preprocessing import LocalData, Preprocessing

every_method = pytest.mark.parametrize("name", methods.names())


def visit(method: Method, client: int = 0, counts: tuple[int, ...] = toy.COUNTS[0]) -> Visit:
    """A client that has just received the first global model."""
    shared = method.shared()
    received = {name: tensor.clone() for name, tensor in shared.state_dict().items()}
    data = LocalData(client, toy.samples(counts), toy.CLASSES, Preprocessing(), method.problem.seed)
    return Visit(shared, method.private(client), received, data, toy.RECIPE, 0)


# --- every method


@every_method
def test_a_round_trains_what_is_shared_and_the_ledger_has_its_size(name):
    federation = toy.federation(name)
    before = toy.tensors(federation)
    assert math.isfinite(federation.round(0))
    after = toy.tensors(federation)
    size = sum(tensor.nbytes for tensor in federation.method.shared().state_dict().values())
    assert federation.server.downlink == {(0, 0): size, (0, 1): size}
    assert federation.server.uplink == {(0, 0): size + 8, (0, 1): size + 8}
    still = [name for name in before if torch.equal(before[name], after[name])]
    assert not still, still
    assert all(0 <= row["value"] <= 100 for row in federation.evaluate(1))


# --- FedAvg and what reduces to it


def test_fedavg_of_one_client_is_plain_sgd_to_the_bit():
    recipe = Recipe(epochs=2, weight_decay=0.01)
    federation = toy.federation("fedavg", counts=toy.COUNTS[:1], recipe=recipe)
    method = toy.method("fedavg")
    model = torch.nn.Sequential(method.backbone(), method.head())
    data = LocalData(0, toy.samples(toy.COUNTS[0], seed=1), toy.CLASSES, Preprocessing(), 0)
    for round in range(2):
        federation.round(round)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.5, weight_decay=0.01)
        for epoch in range(2):
            for x, y in data.batches(round, epoch, 8):
                optimiser.zero_grad()
                cross_entropy(model(x), y).backward()
                optimiser.step()
    plain = list(model.state_dict().values())
    assert all(map(torch.equal, federation.server.tensors.values(), plain))


@pytest.mark.parametrize(
    "name, options", [("fedprox", {"mu": 0.0}), ("ditto", {}), ("ratio_loss", {"beta": 0.0})]
)
def test_what_shares_a_model_as_fedavg_does_is_fedavg_to_the_bit(name, options):
    """FedProx without its term, Ditto's global model whatever its coefficient, and the ratio loss
    without ratios.
    """
    one, fedavg = toy.federation(name, options), toy.federation("fedavg")
    for round in range(2):
        one.round(round)
        fedavg.round(round)
    assert all(
        torch.equal(one.server.tensors[key], tensor)
        for key, tensor in fedavg.server.tensors.items()
    )


# --- balanced softmax


def test_balanced_softmax_weighs_classes_by_their_counts_and_leaves_absent_ones_out():
    logits = torch.tensor([[0.3, -1.0, 2.0]], requires_grad=True)
    counts = torch.tensor([6, 2, 0])
    loss = balanced_softmax(logits, torch.tensor([0]), counts)
    shares = 6 * math.exp(0.3), 2 * math.exp(-1.0)
    assert loss.item() == pytest.approx(-math.log(shares[0] / sum(shares)))
    loss.backward()
    assert torch.isfinite(logits.grad).all() and logits.grad[0, 2] == 0


# --- FedLoGe


def trained_from_other_heads(name: str, shared: float = 1.0) -> tuple[Visit, Visit]:
    """Two visits after training, of which the second began with another private head, and a shared
    one that is so many times as large.
    """
    method = toy.method(name)
    one, other = visit(method), visit(method)
    with torch.no_grad():
        other.shared["head"].weight.mul_(shared)
        other.private["head"].weight.mul_(-3)
    for each in (one, other):
        method.train(each)
    return one, other


def test_fedloges_backbone_learns_from_the_fixed_classifier_alone():
    one, other = trained_from_other_heads("fedloge", shared=7)
    assert toy.same(one.shared["backbone"].state_dict(), other.shared["backbone"].state_dict())


def test_each_of_fedloges_heads_learns_from_its_own_logits():
    one, other = trained_from_other_heads("fedloge")
    assert toy.same(one.shared["head"].state_dict(), other.shared["head"].state_dict())
    assert not toy.same(one.private["head"].state_dict(), other.private["head"].state_dict())


def test_fedloges_predictions_are_what_their_names_say():
    method = toy.method("fedloge")
    each = visit(method)
    h = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    g, l = each.shared["head"], each.private["head"]
    lengthened = h @ (g.weight * l.weight.norm(dim=1, keepdim=True)).T + g.bias
    wanted = {
        "local": l(h),
        "local + shared": l(h) + g(h),
        "local + realigned": l(h) + lengthened,
        "shared + realigned": g(h) + lengthened,
        "sse_c": method.sse_c(h),
        "shared": g(h),
    }
    found = method.personal_heads(each)
    assert found.keys() == wanted.keys()
    for name, head in found.items():
        torch.testing.assert_close(head(h), wanted[name])
    of_all = method.global_heads(each.shared)
    assert of_all.keys() == {"sse_c", "shared", "realigned"}
    torch.testing.assert_close(
        of_all["realigned"](h), h @ (1.7 * g.weight / g.weight.norm(dim=1, keepdim=True)).T + g.bias
    )


# --- the other baselines


def test_fedrods_personal_head_has_no_say_in_what_is_shared():
    one, other = trained_from_other_heads("fedrod")
    assert toy.same(one.shared.state_dict(), other.shared.state_dict())


def test_fedetf_predicts_by_cosines_with_an_etf_of_its_own_dimension():
    method = toy.method("fedetf", {"temperature": 3.0})
    torch.testing.assert_close(
        method.etf @ method.etf.T, torch.full((4, 4), -1 / 3).fill_diagonal_(1), rtol=0, atol=1e-5
    )
    shared = method.shared()
    h = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    head = method.global_heads(shared)["etf"]
    logits = head(h)
    assert logits.abs().max() <= 3.0 + 1e-5
    torch.testing.assert_close(logits.sum(1), torch.zeros(50), rtol=0, atol=1e-5)
    with torch.no_grad():
        shared["projection"].bias.zero_()
    torch.testing.assert_close(head(5 * h), head(h))


def test_the_ratio_loss_compares_a_class_with_the_mean_of_the_others():
    method = toy.method("ratio_loss", {"alpha": 1.0, "beta": 0.1})
    weights = method.weights(torch.tensor([0.6, 0.3, 0.1, 0.0]))
    rare = (
        (0.6 + 0.3 + 0.1) / 3 / 0.1
    )  # a class that nobody had counts as the rarest that somebody had
    assert weights.tolist() == pytest.approx(
        [1 + 0.1 * 0.5 / 3 / 0.6, 1 + 0.1 * 0.8 / 3 / 0.3, 1 + 0.1 * rare, 1 + 0.1 * rare]
    )
    assert method.weights(torch.zeros(4)).tolist() == [1, 1, 1, 1]


def test_fedrep_trains_its_head_first_and_its_network_then():
    method = toy.method("fedrep", {"head_epochs": 2})
    each = visit(method)
    phases = list(method.phases(each))
    assert [epochs for epochs, _ in phases] == [2, toy.RECIPE.epochs]
    method.phases = lambda _: iter(phases[:1])
    before = {name: p.clone() for name, p in each.shared.named_parameters()}
    method.train(each)
    assert all(torch.equal(p, before[name]) for name, p in each.shared.named_parameters())


def test_fedbabus_clients_tune_a_copy_of_one_head_that_stays():
    federation = toy.federation("fedbabu")
    before = federation.method.random_head.weight.clone()
    federation.round(0)
    rows = federation.evaluate(1)
    assert torch.equal(federation.method.random_head.weight, before)
    assert rows == federation.evaluate(1)
    method = toy.method("fedbabu", {"tuned_epochs": 30})
    each = visit(method)
    h = each.data.features(each.shared["backbone"])
    (tuned,) = method.personal_heads(each).values()
    y = each.data.samples.targets
    assert cross_entropy(tuned(h), y) < cross_entropy(method.random_head(h), y)
