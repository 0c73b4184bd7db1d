"""States that training never changes, computed once: the pass of a run's samples through everything
before the first adapted layer.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedmuscle_lib.models.base import State, UserModel

# samples that pass at once: fixed, so that a state does not depend on who asks for it first
CHUNK = 64
BUDGET_BYTES = (
    2**30
)  # of a run's states in memory; those beyond it lie in files that the system maps into memory


class Inputs:
    """Samples as they are: what a model without frozen blocks reads.

    Attributes:
        flops: operations of a sample's frozen pass, which reading its state spares.
        nbytes: size of what is kept.
    """

    flops = nbytes = 0

    def __init__(self, inputs: Tensor) -> None:
        self._inputs = inputs

    def __len__(self) -> int:
        return len(self._inputs)

    def take(self, rows: Tensor | slice) -> State | Tensor:
        """Return what the model reads of ``rows``."""
        return self._inputs[rows]

    def bill(self) -> int:
        """The operations that computing the states took, on the first call; 0 afterwards."""
        return 0


class Kept(Inputs):
    """States of samples."""

    def __init__(self, inputs: Tensor, columns: Mapping[str, Tensor], flops: int) -> None:
        super().__init__(inputs)
        self._columns, self.flops = columns, flops
        self.nbytes = sum(column.nbytes for column in columns.values())
        self._unpaid = flops * len(inputs)

    def take(self, rows: Tensor | slice) -> State:
        columns = self._columns.items()
        there = {
            name: column[rows.to(column.device) if isinstance(rows, Tensor) else rows]
            for name, column in columns
        }
        return {name: state.to(self._inputs.device) for name, state in there.items()}

    def bill(self) -> int:
        unpaid, self._unpaid = self._unpaid, 0
        return unpaid


class FrozenStates:
    """The states of one run.

    Users who read the same samples with the same checkpoint share theirs.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple, Kept] = {}
        self._bytes = 0
        self._folder: tempfile.TemporaryDirectory | None = None

    def of(self, model: UserModel, inputs: Tensor) -> Inputs:
        """Return what ``model`` reads of ``inputs``, (n, ...), computed on the first call.

        Without frozen blocks it is the inputs.
        """
        if model.depth == 0 and not model.deep_embeddings:
            return Inputs(inputs)
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
            for name, part in (
                model.frozen(inputs[start : start + CHUNK]) if start else first
            ).items():
                columns[name][start : start + CHUNK] = part
        return Kept(inputs, columns, counter.get_total_flops() // max(1, len(inputs[:CHUNK])))

    def _empty(self, n: int, like: Tensor) -> Tensor:
        """A tensor of ``n`` such rows: in memory within the budget, else in a file."""
        shape = (n, *like.shape[1:])
        size = math.prod(shape) * like.element_size()
        if self._bytes + size <= BUDGET_BYTES:
            self._bytes += size
            return like.new_empty(shape)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="fedmuscle-", ignore_cleanup_errors=True
            )
        path = Path(self._folder.name) / str(len(list(Path(self._folder.name).iterdir())))
        try:
            with path.open("wb") as file:
                if hasattr(os, "posix_fallocate"):  # a full disk would end who writes in a hole
                    os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise OSError(
                f"{path.parent}: no room for {size / 1e9:.1f} GB of frozen states ({error}); TMPDIR"
                " names another disk"
            ) from None
        states = torch.from_file(
            str(path), shared=True, size=math.prod(shape), dtype=like.dtype
        ).view(shape)
        with suppress(
            PermissionError
            # of Windows; elsewhere a file without a name lasts as long as its tensor, and no kill
            # leaves it
        ):
            path.unlink()
        return states
