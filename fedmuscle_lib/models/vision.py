"""Vision transformers, for tasks whose targets belong to a whole image."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedmuscle_lib.models.base import UserModel, depths


class VisionTransformer(UserModel):
    """Reads (b, 3, h, w) pixel values from 0 to 255. Features are the mean of the patch tokens after the last layer norm.

    Pixels are scaled to [-1, 1], which is what the ViT checkpoints of the paper expect too.
    """

    def features(self, inputs: Tensor) -> Tensor:
        return self._pooled(self._backbone(inputs).last_hidden_state)

    def forward_with_levels(self, inputs: Tensor, levels: int = 4) -> tuple[Tensor, list[Tensor]]:
        """The head's outputs, and features from shallow to deep: after each ``levels``-th part of the blocks, then the projection.

        Each is (b, its width), the mean of the patch tokens there; a backbone with fewer blocks than levels has fewer of them.
        """
        found = self._backbone(inputs, output_hidden_states=True)
        states = found.hidden_states  # before the first block, and after each
        features = self._pooled(found.last_hidden_state)
        shallow = [self._pooled(states[block]) for block in depths(len(states) - 1, levels)]
        return self.outputs(features), [*shallow, self.projection(features)]

    def _backbone(self, images: Tensor, **options: bool) -> Any:
        """What transformers returns: ``last_hidden_state`` and, if asked for, ``hidden_states``."""
        pixels = images.to(self.projection.weight.dtype) / 127.5 - 1
        with self.autocast(images):
            return self.backbone(pixel_values=pixels, **options)

    def _pooled(self, tokens: Tensor) -> Tensor:
        """(b, 1 + patches, width) -> (b, width)."""
        return tokens[:, 1:].mean(1, dtype=self.projection.weight.dtype)
