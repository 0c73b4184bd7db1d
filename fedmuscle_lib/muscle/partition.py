"""The Muscle loss's log-partition and marginals, without the paper's B^(M+1) tensor.

For anchor row i the loss needs

    Z_i = sum over (j_1 .. j_M) of alpha(j_1 .. j_M) * prod_m x_m(i, j_m),

which is equation (3)'s denominator, where ``alpha`` is a product of factors of two members each
and does not depend on i. Split the members into a left and a right group:

    Z_i = sum_{left, right} W(i, left) * Q(left, right) * P(i, right)

``W`` and ``P`` hold a group's own unary and pair factors, ``Q`` the factors of the pairs that
cross. Two matrix products, T = P Q^T and U = W Q, then give every marginal: those of the left
members are sums of W * T, those of the right members sums of P * U. ``Q`` has B^M entries and is
made and used in slabs of rows, so memory follows a budget and not B^M.

Letters: ``b`` batch, ``m`` other members; ``l < k`` two of them; ``n`` the length of a slice of the
batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import combinations, product

import torch
from torch import Tensor

MEMORY_BUDGET = 256 * 2**20  # bytes
_CACHE = (
    4 * 2**20
)  # bytes of a slab on a CPU, where one that fits the cache beats one that fills the budget

Unary = Sequence[Tensor]  # m factors (b, b) at [anchor row i, j_m]
Pairs = dict[tuple[int, int], Tensor]  # for l < k, a factor (b, b) at [j_l, j_k]
Block = tuple[slice, ...]  # one range of indices for each member of a group
Times = Callable[..., Tensor]  # torch.mul for factors, torch.add for their logarithms
ALL = slice(None)


@lru_cache(maxsize=64)
def pairs(m: int) -> tuple[tuple[int, int], ...]:
    """The pairs l < k of ``m`` members, in the order in which log-factors of pairs are packed."""
    return tuple(combinations(range(m), 2))


def unpack(packed: Tensor, m: int) -> Pairs:
    """(b, m(m-1)/2, b) -> its (b, b) matrices by pair."""
    return dict(zip(pairs(m), packed.unbind(1), strict=True))


def fits(dtype: torch.dtype, reach: float, b: int, m: int) -> bool:
    """Return whether plain products of factors are exact to rounding in ``dtype``.

    Unary factors are at most 1 after their shift and |log alpha| <= ``reach``, so Z_i >=
    exp(-reach), while what underflow can lose is b^m terms below tiny * exp(reach). The latter must
    stay under the rounding of the former.
    """
    info = torch.finfo(dtype)
    return 2 * reach + m * math.log(b) <= math.log(info.eps) - math.log(info.tiny)


def log_partition(
    unary: Tensor,
    log_pair: Tensor,
    reach: float,
    budget: int = MEMORY_BUDGET,
    *,
    with_marginals: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """log Z_i and the marginals p_m(j | i) of the Gibbs distribution that the log-factors define.

    Args:
        unary: (b, m, b), z_i . z^m_j / tau_{n,m} at [i, m, j].
        log_pair: (b, m(m-1)/2, b), -gamma_{l,k} z^l_j . z^k_j' at [j, pair (l, k), j'], pairs in
            the order of ``pairs(m)``.
        reach: a bound of |log alpha|; it decides between products of factors and sums of their
            logarithms.
        budget: bytes of working memory. A slab of one row is the least there is, whatever the
            budget.
        with_marginals: whether to compute them; the value alone costs half.

    Returns:
        log Z (b,) and the marginals (b, m, b), or None in their place; float64 on the CPU where
        products are not exact in the factors' own precision.
    """
    b, m, _ = unary.shape
    if fits(unary.dtype, reach, b, m):
        return _by_products(unary, log_pair, budget, with_marginals)
    solve = _by_products if fits(torch.float64, reach, b, m) else _in_log_space
    return solve(doubled(unary), doubled(log_pair), budget, with_marginals)


def doubled(x: Tensor) -> Tensor:
    """Return ``x`` in float64: on the CPU, because not every device has it, unless it is so."""
    return x if x.dtype == torch.float64 else x.cpu().double()


def _by_products(
    unary: Tensor, log_pair: Tensor, budget: int, with_marginals: bool
) -> tuple[Tensor, Tensor | None]:
    top = unary.amax(-1, keepdim=True)  # (b, m, 1)
    weights = (unary - top).exp_()  # (b, m, b)
    if weights.shape[1] > 1:  # one other member needs no more than this: equation (1) is a softmax
        weights = _contract(
            weights, log_pair.exp(), budget, with_marginals
        )  # (b, m, b), or (b, 1, 1)
    total = weights.sum(-1, keepdim=True)  # (b, m, 1), Z_i once for every member
    log_z = total[:, 0, 0].log().add_(top.sum((1, 2)))  # (b,)
    return log_z, weights.div_(total) if with_marginals else None


def _contract(unary: Tensor, pair: Tensor, budget: int, with_marginals: bool) -> Tensor:
    """Unnormalised marginals (b, m, b) from unary and pair factors; without them, Z itself as (b,
    1, 1).
    """
    b, m, _ = unary.shape
    left, rows = _plan(b, m, unary.element_size(), budget, unary.device.type)
    group, rest = range(left), range(left, m)
    x, a = unary.unbind(1), unpack(pair, m)
    p = joint(x, a, rest).view(b, -1)  # (b, b^right)
    cross = [
        _row_products([a[l, k] for k in rest], torch.mul) for l in group
    ]  # left x (b, b^right)
    slab = p.new_empty(rows, p.shape[1]) if rows < b**left else None
    z, u, margins = p.new_zeros(b), None, unary.new_zeros(unary.shape)
    for block in _blocks(b, left, rows):
        q = _tuple_products(cross, block, torch.mul, slab)  # (rows, b^right)
        w = joint(x, a, group, block)  # (b, n_1, .., n_left)
        f = (p @ q.T).view_as(w).mul_(w)
        if with_marginals:
            u = (
                w.flatten(1) @ q if u is None else torch.addmm(u, w.flatten(1), q, out=u)
            )  # (b, b^right)
            _add_margins(margins, group, f, block)
        else:
            z += f.flatten(1).sum(1)
    if u is None:
        return z[:, None, None]
    _add_margins(margins, rest, u.mul_(p).view((b,) * (1 + len(rest))), (ALL,) * len(rest))
    return margins


def _in_log_space(
    unary: Tensor, log_pair: Tensor, budget: int, with_marginals: bool
) -> tuple[Tensor, Tensor | None]:
    """The same sums past float64's range: every tuple's log-weight, in slabs, once for log Z and
    once for the marginals.
    """
    b, m, _ = unary.shape
    rows = max(1, budget // (3 * b * b * unary.element_size()))
    group, last = range(m - 1), m - 1
    x, a = unary.unbind(1), unpack(log_pair, m)
    cross = [a[l, last] for l in group]

    def slabs() -> Iterator[tuple[Block, Tensor, Tensor]]:
        for block in _blocks(b, m - 1, rows):
            w = joint(x, a, group, block, torch.add)  # (b, n_1, .., n_left)
            q = _tuple_products(cross, block, torch.add)  # (rows, b)
            yield block, w, (w.flatten(1)[:, :, None] + q).add_(x[last][:, None])  # (b, rows, b)

    log_z = unary.new_full((b,), -math.inf)
    for _, _, scores in slabs():
        log_z = torch.logaddexp(log_z, scores.logsumexp((1, 2)))
    if not with_marginals:
        return log_z, None
    margins = unary.new_zeros(unary.shape)
    for block, w, scores in slabs():
        f = scores.sub_(log_z[:, None, None]).exp_()  # (b, rows, b)
        _add_margins(margins, group, f.sum(2).view_as(w), block)
        _add_margins(margins, [last], f.sum(1), (ALL,))
    return log_z, margins.div_(margins.sum(-1, keepdim=True))


def joint(
    x: Unary | None,
    a: Pairs,
    group: Sequence[int],
    block: Block | None = None,
    times: Times = torch.mul,
) -> Tensor:
    """A group's joint weight: the product of its unary and pair factors, for every tuple in a block
    of its indices.

    Args:
        x: unary factors, or None to leave the anchor out of a group of two or more.
        a: pair factors.
        group: the members, ascending.
        block: a slice for each of them; all of their indices if None.
        times: ``torch.mul`` for factors, ``torch.add`` for log-factors.

    Returns:
        (b, n_1, .., n_k), or (n_1, .., n_k) without the anchor.
    """
    block = block or (ALL,) * len(group)
    links = []
    for later in range(1, len(group)):
        for earlier in range(later):
            factor = a[group[earlier], group[later]][block[earlier], block[later]]
            shape = [1] * len(group)
            shape[earlier], shape[later] = factor.shape
            links.append(factor.view(shape))
    if x is None:
        return reduce(times, links)
    own = [x[member][:, indices] for member, indices in zip(group, block, strict=True)]
    rows = _row_products(own, times).view(-1, *(one.shape[1] for one in own))  # (b, n_1, .., n_k)
    return times(rows, reduce(times, links), out=rows) if links else rows


def _row_products(factors: list[Tensor], times: Times) -> Tensor:
    """Row by row, the outer product of (b, n) factors: (b, n_1 * .. * n_k)."""
    rows = factors[0]
    for factor in factors[1:]:
        rows = times(rows[:, :, None], factor[:, None, :]).flatten(1)
    return rows


def _tuple_products(
    factors: list[Tensor], block: Block, times: Times, out: Tensor | None = None
) -> Tensor:
    """The rows of Q: for every tuple in a block, the product of its indices' rows (b, c) -> (n_1 *
    .. * n_k, c); at last into ``out``.
    """
    rows = factors[0][block[0]]
    for step in range(1, len(factors)):
        factor = factors[step][block[step]]
        shape = (len(rows), *factor.shape)
        space = (
            out[: shape[0] * shape[1]].view(shape)
            if out is not None and step == len(factors) - 1
            else None
        )
        rows = times(rows[:, None], factor, out=space).flatten(0, 1)
    return rows


def _add_margins(margins: Tensor, group: Sequence[int], f: Tensor, block: Block) -> None:
    """Adds to each of the group's margins, of (b, m, b), the sum of ``f`` (b, n_1, .., n_k) over
    the other members' indices.
    """
    axes = range(1, f.ndim)
    for member, axis, indices in zip(group, axes, block, strict=True):
        others = [other for other in axes if other != axis]
        margins[:, member, indices] += f.sum(others) if others else f


def _blocks(b: int, k: int, rows: int) -> Iterator[Block]:
    """Cuts the tuples of ``k`` indices into blocks of at most ``rows``: one index on leading axes,
    a range on the next, all on the rest.
    """
    axis = next(a for a in range(k) if a == k - 1 or b ** (k - 1 - a) <= rows)
    width = max(1, rows // b ** (k - 1 - axis))
    for prefix in product(range(b), repeat=axis):
        single = tuple(slice(j, j + 1) for j in prefix)
        for start in range(0, b, width):
            cut = ALL if width >= b else slice(start, start + width)
            yield *single, cut, *(ALL,) * (k - 1 - axis)


@lru_cache(maxsize=256)
def _plan(b: int, m: int, itemsize: int, budget: int, device_type: str) -> tuple[int, int]:
    """Return how many members go left, and how many rows of Q a slab holds.

    Halves make everything but Q small; a larger left group needs less memory for what stays while
    slabs come and go.
    """
    for right in range(m // 2, 0, -1):
        resident = (m - right + 3) * b ** (
            right + 1
        )  # cross factors, P, U and a product of the two
        row = b**right + 3 * b  # a row of Q; W, T and a product of the two
        rows = (budget // itemsize - resident) // row
        if rows >= b or right == 1:
            break
    if device_type == "cpu":
        rows = min(rows, _CACHE // itemsize // row)
    return m - right, min(max(1, rows), b ** (m - right))
