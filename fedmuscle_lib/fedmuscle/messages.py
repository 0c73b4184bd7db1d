"""Messages between users and server, as values.

A message holds no model, client or server, so it can travel: a client behind a network computes
what a client in this process does. What only one algorithm exchanges is in its file. Letters: ``b``
batch, ``d`` dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Address of a public batch: communication round, CL epoch and position, all from 0, and its
    size.

    As text it counts from 1, as tables and lines of progress do.
    """

    round: int
    epoch: int
    position: int
    size: int

    def __str__(self) -> str:
        return f"round {self.round + 1}, CL epoch {self.epoch + 1}, batch {self.position + 1}"


@dataclass(frozen=True)
class LabelSpace:
    """A user's task, by name, and the ids of its classes in the order of its outputs.

    Users with equal label spaces can exchange predictions.
    """

    task: str
    classes: tuple[int, ...]


class Reply(Protocol):
    """Aligns a client by a loss of the representations (b, d) that it last computed."""

    def loss(self, anchor: Tensor) -> Tensor: ...


class CountedReply(Reply, Protocol):
    """A reply that the server sends, with its size in bytes (see ``fedmuscle_lib.muscle.wire``)."""

    @property
    def nbytes(self) -> int: ...
