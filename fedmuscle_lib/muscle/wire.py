"""Three exact replies a server can send a user for one public batch, and what each costs in bytes.

``dense`` is the paper's equation (5): S^n (b^m, d) and alpha^n (b^m). ``factored`` sends the
matrices these are sums and products of. ``gradient`` sends what equation (5) is for: dL/dZ^n at the
Z^n that the user sent up, and the loss. All three give the same update, and ``gradient`` shows no
other user's representations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .loss import (
    contrast,
    given,
    log_alpha,
    log_factors,
    muscle_loss,
    representations,
    without_autocast,
)
from .partition import pairs
from .temperature import Temperature, temperatures

Objective = Callable[[Tensor, Tensor | Sequence[Tensor]], Tensor]  # (anchor, others) -> scalar


@dataclass(frozen=True, eq=False)
class _Reply:
    kind: ClassVar[str]

    @property
    def nbytes(self) -> int:
        """Exact size of the payload: its numbers, without framing."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))


@dataclass(frozen=True, eq=False)
class DenseReply(_Reply):
    """``sums``: s_j (b^m, d); ``log_alpha``: (b^m,); tuples in row-major order."""

    kind = "dense"
    sums: Tensor
    log_alpha: Tensor

    def loss(self, anchor: Tensor) -> Tensor:
        """Equation (5) for ``anchor`` (b, d), the gradient's owner, by a softmax over all b^m
        tuples.
        """
        b = len(anchor)
        with without_autocast(anchor.device):
            logits = anchor.to(self.sums.dtype) @ self.sums.T + self.log_alpha  # (b, b^m)
            step = (len(self.sums) - 1) // (
                b - 1
            )  # from tuple (i, .., i) to (i+1, .., i+1): 1 + b + .. + b^(m-1)
            return cross_entropy(logits, torch.arange(b, device=anchor.device) * step)


@dataclass(frozen=True, eq=False)
class FactoredReply(_Reply):
    """``keys``: z^m_j / tau_{n,m} (m, b, d); ``log_pair``: -gamma z^l_j . z^k_j' (b, m(m-1)/2, b),
    a matrix for each pair of others.
    """

    kind = "factored"
    keys: Tensor
    log_pair: Tensor

    def loss(self, anchor: Tensor) -> Tensor:
        """Equation (5) for ``anchor`` (b, d), the gradient's owner."""
        reach = float(self.log_pair.abs().amax((0, 2)).sum())
        with without_autocast(anchor.device):
            return contrast(anchor.to(self.keys.dtype), self.keys, self.log_pair, reach)


@dataclass(frozen=True, eq=False)
class GradientReply(_Reply):
    """``value``: the loss (); ``gradient``: dL/dZ^n (b, d)."""

    kind = "gradient"
    value: Tensor
    gradient: Tensor

    def loss(self, anchor: Tensor) -> Tensor:
        """The loss as the server computed it; backward hands ``gradient`` to ``anchor`` (b, d),
        which must be the matrix that was sent up.
        """
        return given(anchor, self.value, self.gradient)


def make_reply(
    kind: str,
    anchor: Tensor,
    others: Tensor | Sequence[Tensor],
    tau: Temperature = 0.2,
    tau_prime: Temperature = 0.15,
    names: Sequence[str] | None = None,
) -> DenseReply | FactoredReply | GradientReply:
    """The Muscle loss as a reply to the user who sent ``anchor``.

    Args:
        kind: "dense", "factored" or "gradient". A dense reply has b^m (d + 1) numbers: see
            ``reply_nbytes``.
        anchor: (b, d), what the user sent.
        others, tau, tau_prime, names: as in ``muscle_loss``.

    Raises:
        ValueError: for an unknown kind, and as ``muscle_loss``.
    """
    if kind not in REPLIES:
        raise ValueError(f"unknown reply {kind!r}: one of {', '.join(REPLIES)}")
    if kind == "gradient":
        return gradient_reply(
            lambda z, rest: muscle_loss(z, rest, tau, tau_prime, names=names), anchor, others
        )
    others = representations(anchor, others, names)  # (m, b, d)
    m, _, d = others.shape
    with torch.no_grad(), without_autocast(anchor.device):
        keys, log_pair = log_factors(others, temperatures(tau, tau_prime, m, names))
        if kind == "factored":
            return FactoredReply(keys, log_pair)
        sums = keys[0]
        for key in keys[1:]:
            sums = sums[..., None, :] + key  # (b, .., b, d)
        return DenseReply(sums.reshape(-1, d), log_alpha(others, tau, tau_prime).reshape(-1))


def gradient_reply(
    objective: Objective, anchor: Tensor, others: Tensor | Sequence[Tensor]
) -> GradientReply:
    """Any objective as a reply of its value and its gradient.

    Args:
        objective: (anchor, others) -> scalar, differentiable in the anchor.
        anchor: (b, d), what the user sent.
        others: m matrices (b, d).
    """
    with torch.enable_grad():
        live = anchor.detach().requires_grad_()
        value = objective(live, others)
        (gradient,) = torch.autograd.grad(value, live)
    return GradientReply(value.detach(), gradient)


REPLIES = {reply.kind: reply for reply in (DenseReply, FactoredReply, GradientReply)}


def reply_nbytes(kind: str, b: int, d: int, m: int, itemsize: int = 4) -> int:
    """Size of a reply without making it.

    Example:
        >>> [reply_nbytes(kind, b=32, d=256, m=3) for kind in ("dense", "factored", "gradient")]
        [33685504, 110592, 32772]
    """
    numbers = {
        "dense": b**m * (d + 1),
        "factored": m * b * d + len(pairs(m)) * b * b,
        "gradient": b * d + 1,
    }
    return numbers[kind] * itemsize


def paper_cost_gb(m: int, batch: int = 20) -> float:
    """Table 5's communication cost per round and user, in GiB: Z^n up, S^n and alpha^n down, for
    every batch of 5,000 samples.

    The printed cells come out of representations in 16 bits, alpha as one bit, and batches of 20:
        not of the B = 32 of Section 6.1.
    """
    per_batch = batch * 256 * 2 + batch**m * (256 * 2 + 1 / 8)  # bytes
    return per_batch * (5000 / batch) / 2**30
