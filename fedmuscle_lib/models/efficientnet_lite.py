"""EfficientNet-Lite, a convolutional network: for tasks whose targets belong to a whole picture, and for semantic segmentation."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import EfficientNetConfig, EfficientNetModel, PreTrainedModel, SegformerConfig
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead

from fedmuscle_lib.models.base import Stages, UserModel, depths
from fedmuscle_lib.tasks import Head

STRIDE = 32  # of the last feature map


class EfficientNetLiteConfig(EfficientNetConfig):
    """An EfficientNet's, with explicit lists of channels and repeats: Lite scales neither its stem nor its top."""

    model_type = "efficientnet_lite"

    @property
    def pyramid(self) -> dict[int, int]:
        """Index of the last block at the strides 4, 8 and 16 -> its channels."""
        strides = accumulate(self.strides, mul, initial=2)  # the stem's is 2
        next(strides)
        last = dict(zip(strides, zip(accumulate(self.num_block_repeats), self.out_channels, strict=True), strict=True))
        return {last[stride][0] - 1: last[stride][1] for stride in (4, 8, 16)}


class EfficientNetLiteModel(EfficientNetModel):
    """Pixel values (b, 3, h, w), h and w multiples of 32 -> ``last_hidden_state`` (b, 1280, h/32, w/32).

    EfficientNet-Lite (Liu, 2020: blog.tensorflow.org/2020/03/higher-accuracy-on-vision-models-with-efficientnet-lite.html) is
    EfficientNet (Tan and Le, 2019) with ReLU6 and without squeeze-and-excitation. transformers does not know it: its EfficientNet has
    layers that these checkpoints lack, and so they have a ``model_type`` of their own, which ``AutoModel`` refuses.
    """

    config_class = EfficientNetLiteConfig
    _keys_to_ignore_on_load_missing = ["num_batches_tracked"]  # counts batches of a training that goes on; here none does

    def __init__(self, config: EfficientNetLiteConfig) -> None:
        super().__init__(config)
        for block in self.encoder.blocks:
            block.squeeze_excite = nn.Identity()

    def forward(self, pixel_values: Tensor, **options: Any) -> Any:
        """Raises ValueError where a side is no multiple of 32: the paddings would not be those of the pretraining."""
        if any(side % STRIDE for side in pixel_values.shape[-2:]):
            height, width = pixel_values.shape[-2:]
            raise ValueError(f"an EfficientNet-Lite reads pictures whose sides are multiples of {STRIDE} px, got {height} x {width}")
        return super().forward(pixel_values=pixel_values, **options)

    def train(self, mode: bool = True) -> EfficientNetLiteModel:
        """Stay in evaluation mode: batch norm keeps the statistics of the pretraining, and no block is dropped."""
        return super().train(False)


class EfficientNetLite(UserModel):
    """Reads (b, 3, h, w) pixel values from 0 to 255, h and w multiples of 32. Features are the mean over all positions of the last map.

    With a decoder its outputs are (b, classes, h/4, w/4). The decoder is SegFormer's, of linear layers alone, on the last maps at the
    strides 4, 8 and 16 and the one that the features are the mean of. With ``pooled_stages="all"`` the features are the means of all four.
    """

    heads = ("two layers", "linear", "decoder")
    stride = STRIDE
    decoder_width: ClassVar[int] = 256  # of SegFormer-B0 and -B1 (Xie et al., 2021)

    def __init__(
        self, backbone: PreTrainedModel, n_outputs: int, *, head: Head = "two layers", pooled_stages: Stages = "last", **options: Any
    ) -> None:
        super().__init__(backbone, n_outputs, head=head, pooled_stages=pooled_stages if head == "decoder" else "last", **options)

    def width(self, backbone: PreTrainedModel) -> int:
        return sum(_widths(backbone)) if self.pooled_stages == "all" else backbone.config.hidden_dim

    @classmethod
    def build_head(cls, head: Head, backbone: PreTrainedModel, width: int, hidden: int, n_outputs: int) -> nn.Module:
        if head != "decoder":
            return super().build_head(head, backbone, width, hidden, n_outputs)
        config = SegformerConfig(hidden_sizes=_widths(backbone), decoder_hidden_size=cls.decoder_width, classifier_dropout_prob=0.0)
        config.num_labels = n_outputs
        return SegformerDecodeHead(config)

    def features(self, inputs: Tensor) -> Tensor:
        if self.pooled_stages == "all":
            return torch.cat([self._pooled(stage) for stage in self._stages(inputs)], 1)
        return self._pooled(self._backbone(inputs).last_hidden_state)

    def forward(self, inputs: Tensor) -> Tensor:
        if not isinstance(self.head, SegformerDecodeHead):
            return super().forward(inputs)
        return self.head([stage.to(self.projection.weight.dtype) for stage in self._stages(inputs)])

    def forward_with_levels(self, inputs: Tensor, levels: int = 4) -> tuple[Tensor, list[Tensor]]:
        """The head's outputs, and features from shallow to deep: after each ``levels``-th part of the blocks, then the projection.

        Each is (b, its width), a mean over positions. The deepest is the top convolution's, which counts as a block.
        """
        if isinstance(self.head, SegformerDecodeHead):
            return super().forward_with_levels(inputs, levels)
        found = self._backbone(inputs, output_hidden_states=True)
        states = [*found.hidden_states, found.last_hidden_state]  # before the first block, after each, and after the top
        shallow = [self._pooled(states[block]) for block in depths(len(states) - 1, levels)]
        return self.outputs(shallow[-1]), [*shallow, self.projection(shallow[-1])]

    def _stages(self, images: Tensor) -> list[Tensor]:
        """Four feature maps, (b, width, h/4, w/4) down to (b, 1280, h/32, w/32)."""
        found = self._backbone(images, output_hidden_states=True)
        return [*(found.hidden_states[1 + block] for block in self.backbone.config.pyramid), found.last_hidden_state]

    def _backbone(self, images: Tensor, **options: bool) -> Any:
        """What transformers returns: ``last_hidden_state`` and, if asked for, ``hidden_states``, before the first block and after each."""
        pixels = scaled(images, self.projection.weight.dtype)
        with self.autocast(images):
            return self.backbone(pixel_values=pixels, **options)

    def _pooled(self, state: Tensor) -> Tensor:
        """(b, width, h, w) -> (b, width)."""
        return state.mean((2, 3), dtype=self.projection.weight.dtype)


def scaled(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Pixel values from 0 to 255 as the checkpoints were trained on them: (x - 127) / 128."""
    return (images.to(dtype) - 127) / 128


def _widths(backbone: PreTrainedModel) -> list[int]:
    """Channels of the four feature maps."""
    return [*backbone.config.pyramid.values(), backbone.config.hidden_dim]
