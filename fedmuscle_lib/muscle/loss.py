"""The Muscle loss, equation (3), with its gradient in closed form.

For row i of the anchor n, with m over the other members and j = (j_1 .. j_M) over all tuples of
samples, one for each of them:

                      alpha(i .. i) exp( sum_m  z^n_i . z^m_i / tau_{n,m} )
    L(i)  =  -log  ---------------------------------------------------------------
                    sum_j  alpha(j) exp( sum_m  z^n_i . z^m_{j_m} / tau_{n,m} )

    alpha(j)  =  exp( - sum_{l < k}  gamma_{l,k}  z^l_{j_l} . z^k_{j_k} )

    gamma_{l,k}  =  1 / tau'_{l,k}  -  1 / tau_{l,k}

and the loss is the mean of L(i) over the batch. tau is the paper's tau^(N) and tau' its tau^(N-1);
its sum over ordered pairs with a factor 1/2 is the sum over pairs l < k here. ``muscle_loss_loop``
in ``reference.py`` is this equation in 20 lines, term by term; what follows gives the same value
and gradient without the B^(M+1) terms.

Letters: ``b`` batch, ``d`` dimension, ``m`` other members (the paper's M, which does not count the
anchor).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from .original import loss_given_alpha
from .partition import MEMORY_BUDGET, doubled, fits, joint, log_partition, unpack
from .temperature import Temperature, Temperatures, member_name, temperatures
from .temperature_gradient import coefficients, learnt, slopes

# Normalising in bfloat16 rounds the norm and the quotients by 2^-9 each; float16 and float32 stay
# far below.
NORM_TOLERANCE = 1e-2
SLOW = 10.0  # seconds
_TERMS_A_SECOND = 2e10  # of equation (3)'s sum, on one core


def muscle_loss(
    anchor: Tensor | list[Tensor],
    others: Tensor | Sequence[Tensor],
    tau: Temperature = 0.2,
    tau_prime: Any = 0.15,
    *,
    names: Sequence[str] | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    """Mean over the batch of equation (3); with ``m = 1`` it is InfoNCE, equation (1).

    The anchor gets a gradient, and temperatures that are tensors with ``requires_grad``. The others
    are other users' representations, constants here whatever their ``requires_grad``.
    Differentiable once, backward: second derivatives and forward mode are refused.
    ``torch.func.grad`` takes it; ``torch.func.vmap`` does not, because the inputs' values are
    checked.

    The original README's call, ``muscle_loss([anchor, *others], alpha, tau, device)`` with
    ``compute_alpha``'s table, gives the same through tensors of b^(m+1) entries (``original.py``).

    Args:
        anchor: (b, d), rows of unit norm: the user's own representations of b public samples.
        others: (m, b, d), or m tensors (b, d), rows of unit norm: other users' representations of
            the same samples.
        tau: tau^(M+1) of equation (3): a positive number, or a symmetric (m+1, m+1) matrix over
            (anchor, others...).
        tau_prime: tau^(M), at most tau for every pair of others: a number or a matrix likewise
            (the README's call has a device here).
        names: m+1 names, the anchor's first, by which errors call the members.
        memory_budget: bytes of working memory; sums over more tuples than fit are streamed.

    Returns:
        A scalar, in float32 for half-precision inputs and in the inputs' precision otherwise.

    Raises:
        ValueError: naming the member at fault and the value: values that are not finite; rows whose
            norm is off 1 by more than ``NORM_TOLERANCE`` (which admits rows normalised in
            bfloat16); a member whose b or d differs from the anchor's; the anchor among the others;
            b < 2; m < 1, or others that are no tensor and no list; a temperature that is neither a
            number nor a matrix, or not positive; tau' > tau for a pair of others.
        TypeError: naming the member: it is no floating-point tensor.
        RuntimeError: a second derivative, or one in forward mode.

    Cost:
        Some b^(m+1) multiply-adds, where the dense equation takes d times as many: milliseconds at
        the paper's m = 3 and b = 32, half a minute of a core at m = 5 and b = 96. Draw M of the
        others, as the paper does. A call of more than about ``SLOW`` seconds of a core warns.

    Source:
        Equation (3); for the weighting coefficients Appendix A, equations (13)-(15).

    Example:
        >>> from torch.nn.functional import normalize
        >>> anchor = normalize(torch.randn(8, 16), dim=-1).requires_grad_()
        >>> others = normalize(torch.randn(3, 8, 16), dim=-1)
        >>> muscle_loss(anchor, others).backward()
        >>> anchor.grad.shape
        torch.Size([8, 16])
    """
    if isinstance(anchor, list):
        return loss_given_alpha(anchor, others, tau)
    _refuse_forward_mode(anchor, tau, tau_prime)
    members = others
    others = representations(anchor, members, names)  # (m, b, d)
    if any(_same_rows(anchor, member) for member in members):
        raise ValueError(
            "the anchor is among the others: pass the other members alone, and a clone() of one"
            " that has the anchor's values"
        )
    m, b, _ = others.shape
    if (seconds := b ** (m + 1) / _TERMS_A_SECOND) > SLOW and anchor.device.type == "cpu":
        warnings.warn(
            f"m = {m} others and b = {b} take about {seconds:.0f} s of a core: the time grows with"
            " b^(m+1), so draw fewer others or use smaller batches",
            stacklevel=2,
        )
    heats = temperatures(tau, tau_prime, m, names)
    work = others if fits(others.dtype, heats.reach, b, m) else doubled(others)
    with without_autocast(anchor.device):
        keys, log_pair = log_factors(work, heats)
        loss = contrast(anchor.to(work), keys, log_pair, heats.reach, memory_budget).to(others)
        if learnt(tau, tau_prime):
            found = slopes(
                anchor.detach().to(work),
                work,
                keys,
                log_pair,
                heats.reach,
                int(memory_budget),
            )
            for coefficient, slope in zip(coefficients(tau, tau_prime, work), found, strict=True):
                loss = loss + given(coefficient, loss.new_zeros(()), slope)
        return loss


def representations(
    anchor: Tensor, others: Tensor | Sequence[Tensor], names: Sequence[str] | None = None
) -> Tensor:
    """The others as one detached (m, b, d) tensor in the loss's precision, at least float32.

    Raises:
        ValueError, TypeError: as ``muscle_loss``, for the representations.
    """
    if not isinstance(others, Tensor | list | tuple) or len(others) < 1:
        raise ValueError(
            "others: a tensor (m, b, d) or a list of m >= 1 tensors (b, d) is needed, got"
            f" {type(others).__name__}"
        )
    members = [anchor, *others]
    if names is not None and (isinstance(names, str) or len(names) != len(members)):
        raise ValueError(f"names: {names!r} does not name an anchor and {len(others)} others")
    for index, member in enumerate(members):
        if not isinstance(member, Tensor) or not member.is_floating_point():
            raise TypeError(
                f"{member_name(index, names)}: a floating-point tensor (b, d) is needed, got"
                f" {getattr(member, 'dtype', type(member).__name__)}"
            )
        if member.ndim != 2 or len(member) < 2 or member.shape != anchor.shape:
            raise ValueError(
                f"{member_name(index, names)} has shape {tuple(member.shape)}, the anchor"
                f" {tuple(anchor.shape)}: each is (b, d), with b >= 2 samples"
            )
    stacked = torch.stack([other.detach() for other in members[1:]])
    dtype = torch.promote_types(torch.promote_types(anchor.dtype, stacked.dtype), torch.float32)
    stacked = stacked.to(dtype)
    norms = torch.linalg.vector_norm(torch.cat([anchor.detach().to(dtype)[None], stacked]), dim=-1)
    off = ~((norms - 1).abs() <= NORM_TOLERANCE)  # (m+1, b); true also where a value is nan or inf
    if off.any():
        index, row = off.nonzero()[0].tolist()
        raise ValueError(
            f"{member_name(index, names)}, row {row} has norm {norms[index, row]:.6g}: finite rows"
            f" of norm 1 +- {NORM_TOLERANCE} are needed, as"
            " torch.nn.functional.normalize(z, dim=-1) gives them"
        )
    return stacked


def log_alpha(
    others: Tensor | Sequence[Tensor], tau: Temperature = 0.2, tau_prime: Temperature = 0.15
) -> Tensor:
    """Logarithms of equation (3)'s weighting coefficients, one for each tuple: (b,) * m. To look
    at, for small b^m.

    Args:
        others: (m, b, d) or m tensors (b, d).
        tau, tau_prime: as in ``muscle_loss``.
    """
    others = representations(others[0], others)
    m, b, _ = others.shape
    if m == 1:
        return others.new_zeros(b)
    _, log_pair = log_factors(others, temperatures(tau, tau_prime, m))
    return joint(None, unpack(log_pair, m), range(m), times=torch.add)


def log_factors(others: Tensor, heats: Temperatures) -> tuple[Tensor, Tensor]:
    """Return what the loss needs of the others: ``keys`` z^m_j / tau_{n,m} (m, b, d) and
    ``log_pair`` (b, m(m-1)/2, b).

    ``log_pair[j, p, j']`` is -gamma z^l_j . z^k_j' for the p-th pair (l, k) of ``pairs(m)``, so
    that log alpha is a sum over p.
    """
    m, b, d = others.shape
    keys = others * _scale(heats.inverse, others, (m, 1, 1))
    if m == 1:
        return keys, others.new_empty(b, 0, b)
    similarities = [
        others[l] @ others[l + 1 :].reshape(-1, d).T for l in range(m - 1)
    ]  # (b, (m-1-l) b)
    log_pair = torch.cat(similarities, dim=1).view(b, -1, b)  # (b, m(m-1)/2, b)
    return keys, log_pair.mul_(_scale([-gamma for gamma in heats.gamma], others, (-1, 1)))


def _scale(values: Sequence[float], like: Tensor, shape: tuple[int, ...]) -> float | Tensor:
    """A common value stays a number, which spares a tensor on the usual path."""
    return values[0] if len(set(values)) == 1 else like.new_tensor(values).view(shape)


def contrast(
    anchor: Tensor, keys: Tensor, log_pair: Tensor, reach: float, memory_budget: int = MEMORY_BUDGET
) -> Tensor:
    """Equation (5), the loss from what the server knows without the anchor.

    Value and gradient come in one pass: the gradient is a difference of expectations and needs no
    graph through the sum.

    Args:
        anchor: (b, d); the only input that gets a gradient.
        keys: (m, b, d) and log_pair: (b, m(m-1)/2, b), as ``log_factors`` returns them.
        reach: a bound of |log alpha|.
        memory_budget: bytes of working memory.
    """
    wanted = torch.is_grad_enabled() and anchor.requires_grad
    m, b, d = keys.shape
    with torch.no_grad():
        flat = keys.reshape(m * b, d)
        unary = (anchor.detach() @ flat.T).view(b, m, b)  # log x_m(i, j)
        log_z, p = log_partition(
            unary, log_pair, reach, int(memory_budget), with_marginals=wanted
        )  # (b,), (b, m, b)
        positive = unary.diagonal(dim1=0, dim2=2).sum() + log_pair.diagonal(dim1=0, dim2=2).sum()
        value = ((log_z.sum() - positive.to(log_z)) / b).to(anchor)
        if p is None:
            return value
        # dL/dz_i = (1/b) sum_m (E_{p_m(.|i)}[z^m_j] - z^m_i) / tau_{n,m}
        p.diagonal(dim1=0, dim2=2).sub_(1)
        gradient = (p.view(b, m * b).to(flat) @ flat).div_(b)
    return given(anchor, value, gradient)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Mixed precision would round the logits to half precision, whatever the inputs' own."""
    return (
        torch.autocast(device.type, enabled=False)
        if torch.is_autocast_enabled(device.type)
        else nullcontext()
    )


def given(variable: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """``value``, whose derivative in ``variable`` is ``gradient``; differentiating that in turn is
    an error and not a silent zero.
    """
    return _Given.apply(variable, value, gradient)


_ONCE = (
    "the loss is differentiable once, backward: its gradient is a closed form that autograd does"
    " not see into"
)


class _Given(torch.autograd.Function):
    @staticmethod
    def forward(variable: Tensor, value: Tensor, gradient: Tensor | None) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        variable, _, gradient = inputs
        ctx.save_for_backward(variable, gradient)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        variable, gradient = ctx.saved_tensors
        if gradient is None:
            raise RuntimeError(_ONCE)
        gradient = gradient.to(variable)
        if torch.is_grad_enabled():  # it may be differentiated in turn
            gradient = _Given.apply(variable, gradient, None)
        return gradient * grad.to(gradient), None, None


def _same_rows(one: Tensor, other: Tensor) -> bool:
    """Return whether two members are one tensor, or views of the same rows of one."""
    first, second = (member._base if member._is_view() else member for member in (one, other))
    return first is second and one.storage_offset() == other.storage_offset()


def _refuse_forward_mode(*inputs: Any) -> None:
    """Raise RuntimeError for an input with a tangent, which the closed form would drop."""
    if any(isinstance(one, Tensor) and unpack_dual(one).tangent is not None for one in inputs):
        raise RuntimeError(_ONCE)
