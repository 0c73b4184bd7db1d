"""Temperatures of the Muscle loss, one for each pair of members, and what equation (22) says about
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch

from .partition import pairs

Temperature = float | torch.Tensor | Sequence[Sequence[float]]
Table = Sequence[Sequence[float]]  # a matrix over (anchor, others...)
Number = TypeVar("Number", float, torch.Tensor)


def member_name(index: int, names: Sequence[str] | None = None) -> str:
    """Return what errors call a member: its name if the caller gave one (``names``, anchor first),
    else its place in the call.
    """
    place = "anchor" if index == 0 else f"others[{index - 1}]"
    return place if names is None else f"{place} ({names[index]})"


@dataclass(frozen=True)
class Temperatures:
    """Temperatures as the loss uses them.

    Attributes:
        inverse: 1 / tau_{n,m}, one for each of the m other members.
        gamma: 1 / tau'_{l,k} - 1 / tau_{l,k}, one for each pair of other members, in the order of
            ``pairs(m)``.
    """

    inverse: tuple[float, ...]
    gamma: tuple[float, ...]

    @property
    def reach(self) -> float:
        """The bound of |log alpha| that unit vectors allow."""
        return sum(self.gamma)


def temperatures(
    tau: Temperature, tau_prime: Temperature, m: int, names: Sequence[str] | None = None
) -> Temperatures:
    """Reads tau = tau^(M+1) and tau' = tau^(M) of equation (3) for an anchor and ``m`` others.

    Args:
        tau: a number, or a symmetric (m+1, m+1) matrix over (anchor, others...); its diagonal is
            not used.
        tau_prime: the same; its entries between the anchor and the others are not used.
        m: how many others there are.
        names: names of the anchor and the others for errors.

    Raises:
        ValueError: neither a number nor such a matrix, a temperature that is not positive, or a
            pair of others with tau' > tau (gamma < 0, which equation (22) excludes: see Remark 1).
    """
    members = [member_name(index, names) for index in range(m + 1)]
    high, low = _table("tau", tau, members), _table("tau_prime", tau_prime, members)
    others = [(l + 1, k + 1) for l, k in pairs(m)]
    _check_order(high, low, others, members)
    return Temperatures(
        tuple(1 / high[0][k] for k in range(1, m + 1)),
        tuple(1 / low[l][k] - 1 / high[l][k] for l, k in others),
    )


def check_temperatures(
    tau: Temperature, tau_prime: Temperature, names: Sequence[str], ordered: bool = True
) -> None:
    """Check temperatures between all members of a federation, each of whom is an anchor to others.

    Args:
        tau, tau_prime: a number, or a symmetric matrix over the members.
        names: of the members, for errors.
        ordered: whether tau' <= tau is asked for, as :func:`temperatures` does.

    Raises:
        ValueError: as :func:`temperatures`.
    """
    high, low = _table("tau", tau, names), _table("tau_prime", tau_prime, names)
    if ordered:
        _check_order(high, low, pairs(len(names)), names)


def lower_order_temperature(tau: Number) -> Number:
    """tau^(N-1) from a common tau^(N) by equation (22): 1/tau^(N-1) = 1/tau^(N) + 1/tau^(N)^2.

    The paper tunes tau' = 0.15 beside tau = 0.2 freely; the equation's own value there is 1/30.

    Example:
        >>> round(1 / lower_order_temperature(0.2), 9)
        30.0
    """
    return tau * tau / (1 + tau)


def _table(what: str, value: Temperature, members: Sequence[str]) -> Table:
    """A temperature for each two members, (n, n)."""
    n, matrix = len(members), None
    if isinstance(value, int | float):
        table = [[float(value)] * n] * n
    else:
        with suppress(TypeError, ValueError, RuntimeError):  # what torch says is no matrix
            matrix = torch.as_tensor(value, dtype=torch.float64)
        if matrix is None or matrix.shape not in ((), (n, n)):
            found = repr(value) if matrix is None else f"one of shape {tuple(matrix.shape)}"
            raise ValueError(
                f"{what}: a number or a ({n}, {n}) matrix over the members is needed, got {found}"
            )
        table = matrix.expand(n, n).tolist()
    for l, k in pairs(n):
        if not table[l][k] > 0:
            raise ValueError(
                f"{what} = {table[l][k]} for {members[l]}, {members[k]}: must be positive"
            )
        if table[l][k] != table[k][l]:
            raise ValueError(
                f"{what} is not symmetric: [{l}, {k}] = {table[l][k]}, [{k}, {l}] = {table[k][l]}"
            )
    return table


def _check_order(
    high: Table, low: Table, of: Sequence[tuple[int, int]], members: Sequence[str]
) -> None:
    for l, k in of:
        if low[l][k] > high[l][k]:
            gamma = 1 / low[l][k] - 1 / high[l][k]
            raise ValueError(
                f"tau_prime = {low[l][k]} exceeds tau = {high[l][k]} for {members[l]},"
                f" {members[k]}: gamma = {gamma:.4g} < 0; raise tau, or lower tau_prime"
            )
