"""The three replies say the same, and say how large they are."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import partial

import pytest
import torch
from representations import members
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.fedmuscle.objectives import gramian, pairwise
from fedmuscle_lib.muscle import muscle_loss
from fedmuscle_lib.muscle.wire import (
    REPLIES,
    gradient_reply,
    make_reply,
    paper_cost_gb,
    reply_nbytes,
)

KINDS = ("dense", "factored", "gradient")


def value_and_gradient(loss, anchor: Tensor) -> tuple[Tensor, Tensor]:
    anchor = anchor.detach().clone().requires_grad_()
    value = loss(anchor)
    return value.detach(), torch.autograd.grad(value, anchor)[0]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_replies_give_the_loss_and_its_gradient(kind, m, dtype, tolerance):
    anchor, others = members(m, 6, 16, dtype=dtype)
    expected = value_and_gradient(lambda z: muscle_loss(z, others), anchor)
    torch.testing.assert_close(
        value_and_gradient(make_reply(kind, anchor, others).loss, anchor),
        expected,
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_replies_carry_a_temperature_for_every_pair(kind):
    anchor, others = members(3, 5, 8)
    tau = torch.tensor(
        [[1.0, 0.2, 0.3, 0.4], [0.2, 1.0, 0.5, 0.6], [0.3, 0.5, 1.0, 0.7], [0.4, 0.6, 0.7, 1.0]]
    )
    expected = value_and_gradient(lambda z: muscle_loss(z, others, tau, tau / 2), anchor)
    torch.testing.assert_close(
        value_and_gradient(make_reply(kind, anchor, others, tau, tau / 2).loss, anchor), expected
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_through_an_encoder_is_the_same(kind):
    """What the client does: the Z^n it sends, detached, is the Z^n it differentiates."""
    inputs, others = members(2, 8, 16)[0], members(3, 8, 4)[1]
    steps = []
    for loss in (
        lambda z: muscle_loss(z, others),
        lambda z: make_reply(kind, z.detach(), others).loss(z),
    ):
        torch.manual_seed(0)
        encoder = torch.nn.Linear(16, 4, dtype=torch.float64)
        (3 * loss(normalize(encoder(inputs), dim=-1))).backward()
        steps.append(encoder.weight.grad)
    torch.testing.assert_close(steps[1], steps[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("objective", [partial(pairwise, tau=0.2), partial(gramian, tau=0.07)])
def test_a_gradient_reply_serves_any_objective(objective):
    anchor, others = members(3, 6, 8)
    expected = value_and_gradient(lambda z: objective(z, others), anchor)
    with torch.no_grad():
        reply = gradient_reply(objective, anchor, others)
    torch.testing.assert_close(
        value_and_gradient(reply.loss, anchor), expected, rtol=1e-12, atol=1e-14
    )


def test_a_gradient_reply_holds_no_other_users_representations():
    """Its size does not depend on how many others there are."""
    replies = [make_reply("gradient", *members(m, 6, 8)) for m in (1, 4)]
    assert replies[0].nbytes == replies[1].nbytes
    assert {field.name for field in fields(replies[0])} == {"value", "gradient"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_those_of_the_payload(kind, m, dtype):
    reply = make_reply(kind, *members(m, 5, 8, dtype=dtype))
    payload = sum(getattr(reply, field.name).numel() for field in fields(reply)) * dtype.itemsize
    assert reply.nbytes == payload == reply_nbytes(kind, b=5, d=8, m=m, itemsize=dtype.itemsize)


def test_an_unknown_reply_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'sparse': one of dense, factored, gradient"):
        make_reply("sparse", *members(2, 5, 8))
    assert tuple(REPLIES) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_bad_members_are_refused_by_name(kind):
    anchor, others = members(2, 5, 8)
    others = others.clone()
    others[1, 2, 3] = math.nan
    with pytest.raises(ValueError, match=r"others\[1\] \(user 7\), row 2 has norm nan"):
        make_reply(kind, anchor, others, names=["user 2", "user 5", "user 7"])


@pytest.mark.parametrize(
    "m, printed", [(1, "0.004"), (2, "0.050"), (3, "0.956"), (4, "19.080"), (5, "381.565")]
)
def test_table_5_comes_out(m, printed):
    assert f"{math.floor(paper_cost_gb(m) * 1000) / 1000:.3f}" == printed
