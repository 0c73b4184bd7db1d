"""What every user's model consists of, whatever its modality."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import ClassVar, Literal

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from fedmuscle_lib.data import Modality
from fedmuscle_lib.tasks import Head
from fedmuscle_lib.versions import Versioned

Stages = Literal["last", "all"]


class UserModel(Versioned, nn.Module, ABC):
    """Representation model and head of one user (Section 3, Appendix H).

    Args:
        backbone: a Hugging Face model, frozen; LoRA matrices are added to it.
        n_outputs: width of the head's output.
        head: the task's kind of head (Appendix H).
        head_on: "features" (the head reads the pooled features, the projection serves the alignment) or "representation".
        proj_dim: d of the paper.
        pooled_stages: which stages the features are pooled from, if the backbone has several, as a SegFormer has.
        precision: of the backbone's matrix products, by autocast; projection, head and every loss stay in float32.

    Attributes:
        heads: the kinds of head that the architecture can carry.
        reads: the modality of its inputs.
        stride: sides of the pictures that it reads are the multiples of this; None where the checkpoint's config fixes the side.
        version: of what this class computes (see ``fedmuscle_lib.versions``).

    Raises:
        ValueError: the architecture can't carry the head.
    """

    heads: ClassVar[tuple[Head, ...]] = ("two layers", "linear")
    reads: ClassVar[Modality] = "pictures"
    stride: ClassVar[int | None] = None

    def __init__(
        self,
        backbone: PreTrainedModel,
        n_outputs: int,
        *,
        head: Head = "two layers",
        proj_dim: int,
        rank: int,
        lora_alpha: int,
        lora_targets: tuple[str, ...],
        head_hidden: int,
        head_on: Literal["features", "representation"],
        pooled_stages: Stages = "last",
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        super().__init__()
        if head not in self.heads:
            raise ValueError(f"a {backbone.config.model_type} can't carry a head of the kind {head!r}")
        self.head_on, self.pooled_stages, self.precision = head_on, pooled_stages, precision
        width = self.width(backbone)
        adapters = LoraConfig(r=rank, lora_alpha=lora_alpha, target_modules=list(lora_targets), lora_dropout=0.0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")  # between peft and transformers
            warnings.filterwarnings("ignore", "fan_in_fan_out is set to False")  # peft sets what GPT-2's transposed layers need
            self.backbone = get_peft_model(backbone, adapters)
        self.projection = nn.Linear(width, proj_dim)
        self.head = self.build_head(head, backbone, width if head_on == "features" else proj_dim, head_hidden, n_outputs)

    def train(self, mode: bool = True) -> UserModel:
        """Set training mode for the head alone. The backbone stays in evaluation mode, without dropout: the paper states none."""
        super().train(mode)
        self.backbone.eval()
        return self

    def width(self, backbone: PreTrainedModel) -> int:
        """Width of the pooled features."""
        return backbone.config.hidden_size

    @staticmethod
    def build_head(head: Head, backbone: PreTrainedModel, width: int, hidden: int, n_outputs: int) -> nn.Module:
        """phi, freshly initialised from torch's global generator: "two linear layers with a ReLU in between", or one."""
        if head == "linear":
            return nn.Linear(width, n_outputs)
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, n_outputs))

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """A batch of what the model reads -> (b, width), pooled."""

    def represent(self, inputs: Tensor) -> Tensor:
        """The rows of Z^n: (b, d), unit norm."""
        return F.normalize(self.projection(self.features(inputs)), dim=-1)

    def forward(self, inputs: Tensor) -> Tensor:
        """The head's outputs for the user's task."""
        return self.outputs(self.features(inputs))

    def outputs(self, features: Tensor) -> Tensor:
        """The head's outputs from pooled features, (b, n_outputs)."""
        return self.head(features if self.head_on == "features" else self.projection(features))

    def forward_with_levels(self, inputs: Tensor, levels: int = 4) -> tuple[Tensor, list[Tensor]]:
        """The head's outputs, and features from shallow to deep.

        Raises:
            ValueError: the architecture has no levels that would be comparable.
        """
        raise ValueError(f"a {type(self).__name__} has no levels of features to contrast")

    def autocast(self, inputs: Tensor) -> AbstractContextManager:
        """The context in which the backbone runs."""
        return torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def representation_parameters(self) -> list[nn.Parameter]:
        """The trainable part of w: LoRA and projection."""
        return [p for p in self.backbone.parameters() if p.requires_grad] + list(self.projection.parameters())

    def trainable_state(self) -> dict[str, Tensor]:
        """What training changes, by name: trainable weights and the head's buffers. The frozen backbone is left out."""
        state = {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}
        return state | {f"head.{name}": b for name, b in self.head.named_buffers()}


def depths(blocks: int, levels: int) -> list[int]:
    """The blocks, counted from 1, that end each ``levels``-th part of them; fewer than ``levels`` where there are fewer blocks."""
    return sorted({math.ceil(blocks * part / levels) for part in range(1, levels + 1)})
