"""Temperatures of the Muscle loss, one for each pair of members, and what equation (22) says about
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import torch

from .partition import pairs

Temperature = float | torch.Tensor | Sequence[Sequence[float]]
Table = tuple[tuple[float, ...], ...]  # a matrix over (anchor, others...)
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
        tau_prime: the same; only its entries between two others are used.
        m: how many others there are.
        names: names of the anchor and the others for errors.

    Raises:
        ValueError: for a matrix of another shape or not symmetric, a temperature that is not
            positive, or a pair with tau' > tau (gamma < 0, which equation (22) excludes: see Remark
            1).
    """
    names = None if names is None else tuple(names)
    return _read(_hashable(tau), _hashable(tau_prime), m, names)


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
    high, low = (
        _table("tau", _hashable(tau), len(names)),
        _table("tau_prime", _hashable(tau_prime), len(names)),
    )
    for l, k in pairs(len(names)):
        _pair(high, low, l, k, names, ordered)


def lower_order_temperature(tau: Number) -> Number:
    """tau^(N-1) from a common tau^(N) by equation (22): 1/tau^(N-1) = 1/tau^(N) + 1/tau^(N)^2.

    The paper tunes tau' = 0.15 beside tau = 0.2 freely; the equation's own value there is 1/30.

    Example:
        >>> round(1 / lower_order_temperature(0.2), 9)
        30.0
    """
    return tau * tau / (1 + tau)


def _hashable(value: Temperature) -> float | Table:
    if isinstance(value, torch.Tensor) or hasattr(value, "tolist"):  # the latter has numpy's
        if len(shape := tuple(getattr(value, "shape", ()))) not in (0, 2):
            raise ValueError(
                f"a temperature has shape {shape}: a number, shape (), or a matrix over the members"
                " is needed"
            )
        value = value.tolist()
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return tuple(tuple(float(entry) for entry in row) for row in value)
    except (TypeError, ValueError):
        raise TypeError(
            f"a temperature is {value!r}: a number or a matrix over the members is needed"
        ) from None


@lru_cache(maxsize=256)
def _read(
    tau: float | Table, tau_prime: float | Table, m: int, names: tuple[str, ...] | None
) -> Temperatures:
    tau, tau_prime = _table("tau", tau, m + 1), _table("tau_prime", tau_prime, m + 1)
    members = [member_name(index, names) for index in range(m + 1)]
    inverse = [1 / _positive("tau", tau, 0, other, members) for other in range(1, m + 1)]
    ends = [_pair(tau, tau_prime, l + 1, k + 1, members) for l, k in pairs(m)]
    return Temperatures(tuple(inverse), tuple(1 / low - 1 / high for high, low in ends))


def _pair(
    tau: Table, tau_prime: Table, l: int, k: int, names: Sequence[str], ordered: bool = True
) -> tuple[float, float]:
    high, low = _positive("tau", tau, l, k, names), _positive("tau_prime", tau_prime, l, k, names)
    if ordered and low > high:
        gamma = 1 / low - 1 / high
        raise ValueError(
            f"tau_prime = {low} exceeds tau = {high} for {names[l]}, {names[k]}: gamma ="
            f" {gamma:.4g} < 0; raise tau, or lower tau_prime"
        )
    return high, low


def _table(what: str, value: float | Table, n: int) -> Table:
    if isinstance(value, float):
        return ((value,) * n,) * n
    if len(value) != n or any(len(row) != n for row in value):
        raise ValueError(
            f"{what}: a matrix over {n} members is ({n}, {n}), this one has rows"
            f" {[len(row) for row in value]}"
        )
    for l, k in pairs(n):
        if value[l][k] != value[k][l]:
            raise ValueError(
                f"{what} is not symmetric: [{l}, {k}] = {value[l][k]}, [{k}, {l}] = {value[k][l]}"
            )
    return value


def _positive(what: str, table: Table, l: int, k: int, names: Sequence[str]) -> float:
    if not table[l][k] > 0:
        raise ValueError(f"{what} = {table[l][k]} for {names[l]}, {names[k]}: must be positive")
    return table[l][k]
