"""Randomness that depends on what it is for, and on nothing that happened before.

Every draw has an address, such as ``(seed, "order", user 3, round 7)``. A resumed run therefore
needs no generator states, and two algorithms with one seed start from the same weights and see the
same samples in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(*address: object) -> int:
    """A 63-bit seed for the address, e.g. ``derived_seed(0, "order", 3, 7)``."""
    digest = hashlib.sha256(repr(address).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*address: object) -> torch.Generator:
    """A CPU generator for the address."""
    return torch.Generator().manual_seed(derived_seed(*address))


def numpy_generator(*address: object) -> np.random.Generator:
    """NumPy's generator for the address."""
    return np.random.default_rng(derived_seed(*address))


@contextmanager
def seeded(*address: object) -> Iterator[None]:
    """Inside, torch's global CPU generator draws by the address; afterwards it is as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(*address))
        yield


def permutation(n: int, *address: object) -> torch.Tensor:
    """The numbers from 0 to n - 1 in an order drawn by the address, (n,)."""
    return torch.randperm(n, generator=generator(*address))


def batches(n: int, size: int, *address: object) -> list[torch.Tensor]:
    """A shuffled pass over ``n`` samples in batches of ``size``, the last one short; a remainder of
    one joins the batch before.

    Contrast needs two samples, and dropping the remainder would lose a third of a data set of fifty
    (Appendix G).
    """
    parts = list(permutation(n, *address).split(size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
