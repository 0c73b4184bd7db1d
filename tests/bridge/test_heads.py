"""Heads on features that stay as they are, and groups of classes: known answers on made-up
users.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

from fedmuscle_lib.bridge.heads import HEADS, classes_by_frequency, evaluate, realigned
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedloge.etf import simplex_etf
from fedmuscle_lib.models import linear_probe

OWN, OWN_REALIGNED, LINEAR, LINEAR_REALIGNED = HEADS


class User(nn.Module):
    """A user whose features are its inputs, and whose head reads them as they are."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs

    def read_by_head(self, features: torch.Tensor) -> torch.Tensor:
        return features


def linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias or [0.0] * len(weight)))
    return layer


# --- realignment


@pytest.mark.parametrize(
    "before", [(), (nn.Linear(3, 4), nn.ReLU())], ids=["one layer", "two layers"]
)
def test_a_realigned_head_has_rows_of_one_norm_and_is_a_copy(before):
    torch.manual_seed(0)
    last = nn.Linear(4, 6)
    head = nn.Sequential(*before, last) if before else last
    weight = last.weight.clone()
    copied = realigned(head)
    new = copied[-1] if before else copied
    norms = weight.norm(dim=1)
    torch.testing.assert_close(new.weight.norm(dim=1), norms.mean().expand(6))
    torch.testing.assert_close(torch.cosine_similarity(new.weight, weight), torch.ones(6))
    assert torch.equal(new.bias, last.bias) and torch.equal(last.weight, weight)
    inputs = torch.randn(5, 3 if before else 4)
    assert not torch.equal(copied(inputs), head(inputs))


def test_a_head_without_a_row_for_each_class_is_refused():
    with pytest.raises(ValueError, match="a ReLU has no row for each class"):
        realigned(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


# --- groups


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (
            [2, 30, 1, 11, 21, 15, 7, 5, 4],
            {"head": (1, 3, 4, 5), "middle": (6, 7, 8), "tail": (0, 2)},
        ),
        (
            [80, 5, 5, 5, 5],
            {"head": (0,), "middle": (), "tail": (1, 2, 3, 4)},
        ),  # a tie is not torn apart
        ([9, 0, 1, 0], {"head": (0,), "middle": (2,), "tail": (1, 3)}),  # who has no sample is rare
        (
            [4, 4, 4],
            {"head": (0, 1, 2), "middle": (), "tail": ()},
        ),  # without a tail, all are one group
    ],
)
def test_groups_have_every_class_once_and_ties_go_to_the_rarer(counts, expected):
    assert classes_by_frequency(torch.tensor(counts)) == expected


# --- accuracies


def test_a_user_whose_rare_class_has_a_short_row_finds_it_when_realigned():
    """Classes point along the axes of the plane; the frequent one's row is nine times as long, so
    that it wins the other's samples.
    """
    axes = torch.eye(2)
    train = Samples(torch.cat([axes[0].expand(19, 2), axes[1:]]), torch.tensor([0] * 19 + [1]))
    test = Samples(
        torch.tensor([[1.0, 0.2], [1, 0.4], [0.3, 1], [0.2, 1]]), torch.tensor([0, 0, 1, 1])
    )
    rows = list(evaluate(User(linear([[0.9, 0.0], [0.0, 0.1]])), train, test, 2))
    found = {(row["head"], row["group"]): row["value"] for row in rows}
    assert [found[OWN, group] for group in ("all", "head", "tail")] == [50, 100, 0]
    assert [found[OWN_REALIGNED, group] for group in ("all", "head", "tail")] == [100, 100, 100]
    sizes = {row["group"]: (row["classes"], row["samples"], row["tested"]) for row in rows}
    assert sizes == {"all": (2, 20, 4), "head": (1, 19, 2), "tail": (1, 1, 2)}


def test_linear_heads_are_fitted_to_the_features_whatever_their_scale_and_the_users_head():
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(torch.tensor([30, 10, 3]))
    places = torch.tensor([[0.0, 0, 5], [0, 5, 5], [5, 0, 5]])  # the last feature says nothing
    train, test = (
        Samples(
            places[y] + torch.tensor([0.3, 0.3, 0]) * torch.randn(len(y), 3, generator=draws), y
        )
        for y in (labels, torch.arange(3).repeat(20))
    )

    def accuracies(scale, weight):
        scaled = [Samples(samples.inputs * scale, samples.targets) for samples in (train, test)]
        return {
            (row["head"], row["group"]): row["value"]
            for row in evaluate(User(linear(weight)), *scaled, 3)
        }

    found = accuracies(torch.ones(3), [[1.0, 0, 0]] * 3)
    assert found[LINEAR, "all"] == found[LINEAR_REALIGNED, "all"] == 100
    other = accuracies(torch.tensor([100.0, 0.01, 1.0]), [[0.0, 1, 0]] * 3)
    assert {key: value for key, value in other.items() if LINEAR in key[0]} == {
        key: found[key] for key in found if LINEAR in key[0]
    }


def test_heads_read_what_the_users_own_head_reads():
    user = User(linear([[1.0, 0.0], [0.0, 1.0]]))
    samples = Samples(torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1]]), torch.tensor([0, 0, 0, 1]))
    assert next(evaluate(user, samples, samples, 2))["value"] == 100
    exchanged = linear([[0.0, 1.0], [1.0, 0.0]])
    user.read_by_head = lambda features: exchanged(features)
    assert next(evaluate(user, samples, samples, 2))["value"] == 0


def test_a_linear_map_to_a_fixed_etf_is_a_linear_head():
    """Why the ETF is no head of its own here: on fixed features it gives the linear head's outputs,
    if the penalty has the ETF's scale.
    """
    classes, width = 4, 6
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(torch.tensor([20, 9, 4, 2]))
    features = (
        one_hot(labels, width) + 0.8 * torch.randn(len(labels), width, generator=draws)
    ).double()
    etf = math.sqrt((classes - 1) / classes) * simplex_etf(8, classes, draws).double()
    usual = linear_probe(features, labels, cross_entropy, classes)
    mapped = linear_probe(
        features, labels, lambda outputs, targets: cross_entropy(outputs @ etf.T, targets), 8
    )
    unseen = torch.randn(50, width, generator=draws).double()
    torch.testing.assert_close(
        (mapped(unseen) @ etf.T).softmax(1), usual(unseen).softmax(1), atol=1e-4, rtol=0
    )
