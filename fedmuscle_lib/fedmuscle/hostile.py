"""Users who send something else than their representations, so that what honest users lose by them
can be measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.fedmuscle.augmentation import View
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.fedmuscle.messages import Reply
from fedmuscle_lib.fedmuscle.settings import Lie
from fedmuscle_lib.models import State

USED = 0.99  # of a representation's variance: the directions that hold it are those that it uses


def sent_in_place(z: Tensor, rows: Tensor, lie: Lie, *address: object) -> Tensor:
    """What a user with that ``lie`` sends in place of its representations z, (b, d), of the public
    samples ``rows``.
    """
    match lie:
        case "passive":
            return z
        case "constant":
            return normalize(torch.ones_like(z), dim=1)
        case "random":
            vectors = [
                torch.randn(z.shape[1], generator=generator("lie", *address, row))
                for row in rows.tolist()
            ]
            return normalize(torch.stack(vectors).to(z), dim=1)
        case "negated":
            return -z
    return z[torch.randperm(len(z), generator=generator("lie", *address, *rows.tolist()))]


class Hostile(Client):
    """A user who trains alone and sends something else in every round, unless "passive". Before the
    first all but "knowing" are honest.

    passive: its own, a control. constant: one vector for all samples. shuffled: those of the
        batch's other samples. random: a vector of its
    own for each sample, the same in every round, so that it can be learnt. negated: its own, turned
        around. knowing: as shuffled, and
    before the first round its own and as much noise in directions that it does not use. It still
    predicts others, who can't predict it as well as before, which deceives ``Directed``.
    """

    def __init__(self, *args: Any, lie: Lie, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lie = lie

    def represent(self, rows: Tensor, view: View | None = None) -> Tensor:
        return sent_in_place(super().represent(rows, view), rows, self._lie, *self.address)

    def align(self, reply: Reply) -> float:
        """Learn nothing; returns 0."""
        return 0.0

    def over_public(
        self,
        call: Callable[[State | Tensor], Tensor],
        rows: Tensor | None = None,
        view: View | None = None,
    ) -> Tensor:
        found = super().over_public(call, rows, view)
        if self._lie != "knowing" or call != self.model.represent:
            return found
        _, sizes, directions = torch.linalg.svd(found - found.mean(0), full_matrices=False)
        used = directions[
            : int((sizes.square().cumsum(0) < USED * sizes.square().sum()).sum()) + 1
        ]  # (k, d)
        noise = torch.randn(found.shape, generator=generator("lie", *self.address)).to(found)
        return normalize(found + normalize(noise - noise @ used.T @ used, dim=1), dim=1)
