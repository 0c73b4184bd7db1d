"""Classifiers that are never trained: the simplex equiangular tight frame (ETF), and FedLoGe's
static sparse one (SSE-C).

Letters: ``c`` classes, ``d`` dimension of the features. Weights are (c, d), one row a class, as in
``nn.Linear``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

LARGEST_COSINE = 0.99999  # beyond it, the angle has no gradient
EPSILON = 1e-8  # of Adam, torch's default


def simplex_etf(dim: int, classes: int, generator: torch.Generator) -> Tensor:
    """Draw a simplex ETF: (c, d), c unit vectors with a cosine of -1 / (c - 1) between any two of
    them.

    Args:
        dim: d, at least ``classes``: the frame is a rotation of c orthonormal vectors, less their
            mean.
        classes: c, at least 2.
        generator: draws the rotation.

    Raises:
        ValueError: for too few dimensions or classes.

    Source:
        Papyan et al. (2020); FedLoGe, Section 2: the Q-factor of a matrix of uniform numbers.
    """
    if classes < 2 or dim < classes:
        needed = (
            "at least 2 classes, and as many dimensions, are needed: is the network too narrow?"
        )
        raise ValueError(f"a simplex ETF of {classes} classes in {dim} dimensions: {needed}")
    q, _ = torch.linalg.qr(
        torch.rand(dim, classes, generator=generator, dtype=torch.float64)
    )  # (d, c), orthonormal columns
    centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
    return (math.sqrt(classes / (classes - 1)) * q @ centred).T.float()


def sparse_etf(
    dim: int,
    classes: int,
    generator: torch.Generator,
    *,
    sparsity: float = 0.6,
    norm: float = 0.1,
    lr: float = 1e-4,
    steps: int = 10_000,
) -> Tensor:
    """Make SSE-C's weight, (c, d): a simplex ETF with entries set to 0, whose other entries restore
    norms and angles.

    Adam on the surviving entries minimises

        sum over c of (||w_c|| - norm)^2  -  mean over c of the angle between w_c and the row
        nearest to it.

    The gradient is a closed form, so that a step is one product (c, d) x (d, c) and a few passes
    over the weight: 0.2 ms for c = 10 and 1.4 ms for c = 100 with d = 512 on one CPU core, hence 2
    and 14 seconds by default.

    Args:
        dim, classes: d and c, as for :func:`simplex_etf`. generator: draws the simplex ETF and
        which entries are 0. sparsity: share of the c d entries that are 0; exactly its whole part
        is, drawn over the whole matrix. norm: nu, which every row's norm approaches. lr, steps: of
        Adam.

    Raises:
        ValueError: as :func:`simplex_etf`.

    Source:
        FedLoGe, Section 2; sparsity, norm, learning rate and steps are constants of the authors'
        code.
    """
    weight = simplex_etf(dim, classes, generator)
    kept = torch.ones(classes * dim)
    kept[torch.randperm(classes * dim, generator=generator)[: int(sparsity * classes * dim)]] = 0
    kept = kept.view(classes, dim)
    weight *= kept
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)  # Adam's moments
    for step in range(1, steps + 1):
        gradient = _gradient(weight, norm).mul_(kept)
        mean.lerp_(gradient, 0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = (square / (1 - 0.999**step)).sqrt_().add_(EPSILON)
        weight.addcdiv_(mean, scale, value=-lr / (1 - 0.9**step))
    return weight


def _gradient(weight: Tensor, norm: float) -> Tensor:
    """Gradient of :func:`sparse_etf`'s objective, (c, d)."""
    classes = len(weight)
    norms = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
    unit = weight / norms
    cosine, nearest = (unit @ unit.T).fill_diagonal_(-1).max(dim=1)
    # d angle / d cosine = -1 / sqrt(1 - cosine^2), and the objective has a minus and a mean
    pull = (
        (1 - cosine.square())
        .rsqrt_()
        .div_(classes)
        .masked_fill_(cosine.abs() > LARGEST_COSINE, 0)[:, None]
    )
    of_unit = pull * unit[nearest]
    of_unit.index_add_(0, nearest, pull * unit)
    along = (of_unit * unit).sum(1, keepdim=True)
    return (of_unit - along * unit).div_(norms).add_(unit * (2 * (norms - norm)))


def cosines(weight: Tensor) -> Tensor:
    """Return the cosine between any two classes, one for each of the c (c - 1) / 2 pairs, in the
    order of ``torch.triu_indices``.

    All are -1 / (c - 1) in an ETF.

    Args:
        weight: (c, d), rows of any positive norm.
    """
    unit = nn.functional.normalize(weight.cpu().double(), dim=1)
    first, second = torch.triu_indices(len(unit), len(unit), offset=1)
    return (unit @ unit.T)[first, second]


def angles(weight: Tensor) -> Tensor:
    """Return the angles of :func:`cosines` in degrees.

    The authors' logs print the mean over all pairs, in which those above and below the frame's
    angle cancel.
    """
    return cosines(weight).clamp(-1, 1).arccos().rad2deg()


def fixed_classifier(weight: Tensor, bias: bool, generator: torch.Generator) -> nn.Linear:
    """Make a frozen linear classifier, features (b, d) -> logits (b, c).

    Args:
        weight: (c, d).
        bias: whether the bias is ``nn.Linear``'s random one, uniform in +-1 / sqrt(d), or 0. The
            authors' code draws it and leaves it.
        generator: draws the bias.
    """
    classes, dim = weight.shape
    linear = nn.utils.skip_init(nn.Linear, dim, classes)
    drawn = (2 * torch.rand(classes, generator=generator) - 1) / math.sqrt(dim)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(drawn if bias else torch.zeros(classes))
    return linear.requires_grad_(False)
