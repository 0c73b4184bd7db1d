"""What crosses the wire: named tensors, and from a client also how many samples they were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedmuscle_lib.errors import Diverged


class RefusedMessage(ValueError):
    """A client sent something else than the server asked for; the text names the client."""


class NotFinite(RefusedMessage, Diverged):
    """A client sent numbers that are not finite."""


@dataclass(frozen=True, eq=False)
class Message:
    """What the server sends: the method's shared tensors by name, parameters and buffers."""

    tensors: Mapping[str, Tensor]

    @property
    def nbytes(self) -> int:
        """Size on the wire; names are known to both sides."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True, eq=False)
class Update(Message):
    """What a client sends back: the same tensors after its training, and its number of training samples."""

    samples: int

    @property
    def nbytes(self) -> int:
        return super().nbytes + 8  # an integer


def check(client: int, update: Update, expected: Mapping[str, Tensor]) -> None:
    """Refuse an update that can't be averaged.

    Args:
        client: who sent it.
        expected: tensors with the names, shapes and types that are asked for.

    Raises:
        RefusedMessage: naming the client, for missing or unknown names, another shape or type, or no samples.
        NotFinite: naming the client, for numbers that are not finite.
    """
    if update.samples < 1:
        raise RefusedMessage(f"client {client} sent tensors of {update.samples} samples; at least 1 is needed")
    if missing := expected.keys() - update.tensors.keys():
        raise RefusedMessage(f"client {client} sent no {min(missing)!r}")
    if unknown := update.tensors.keys() - expected.keys():
        raise RefusedMessage(f"client {client} sent {min(unknown)!r}, which nobody asked for")
    for name, tensor in update.tensors.items():
        want = expected[name]
        if tensor.shape != want.shape or tensor.dtype != want.dtype:
            got, asked = f"{tensor.dtype} {tuple(tensor.shape)}", f"{want.dtype} {tuple(want.shape)}"
            raise RefusedMessage(f"client {client} sent {name!r} as {got}; {asked} is expected")
        if not torch.isfinite(tensor).all():
            raise NotFinite(f"client {client} sent {name!r} with numbers that are not finite")
