"""Messages of both sides: named tensors, and from a client also how many samples they were trained
on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import NotFinite, RefusedMessage
from fedmuscle_lib.core.tensors import like


@dataclass(frozen=True, eq=False)
class Message:
    """The server's message: the method's shared tensors by name, parameters and buffers."""

    tensors: Mapping[str, Tensor]

    @property
    def nbytes(self) -> int:
        """Size on the wire; names are known to both sides."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True, eq=False)
class Update(Message):
    """A client's answer: the same tensors after its training, and its number of training
    samples.
    """

    samples: int

    @property
    def nbytes(self) -> int:
        return super().nbytes + 8  # an integer


def check(client: int, update: Update, expected: Mapping[str, Tensor]) -> None:
    """Check that an update can be averaged.

    Args:
        client: the sender.
        expected: tensors with the names, shapes and types that were asked for.

    Raises:
        RefusedMessage: naming the client, for no samples, or other names, shapes or types.
        NotFinite: naming the client, for numbers that are not finite.
    """
    if update.samples < 1:
        raise RefusedMessage(f"client {client} sent tensors of {update.samples} samples")
    for name in sorted(update.tensors.keys() | expected.keys()):
        if name not in expected or not like(update.tensors.get(name), expected[name]):
            raise RefusedMessage(f"client {client}: {name!r} is not what it was asked for")
        if not torch.isfinite(update.tensors[name]).all():
            raise NotFinite(f"client {client} sent {name!r} with numbers that are not finite")
