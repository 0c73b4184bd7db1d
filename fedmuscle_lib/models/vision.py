"""Vision transformers, for tasks whose targets belong to a whole image."""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel

from fedmuscle_lib.models.base import State, UserModel


class VisionTransformer(UserModel):
    """Reads (b, 3, h, w) pixel values from 0 to 255. Features are the mean of the patch tokens
    after the last layer norm, or the CLS token there. Pixels are scaled to [-1, 1], which is what
    the ViT checkpoints of the paper expect too.
    """

    attention = ("q_proj", "v_proj")
    has_cls = True

    @staticmethod
    def block_names(backbone: PreTrainedModel) -> list[str]:
        return [f"layers.{i}" for i in range(backbone.config.num_hidden_layers)]

    def embed(self, inputs: Tensor) -> Tensor:
        return self.backbone.embeddings(inputs.to(self.projection.weight.dtype) / 127.5 - 1)

    def finish(self, hidden: Tensor) -> Tensor:
        return self.backbone.layernorm(hidden)

    def pooled(self, hidden: Tensor, state: State) -> Tensor:
        """(b, 1 + patches, width) -> (b, width)."""
        tokens = hidden[:, :1] if self.pooling == "cls" else hidden[:, 1:]
        return tokens.mean(1, dtype=self.projection.weight.dtype)
