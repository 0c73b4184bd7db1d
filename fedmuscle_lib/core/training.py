"""A party's training: its floating-point operations, and the weights and optimisers that it goes on
from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.core.tensors import like

Loss = Callable[[], Tensor]  # of a batch that was read, computed within a step
State = dict[str, Any]  # what a checkpoint holds: tensors and plain containers


@dataclass
class FlopMeter:
    """Floating-point operations by torch's counter, measured once a kind and shape of step and
    multiplied from then on.

    It counts matrix products and convolutions, and on a CPU not those inside fused attention (3 to
    4 % of mini's models).

    Attributes:
        total: operations of training as written, in which every call passes through the whole
            backbone.
        done: operations that ran; frozen states are computed once
            (``fedmuscle_lib.models.frozen``).
        per_step: operations of a step by its key.
    """

    total: int = 0
    done: int = 0
    per_step: dict[tuple, int] = field(default_factory=dict)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing of what is done inside, such as an evaluation."""
        before = self.total, self.done
        yield
        self.total, self.done = before

    def run(self, key: tuple, step: Loss) -> Tensor:
        if key in self.per_step:
            result = step()
        else:
            with FlopCounterMode(display=False) as counter:
                result = step()
            self.per_step[key] = counter.get_total_flops()
        self.total += self.per_step[key]
        self.done += self.per_step[key]
        return result


def put_weights(
    party: str, model: nn.Module, ours: Mapping[str, Tensor], given: Mapping[str, Tensor]
) -> None:
    """Copy tensors into a model.

    Args:
        ours: those of the model that may be replaced, by name; the names of others, such as weights
            that several models share, are refused.
        given: what replaces them, all of them.

    Raises:
        ValueError: naming the party and the tensor; a name, shape or type is not the model's.
    """
    for name in [*ours, *given]:
        if name not in ours or name not in given or not like(given[name], ours[name]):
            raise ValueError(f"{party}: {name!r} is not of this model")
    model.load_state_dict(given, strict=False)


def check_finite(party: str, tensors: Mapping[str, Tensor], when: str = "") -> None:
    """Raises ``Diverged`` if training left a weight that is not finite, as the last step can whose
    own loss was finite.
    """
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise Diverged(
                f"{party}: {name!r} is not finite after training{when}; is lr or an option too"
                " large?"
            )
