"""States that training never changes, computed once: the pass of a run's samples through everything
before the first adapted layer.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from mmap import mmap

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedmuscle_lib.models.base import State, UserModel

# samples that pass at once: fixed, so that a state does not depend on who asks for it first
CHUNK = 64
BUDGET_BYTES = (
    2**30
)  # of a run's states in memory; those beyond it lie in files that the system maps into memory


class Kept:
    """What a model reads of samples: their states, or the samples where no block is frozen.

    Attributes:
        flops: operations of a sample's frozen pass, which reading its state spares.
    """

    def __init__(self, inputs: Tensor, states: Mapping[str, Tensor] = {}, flops: int = 0) -> None:
        self._inputs, self._states, self.flops = inputs, states, flops
        self._unpaid = flops * len(inputs)

    def take(self, rows: Tensor | slice) -> State | Tensor:
        """Return what the model reads of ``rows``."""
        if not self._states:
            return self._inputs[rows]
        return {
            name: state[rows.to(state.device) if isinstance(rows, Tensor) else rows].to(
                self._inputs.device
            )
            for name, state in self._states.items()
        }

    def bill(self) -> int:
        """The operations that computing the states took, on the first call; 0 afterwards."""
        unpaid, self._unpaid = self._unpaid, 0
        return unpaid


class FrozenStates:
    """The states of one run.

    Users who read the same samples with the same checkpoint share theirs.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple, Kept] = {}
        self._bytes = 0

    def of(self, model: UserModel, inputs: Tensor) -> Kept:
        """Return what ``model`` reads of ``inputs``, (n, ...), computed on the first call.

        Without frozen blocks it is the inputs.
        """
        if model.depth == 0 and not model.deep_embeddings:
            return Kept(inputs)
        weights = next(
            model.backbone.parameters()
        )  # frozen, and one object in all models of a checkpoint
        key = (id(weights), id(inputs), model.depth, model.read, model.precision)
        if key not in self._kept:
            self._kept[key] = self._computed(
                model, inputs
            )  # which keeps the inputs, and the model its weights, so ids stay
        return self._kept[key]

    def _computed(self, model: UserModel, inputs: Tensor) -> Kept:
        with FlopCounterMode(display=False) as counter:
            first = model.frozen(inputs[:CHUNK])
        columns = {name: self._empty(len(inputs), part) for name, part in first.items()}
        for start in range(0, len(inputs), CHUNK):
            states = model.frozen(inputs[start : start + CHUNK]) if start else first
            for name, part in states.items():
                columns[name][start : start + CHUNK] = part
        return Kept(inputs, columns, counter.get_total_flops() // max(1, len(inputs[:CHUNK])))

    def _empty(self, n: int, like: Tensor) -> Tensor:
        """A tensor of ``n`` such rows: in memory within the budget, else in a file."""
        shape = (n, *like.shape[1:])
        size = math.prod(shape) * like.element_size()
        if self._bytes + size <= BUDGET_BYTES:
            self._bytes += size
            return like.new_empty(shape)
        with tempfile.TemporaryFile() as file:  # it has no name, so no kill leaves it
            if hasattr(os, "posix_fallocate"):  # a full disk would end who writes in a hole
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            states = torch.frombuffer(mmap(file.fileno(), size), dtype=like.dtype)
        return states.view(shape)
