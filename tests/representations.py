"""Representations to compute losses of, and their gradients."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize


def vectors(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random vectors, not normalised."""
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def members(
    m: int, b: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """An anchor (b, d) and its others (m, b, d), unit rows."""
    z = normalize(vectors(m + 1, b, d, seed=seed), dim=-1).to(dtype)
    return z[0], z[1:]


def value_and_gradient(loss, raw: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
    """Of ``loss(normalize(raw), ...)``, with respect to ``raw``."""
    raw = raw.detach().clone().requires_grad_()
    value = loss(normalize(raw, dim=-1), *args, **kwargs)
    return value.detach(), torch.autograd.grad(value, raw)[0]
