"""Messages of both sides: named tensors, and from a client also how many samples they were trained
on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import NotFinite, RefusedMessage
from fedmuscle_lib.core.tensors import own_copy, plain

# By the last part of its name: a tensor that batch norm counts or takes a root of. Below 0 it would
# spoil everybody's predictions.
_NOT_NEGATIVE = {"running_var", "num_batches_tracked"}
# By its whole name: the shares of a client's classes, by which the ratio loss divides. Other
# numbers would spoil other clients' losses.
_SHARES = "proportions.classes"
_ROUNDING = 1e-3  # of the sum of shares


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


def accepted(client: int, update: object, expected: Mapping[str, Tensor]) -> Update:
    """Return a copy of an update that can be averaged.

    Args:
        client: who sent it.
        expected: tensors with the names, shapes, types and devices that are asked for.

    Raises:
        RefusedMessage: naming the client, for no update, missing or unknown names, another shape,
            type, layout or device, a negative variance, shares of classes that are none, or a
            number of samples that is none.
        NotFinite: naming the client, for numbers that are not finite.
    """
    if type(update) is not Update or not isinstance(update.tensors, Mapping):
        raise RefusedMessage(
            f"client {client} sent a {type(update).__name__}; an update of named tensors is"
            " expected"
        )
    sent, samples = dict(update.tensors), update.samples
    if type(samples) is not int or samples.bit_length() > 63:
        raise RefusedMessage(
            f"client {client} sent tensors of a number of samples that is no integer of 8 bytes"
        )
    if samples < 1:
        raise RefusedMessage(
            f"client {client} sent tensors of {samples} samples; at least 1 is needed"
        )
    if missing := expected.keys() - sent.keys():
        raise RefusedMessage(f"client {client} sent no {min(missing)!r}")
    if unknown := sent.keys() - expected.keys():
        raise RefusedMessage(
            f"client {client} sent {min(map(repr, unknown))}, which nobody asked for"
        )
    return Update(
        {
            name: _accepted(f"client {client}", name, sent[name], want)
            for name, want in expected.items()
        },
        samples,
    )


def _accepted(sender: str, name: str, value: object, want: Tensor) -> Tensor:
    tensor = plain(sender, repr(name), value, want.device)
    if tensor.shape != want.shape or tensor.dtype != want.dtype:
        got, asked = f"{tensor.dtype} {tuple(tensor.shape)}", f"{want.dtype} {tuple(want.shape)}"
        raise RefusedMessage(f"{sender} sent {name!r} as {got}; {asked} is expected")
    copy = own_copy(tensor)
    if not torch.isfinite(copy).all():
        raise NotFinite(f"{sender} sent {name!r} with numbers that are not finite")
    if name.rpartition(".")[2] in _NOT_NEGATIVE and (copy < 0).any():
        raise RefusedMessage(f"{sender} sent {name!r} with numbers below 0")
    if name == _SHARES:
        low, high, total = float(copy.min()), float(copy.max()), float(copy.double().sum())
        if not (low >= 0 and high <= 1 and abs(total - 1) <= _ROUNDING):
            raise RefusedMessage(
                f"{sender} sent {name!r} from {low:g} to {high:g} with the sum {total:g}; shares,"
                " whose sum is 1, are expected"
            )
    return copy
