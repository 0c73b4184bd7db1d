"""Properties of the Muscle loss for any batch, dimension, number of others and temperatures."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from representations import value_and_gradient
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.muscle import muscle_loss
from fedmuscle_lib.muscle.reference import muscle_loss_loop

CLOSE = {"rtol": 1e-9, "atol": 1e-11}  # float64, sums in another order


@st.composite
def problems(draw, most: int = 3) -> tuple[Tensor, Tensor, float, float]:
    """A raw anchor (b, d), its others (m, b, d) with unit rows, tau and a smaller tau'."""
    m, b, d = draw(st.integers(1, most)), draw(st.integers(2, 4)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    vectors = torch.randn(m + 1, b, d, generator=generator, dtype=torch.float64)
    tau = draw(st.floats(0.05, 10))
    return vectors[0], normalize(vectors[1:], dim=-1), tau, tau * draw(st.floats(0.1, 1))


@given(problems())
def test_the_contraction_is_the_loop_forward_and_backward(problem):
    torch.testing.assert_close(
        value_and_gradient(muscle_loss, *problem),
        value_and_gradient(muscle_loss_loop, *problem),
        **CLOSE,
    )


@given(problems(most=5), st.randoms(use_true_random=False))
def test_the_order_of_the_others_does_not_matter(problem, random):
    raw, others, *heats = problem
    order = random.sample(range(len(others)), len(others))
    torch.testing.assert_close(
        value_and_gradient(muscle_loss, raw, others[order], *heats),
        value_and_gradient(muscle_loss, raw, others, *heats),
        **CLOSE,
    )


@given(problems(most=5), st.integers(0, 2**32 - 1))
def test_a_rotation_of_all_representations_rotates_the_gradient(problem, seed):
    raw, others, *heats = problem
    square = torch.randn(
        raw.shape[1],
        raw.shape[1],
        generator=torch.Generator().manual_seed(seed),
        dtype=torch.float64,
    )
    rotation = torch.linalg.qr(square).Q
    value, gradient = value_and_gradient(muscle_loss, raw, others, *heats)
    turned = value_and_gradient(muscle_loss, raw @ rotation, others @ rotation, *heats)
    torch.testing.assert_close(turned, (value, gradient @ rotation), rtol=1e-7, atol=1e-9)


@given(problems(most=5))
def test_the_gradient_is_orthogonal_to_what_was_normalised(problem):
    raw, *rest = problem
    _, gradient = value_and_gradient(muscle_loss, raw, *rest)
    along = (gradient * raw).sum(1)
    torch.testing.assert_close(
        along, torch.zeros_like(along), rtol=0, atol=1e-9 * (1 + gradient.abs().max().item())
    )


@given(problems(most=5), st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(problem, random):
    raw, others, *heats = problem
    order = random.sample(range(len(raw)), len(raw))
    value, gradient = value_and_gradient(muscle_loss, raw, others, *heats)
    torch.testing.assert_close(
        value_and_gradient(muscle_loss, raw[order], others[:, order], *heats),
        (value, gradient[order]),
        **CLOSE,
    )


@given(problems())
def test_learnt_temperatures_get_the_loops_gradient(problem):
    raw, others, *heats = problem

    def gradients(loss):
        variables = [torch.tensor(heat, dtype=torch.float64, requires_grad=True) for heat in heats]
        anchor = raw.clone().requires_grad_()
        value = loss(normalize(anchor, dim=-1), others, *variables)
        return (
            value.detach(),
            *torch.autograd.grad(value, [anchor, *variables], materialize_grads=True),
        )

    torch.testing.assert_close(
        gradients(muscle_loss), gradients(muscle_loss_loop), rtol=1e-7, atol=1e-9
    )
