"""Statements of the paper about the Muscle loss, held against the library's implementation.

The README's code takes cosine similarities and the library dot products. They agree on unit
vectors, and so do their gradients with respect to whatever was normalised; hence gradients are
compared there, before ``normalize``.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from representations import members, value_and_gradient, vectors
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.bench import peak_bytes
from fedmuscle_lib.fedmuscle.objectives import info_nce, pairwise
from fedmuscle_lib.muscle import log_alpha, lower_order_temperature, muscle_loss
from fedmuscle_lib.muscle.reference import dense_log_alpha, muscle_loss_dense, muscle_loss_loop


def random_temperatures(m: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Symmetric (m+1, m+1) matrices tau and tau' < tau."""
    generator = torch.Generator().manual_seed(seed)
    tau, share = 0.2 + torch.rand(2, m + 1, m + 1, generator=generator, dtype=torch.float64)
    tau, share = tau + tau.T, share + share.T
    return tau, tau * share / 2.5


def brute_force(anchor: Tensor, others: Tensor, tau: float, tau_prime: float) -> Tensor:
    """Equation (3) by logsumexp over the full table, in float64: exact however extreme the
    temperatures.
    """
    z = torch.cat([anchor[None], others]).double()
    m, b = len(others), len(anchor)
    table = torch.zeros((b,) * (m + 1), dtype=torch.float64)
    for l, k in combinations(range(m + 1), 2):
        factor = 1 / tau if l == 0 else 1 / tau - 1 / tau_prime
        shape = [b if axis in (l, k) else 1 for axis in range(m + 1)]
        table = table + factor * (z[l] @ z[k].T).view(shape)
    table = table.reshape(b, -1)
    positive = [i * sum(b**k for k in range(m)) for i in range(b)]
    return (table.logsumexp(1) - table[range(b), positive]).mean()


# --- what the loss is


def test_one_other_member_makes_it_infonce():
    anchor, others = members(1, 16, 32)
    ours, theirs = (
        value_and_gradient(loss, anchor, other, 0.3)
        for loss, other in ((muscle_loss, others), (info_nce, others[0]))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_without_gamma_it_is_the_sum_of_pairwise_losses(m):
    """Equation (16)."""
    anchor, others = members(m, 6, 16)
    ours, theirs = (
        value_and_gradient(muscle_loss, anchor, others, 0.2, 0.2),
        value_and_gradient(pairwise, anchor, others, 0.2),
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("b", [2, 3, 6])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_equals_the_readme_with_a_temperature_for_every_pair(m, b):
    raw, others = vectors(b, 8, seed=m), members(m, b, 8, seed=b)[1]
    heats = random_temperatures(m, seed=m)
    ours, theirs = (
        value_and_gradient(muscle_loss, raw, others, *heats),
        value_and_gradient(muscle_loss_dense, raw, others, *heats),
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_float32_agrees_with_float64(m, device):
    """To 1e-5, in loss and gradient, at the paper's temperatures; float32 also on a GPU."""
    raw, others = vectors(12, 32), members(m, 12, 32)[1]
    wide = value_and_gradient(muscle_loss, raw, others)
    narrow = value_and_gradient(
        muscle_loss, raw.to(device, torch.float32), others.to(device, torch.float32)
    )
    torch.testing.assert_close(
        [x.to("cpu", torch.float64) for x in narrow], list(wide), rtol=1e-5, atol=1e-6
    )


def test_a_list_of_others_is_a_stack():
    anchor, others = members(3, 4, 6)
    assert muscle_loss(anchor, list(others)) == muscle_loss(anchor, others)


# --- who gets a gradient


def test_only_the_anchor_gets_a_gradient():
    anchor, others = members(3, 4, 6)
    anchor.requires_grad_(), others.requires_grad_()
    muscle_loss(anchor, others).backward()
    assert anchor.grad is not None and others.grad is None


def test_a_second_derivative_is_refused():
    anchor, others = members(2, 4, 6)
    anchor.requires_grad_()
    (gradient,) = torch.autograd.grad(muscle_loss(anchor, others), anchor, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        gradient.sum().backward()


@pytest.mark.parametrize("transform", [torch.func.jvp, torch.func.jacfwd, torch.func.hessian])
@pytest.mark.parametrize("of", ["anchor", "tau", "tau_prime"])
def test_forward_mode_is_refused_and_not_a_silent_zero(transform, of):
    anchor, others = members(2, 4, 6)
    values = {"anchor": anchor, "tau": torch.tensor(0.2), "tau_prime": torch.tensor(0.15)}

    def loss(value):
        return muscle_loss(others=others, **values | {of: value})

    with pytest.raises(RuntimeError):
        if transform is torch.func.jvp:
            transform(loss, (values[of],), (torch.ones_like(values[of]),))
        else:
            transform(loss)(values[of])


# --- what people pass


@pytest.mark.parametrize(
    ("given", "error", "word"),
    [
        ({"anchor": np.eye(4)}, TypeError, "anchor"),
        ({"anchor": torch.eye(4, dtype=torch.int64)}, TypeError, "torch.int64"),
        ({"others": np.eye(4)[None]}, ValueError, "ndarray"),
        ({"others": {"peer": torch.eye(4)}}, ValueError, "dict"),
        ({"tau": [0.2, 0.2, 0.2]}, ValueError, r"tau: a number or a \(3, 3\) matrix.*\(3,\)"),
        ({"tau_prime": torch.device("cpu")}, ValueError, "tau_prime: a number.*device"),
        ({"tau_prime": "cpu"}, ValueError, "tau_prime: a number.*'cpu'"),
        ({"names": "abc"}, ValueError, "names"),
        ({"anchor": 9.4 * torch.eye(4)}, ValueError, r"normalize\(z, dim=-1\)"),
    ],
)
def test_a_wrong_argument_gets_one_line_that_says_what_is_expected(given, error, word):
    usual = {"anchor": torch.eye(4), "others": torch.eye(4).flip(0).repeat(2, 1, 1)}
    with pytest.raises(error, match=word) as caught:
        muscle_loss(**usual | given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("others", [lambda z: z, list, tuple])
def test_the_anchor_among_the_others_is_refused(others):
    z = normalize(torch.randn(3, 4, 6), dim=-1)
    with pytest.raises(ValueError, match="among the others"):
        muscle_loss(z[0], others(z))
    assert muscle_loss(z[0], z[1:]) == muscle_loss(z[0], z[1:].clone())


def test_a_call_that_takes_long_says_so_first(monkeypatch):
    monkeypatch.setattr("fedmuscle_lib.muscle.loss.SLOW", 1e-9)
    with pytest.warns(UserWarning, match=r"m = 2 others and b = 4 take about"):
        muscle_loss(*members(2, 4, 6))


# --- the weighting coefficients


def test_alpha_is_the_readmes():
    anchor, others = members(3, 4, 6)
    heats = random_temperatures(3)
    torch.testing.assert_close(
        log_alpha(others, *heats), dense_log_alpha([anchor, *others], *heats)[0]
    )


def test_alpha_grows_with_dissimilarity():
    """Remark 1: for M = 2, alpha falls strictly in the cosine of the two vectors."""
    _, others = members(2, 16, 8)
    cosines = (others[0] @ others[1].T).flatten()
    alpha = log_alpha(others).exp().flatten()[cosines.argsort()]
    assert (alpha.diff() < 0).all()


def toy_images() -> Tensor:
    """Appendix D: a dog, a cat and a bench; dog and cat are the most similar, dog and bench the
    least. Every model sees them alike.
    """
    angles = torch.deg2rad(torch.tensor([0.0, 40.0, 100.0]))
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_toy_example_moves_weight_to_dissimilar_negatives():
    """Figure 6: alpha is largest for (dog, bench), least where both vectors come from one image."""
    dog, cat, bench = range(3)
    z = toy_images()
    alpha = log_alpha([z, z], tau=1.0, tau_prime=lower_order_temperature(1.0)).exp()
    assert alpha[dog, bench] > alpha[cat, bench] > alpha[dog, cat] > alpha[dog, dog]
    unary = torch.exp(z[dog] @ z.T)
    plain = unary[:, None] * unary  # the terms of Figure 6 (a)
    assert plain[cat, dog] > plain[dog, bench]
    weighted = alpha * plain
    assert (weighted / plain)[dog, bench] > (weighted / plain)[cat, dog]


# --- Theorem 1


def gaussian_information(k: int, rho: float, m: int) -> float:
    """I(x_0; x_1 .. x_m) of k-dimensional standard Gaussians whose coordinates are correlated by
    rho between any two of them.
    """
    explained = (
        m * rho**2 / (1 + (m - 1) * rho)
    )  # squared multiple correlation of x_0 on the others
    return -k / 2 * math.log(1 - explained)


def mean_bound(k: int, rho: float, m: int, b: int) -> float:
    """M log B - loss, averaged over batches of normalised Gaussians."""
    generator = torch.Generator().manual_seed(0)
    bounds = []
    for _ in range(640 // b):
        common, own = (
            torch.randn(b, k, generator=generator),
            torch.randn(m + 1, b, k, generator=generator),
        )
        z = normalize(math.sqrt(rho) * common + math.sqrt(1 - rho) * own, dim=-1)
        bounds.append(m * math.log(b) - muscle_loss(z[0], z[1:]).item())
    return sum(bounds) / len(bounds)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_theorem_1_bounds_the_mutual_information_and_tightens(m):
    """z_n is a function of x_n, so I(z_0; z_1 .. z_M) <= I(x_0; x_1 .. x_M), which is known in
    closed form: what bounds the former from below stays under the latter. For M = 1 this holds for
    any critic; for M > 1 the theorem's proof approximates, and we check the mean. Figure 5's
    argument is that the bound tightens with B.
    """
    k, rho = 16, 0.5
    bounds = [mean_bound(k, rho, m, b) for b in (4, 16, 64)]
    assert 0 < bounds[0] < bounds[1] < bounds[2] < gaussian_information(k, rho, m)


# --- temperatures


def test_a_pair_with_a_large_temperature_contributes_almost_nothing():
    """Table 9: 100 between users of distant tasks.

    Here between one other and everybody; the rest's gradient remains, to 5 %.
    """
    raw, others = vectors(8, 16), members(3, 8, 16)[1]
    tau, tau_prime = torch.full((4, 4), 0.2), torch.full((4, 4), 0.15)
    for heats in (tau, tau_prime):
        heats[3, :] = heats[:, 3] = 100
    value, gradient = value_and_gradient(muscle_loss, raw, others, tau, tau_prime)
    without, gradient_without = value_and_gradient(muscle_loss, raw, others[:2])
    assert value.item() == pytest.approx(without.item() + math.log(8), abs=0.02)
    assert (gradient - gradient_without).norm() < 0.05 * gradient_without.norm()


@pytest.mark.parametrize("tau_prime", [0.15, 1e-3])  # sums of products, and of logarithms
def test_a_learnt_matrix_gets_the_loops_gradient_shared_by_mirror_images(tau_prime):
    anchor, others = members(3, 4, 6)
    entry = torch.ones(4, 4, dtype=torch.float64).triu(1)
    learnt = [
        (0.2 * (entry + entry.T)).requires_grad_(),
        (tau_prime * (entry + entry.T)).requires_grad_(),
    ]
    ours = torch.autograd.grad(muscle_loss(anchor, others, *learnt), learnt)
    theirs = torch.autograd.grad(muscle_loss_loop(anchor, others, *learnt), learnt)
    for found, loop in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, (loop + loop.T) / 2, rtol=1e-7, atol=1e-9)


def test_a_learnt_temperature_changes_neither_value_nor_gradient():
    raw, others = vectors(6, 8), members(3, 6, 8)[1]
    learnt = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    assert_equal = torch.testing.assert_close
    assert_equal(
        value_and_gradient(muscle_loss, raw, others, learnt),
        value_and_gradient(muscle_loss, raw, others, 0.2),
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("argument", [0, 2])
def test_functional_gradient_is_autograds(argument):
    anchor, others = members(3, 4, 6)
    inputs = [anchor, others, torch.tensor(0.2, dtype=torch.float64)]
    found = torch.func.grad(muscle_loss, argnums=argument)(*inputs)
    inputs[argument] = inputs[argument].clone().requires_grad_()
    assert torch.equal(found, torch.autograd.grad(muscle_loss(*inputs), inputs[argument])[0])


# --- slabs


@pytest.mark.parametrize("budget", [1, 3_000, 20_000])
@pytest.mark.parametrize("m, b", [(2, 7), (3, 7), (4, 5), (5, 4), (6, 3)])
def test_slabs_do_not_change_the_result(m, b, budget):
    """The least budget leaves one tuple a slab; others leave an uneven last slab."""
    raw, others = vectors(b, 8), members(m, b, 8)[1]
    heats = random_temperatures(m)
    whole = value_and_gradient(muscle_loss, raw, others, *heats)
    torch.testing.assert_close(
        value_and_gradient(muscle_loss, raw, others, *heats, memory_budget=budget),
        whole,
        rtol=1e-11,
        atol=1e-13,
    )
    value = muscle_loss(
        normalize(raw, dim=-1), others, *heats, memory_budget=budget
    )  # without a gradient
    torch.testing.assert_close(value, whole[0], rtol=1e-11, atol=0)


@pytest.mark.parametrize("m, b", [(3, 48), (4, 24)])
def test_memory_follows_the_budget(m, b):
    """What is needed beside the slabs is a few matrices of the inputs' size; the dense form's table
    has B^(M+1) entries.
    """
    anchor, others = members(m, b, 16, dtype=torch.float32)
    anchor.requires_grad_()
    budget = 400_000
    peak = peak_bytes(lambda: muscle_loss(anchor, others, memory_budget=budget).backward())
    assert peak < budget + 4 * others.nbytes + 8 * (m * m * b * b) * 4
    assert peak < b ** (m + 1) * 4 / 8


# --- stability


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau_prime", [0.05, 0.03, 0.01, 0.003, 1e-4, 1e-6])
def test_small_tau_prime_stays_exact(tau_prime, dtype):
    """2 * sum of gamma runs from 90 to 6e6, past float32's and float64's range of plain
    products.
    """
    anchor, others = members(3, 5, 8, dtype=dtype)
    exact = value_and_gradient(brute_force, anchor.double(), others.double(), 0.2, tau_prime)
    value, gradient = value_and_gradient(muscle_loss, anchor, others, 0.2, tau_prime)
    rtol = 1e-5 if dtype is torch.float32 else 1e-9
    torch.testing.assert_close(value.double(), exact[0], rtol=rtol, atol=rtol)
    torch.testing.assert_close(
        gradient.double(), exact[1], rtol=1e-3 if dtype is torch.float32 else 1e-6, atol=rtol
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m, b, tau_prime", [(8, 3, 0.15), (8, 3, 0.05), (10, 2, 0.02)])
def test_many_members_stay_exact(m, b, tau_prime, dtype):
    anchor, others = members(m, b, 8, dtype=dtype)
    exact = brute_force(anchor, others, 0.2, tau_prime)
    assert muscle_loss(anchor, others, 0.2, tau_prime).item() == pytest.approx(
        exact.item(), rel=1e-5 if dtype is torch.float32 else 1e-9
    )


@pytest.mark.parametrize("tau_prime", [0.15, 0.03, 1e-4])
def test_collapsed_representations_stay_exact(tau_prime):
    z = normalize(torch.ones(4, 6), dim=-1)
    value, gradient = value_and_gradient(muscle_loss, z, [z, z, z], 0.2, tau_prime)
    assert value.item() == pytest.approx(3 * math.log(4), rel=1e-5)
    assert gradient.abs().max() < 1e-5


@pytest.mark.parametrize("tau", [1e-2, 1e-4])
def test_small_tau_stays_exact(tau):
    anchor, others = members(2, 5, 8, dtype=torch.float32)
    exact = value_and_gradient(brute_force, anchor.double(), others.double(), tau, tau)
    value, gradient = value_and_gradient(muscle_loss, anchor, others, tau, tau)
    assert value.item() == pytest.approx(exact[0].item(), rel=1e-4)
    torch.testing.assert_close(gradient.double(), exact[1], rtol=1e-2, atol=1e-3 / tau)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    """Rows that were normalised in half precision are admitted; the loss is float32's of the same
    rounded rows, to 1e-6.
    """
    raw = vectors(4, 12, 64).to(dtype)
    anchor, others = normalize(raw[0], dim=-1).requires_grad_(), normalize(raw[1:], dim=-1)
    value = muscle_loss(anchor, others)
    value.backward()
    assert value.dtype == torch.float32 and anchor.grad.dtype == dtype
    assert value.item() == pytest.approx(
        muscle_loss(anchor.float(), others.float()).item(), rel=1e-6
    )


def test_mixed_precision_does_not_reach_inside():
    anchor, others = members(3, 8, 16, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = muscle_loss(anchor, others)
    assert value == muscle_loss(anchor, others)


# --- what is refused


def spoilt(index: int, row: int, value: float) -> tuple[Tensor, Tensor]:
    """Valid members with one entry of member ``index`` (0 the anchor) replaced."""
    anchor, others = members(2, 4, 6)
    z = torch.cat([anchor[None], others])
    z[index, row, 0] = value
    return z[0], z[1:]


@pytest.mark.parametrize(
    "value, said", [(math.nan, "norm nan"), (math.inf, "norm inf"), (7.0, "norm 7")]
)
@pytest.mark.parametrize("index, member", [(0, "anchor"), (2, r"others\[1\]")])
def test_bad_values_are_refused_by_member_and_row(index, member, value, said):
    with pytest.raises(ValueError, match=f"{member}, row 3 .*{said}"):
        muscle_loss(*spoilt(index, 3, value))


def test_names_are_used():
    with pytest.raises(ValueError, match=r"others\[1\] \(user 9\), row 0 has norm nan"):
        muscle_loss(*spoilt(2, 0, math.nan), names=["user 1", "user 4", "user 9"])


@pytest.mark.parametrize(
    "shape, others, said",
    [
        (
            (4, 6),
            [(4, 6), (3, 6)],
            r"others\[1\] has shape \(3, 6\), the anchor \(4, 6\): each is \(b, d\)",
        ),
        ((4, 6), [(4, 5)], r"others\[0\] has shape \(4, 5\), the anchor \(4, 6\)"),
        ((4, 6), [(4,)], r"others\[0\] has shape \(4,\)"),
        ((1, 6), [(1, 6)], r"anchor has shape \(1, 6\).*b >= 2"),
        ((4, 6), [], "m >= 1"),
    ],
)
def test_bad_shapes_are_refused(shape, others, said):
    z = [normalize(torch.ones(s), dim=-1) for s in (shape, *others)]
    with pytest.raises(ValueError, match=said):
        muscle_loss(z[0], z[1:])


@pytest.mark.parametrize(
    "tau, tau_prime, said",
    [
        (0.0, 0.15, "tau = 0.0 for anchor.*must be positive"),
        (-1.0, 0.15, "tau = -1.0"),
        (math.nan, 0.15, "tau = nan"),
        (0.2, 0.0, "tau_prime = 0.0 for anchor.*must be positive"),
        (
            0.2,
            0.3,
            r"tau_prime = 0.3 exceeds tau = 0.2 for others\[0\], others\[1\]: gamma = -1.667",
        ),
        ([[1, 1], [1, 1]], 0.15, r"\(3, 3\)"),
        ([[1, 1, 2], [1, 1, 1], [1, 1, 1]], 0.15, r"tau is not symmetric: \[0, 2\]"),
    ],
)
def test_bad_temperatures_are_refused_by_pair(tau, tau_prime, said):
    with pytest.raises(ValueError, match=said):
        muscle_loss(*members(2, 4, 6), tau, tau_prime)


def test_tau_prime_is_not_asked_of_a_single_other():
    """With M = 1 there is no pair of others, hence no gamma."""
    anchor, others = members(1, 4, 6)
    assert muscle_loss(anchor, others, 0.2, 5.0) == muscle_loss(anchor, others, 0.2)
