"""Hybrid vision transformers: a vision transformer on the feature map of a frozen convolutional
network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import ViTConfig, ViTModel
from transformers.models.vit.modeling_vit import ViTEmbeddings

from fedmuscle_lib.models.efficientnet_lite import (
    EfficientNetLiteConfig,
    EfficientNetLiteModel,
    scaled,
)
from fedmuscle_lib.models.vision import VisionTransformer


class HybridViTConfig(ViTConfig):
    """Config of a ViT for pictures of ``image_size`` px. Each patch is one position of the stem's
    map, so ``patch_size`` is its stride.

    ``stem`` holds the numbers of an EfficientNet-Lite's config, of its first stages alone.
    """

    model_type = "hybrid_vit"
    image_size: int = 96
    patch_size: int = 16
    stem: dict[str, Any] | None = None


class Stem(EfficientNetLiteModel):
    """Pixel values (b, 3, h, w) -> (b, channels, h/16, w/16), the map after the last block, in
    evaluation mode.
    """

    def __init__(self, config: EfficientNetLiteConfig) -> None:
        super().__init__(config)
        del self.encoder.top_conv, self.encoder.top_bn

    def forward(self, pixel_values: Tensor, **options: Any) -> Tensor:
        state = self.embeddings(pixel_values)
        for block in self.encoder.blocks:
            state = block(state)
        return state


class HybridEmbeddings(ViTEmbeddings):
    """A ViT's embeddings, [CLS] token and positions, of the places of the stem's map, which is
    standardised by channel.
    """

    mean: Tensor  # Shape: (channels, 1, 1)
    std: Tensor

    def __init__(self, config: HybridViTConfig) -> None:
        stem = EfficientNetLiteConfig(**(config.stem or {}))
        channels, side = stem.out_channels[-1], config.image_size // config.patch_size
        super().__init__(
            ViTConfig(
                **config.to_dict() | {"image_size": side, "patch_size": 1, "num_channels": channels}
            )
        )
        self.stem = Stem(stem)
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))

    def forward(self, pixel_values: Tensor, *_: Any, **options: Any) -> Tensor:
        """Pixel values (b, 3, side, side) -> tokens (b, 1 + places, width); raises ValueError for
        another side.
        """
        return self.tokens(self.stem(pixel_values))

    def tokens(self, maps: Tensor) -> Tensor:
        """The stem's maps (b, channels, h, w) -> tokens (b, 1 + h w, width)."""
        return super().forward((maps - self.mean) / self.std)


class HybridViTModel(ViTModel):
    """Pixel values (b, 3, side, side) -> ``last_hidden_state`` (b, 1 + places, width).

    Dosovitskiy et al. (2021), section 3.1: "As an alternative to raw image patches, the input
    sequence can be formed from feature maps of a CNN", with patches of one place. Here the CNN is
    an EfficientNet-Lite up to stride 16, and frozen. The transformer is transformers' ViT without
    its pooler. ``AutoModel`` refuses the checkpoints: it does not know their ``model_type``.
    """

    config_class = HybridViTConfig
    embeddings: HybridEmbeddings

    def __init__(self, config: HybridViTConfig) -> None:
        super().__init__(config, add_pooling_layer=False)
        self.embeddings = HybridEmbeddings(config)
        self.post_init()


class HybridViT(VisionTransformer):
    """A vision transformer whose pixels are scaled as its stem's, an EfficientNet-Lite's."""

    # of the source that computed the stored runs; raise `version` when a number moves
    origin = "bb39a7bba5cfbf7d2991de6f0f40860ca3de229b8a2911632d972490df68640d"
    deep_embeddings = True
    has_cls = False  # there is a [CLS] token, but distillation trains the mean of the others

    def embed(self, inputs: Tensor) -> Tensor:
        return self.backbone.embeddings(scaled(inputs, self.projection.weight.dtype))
