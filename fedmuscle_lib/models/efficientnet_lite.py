"""EfficientNet-Lite, a convolutional network: for tasks whose targets belong to a whole picture,
and for semantic segmentation.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.memory_format import convert_conv2d_weight_memory_format
from transformers import EfficientNetConfig, EfficientNetModel, PreTrainedModel, SegformerConfig
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead

from fedmuscle_lib.models.maps import FeatureMaps
from fedmuscle_lib.tasks import Head

STRIDE = 32  # of the last feature map


class EfficientNetLiteConfig(EfficientNetConfig):
    """An EfficientNet's, with explicit lists of channels and repeats: Lite scales neither its stem
    nor its top.
    """

    model_type = "efficientnet_lite"

    @property
    def pyramid(self) -> dict[int, int]:
        """Index of the last block at the strides 4, 8 and 16 -> its channels."""
        strides = accumulate(self.strides, mul, initial=2)  # the stem's is 2
        next(strides)
        last = dict(
            zip(
                strides,
                zip(accumulate(self.num_block_repeats), self.out_channels, strict=True),
                strict=True,
            )
        )
        return {last[stride][0] - 1: last[stride][1] for stride in (4, 8, 16)}


class EfficientNetLiteModel(EfficientNetModel):
    """Pixel values (b, 3, h, w), h and w multiples of 32 -> ``last_hidden_state`` (b, 1280, h/32,
    w/32).

    EfficientNet-Lite (Liu, 2020:
    blog.tensorflow.org/2020/03/higher-accuracy-on-vision-models-with-efficientnet-lite.html) is
    EfficientNet (Tan and Le, 2019) with ReLU6 and without squeeze-and-excitation. transformers does
    not know it: its EfficientNet has layers that these checkpoints lack, and so they have a
    ``model_type`` of their own, which ``AutoModel`` refuses.
    """

    config_class = EfficientNetLiteConfig
    _keys_to_ignore_on_load_missing = [
        "num_batches_tracked"
    ]  # counts batches of a training that goes on; here none does

    def __init__(self, config: EfficientNetLiteConfig) -> None:
        super().__init__(config)
        for block in self.encoder.blocks:
            block.squeeze_excite = nn.Identity()

    def train(self, mode: bool = True) -> EfficientNetLiteModel:
        """Stay in evaluation mode: batch norm keeps the statistics of the pretraining, and no block
        is dropped.
        """
        return super().train(False)


class EfficientNetLite(FeatureMaps):
    """Reads (b, 3, h, w) pixel values from 0 to 255, h and w multiples of 32. The top convolution
    counts as its last block.

    The decoder, for segmentation, is SegFormer's, of linear layers alone, on the last maps at the
    strides 4, 8 and 16 and the top's.
    """

    # of the source that computed the stored runs; raise `version` when a number moves
    origin = "f545722f34ab7e423aa5bbf49a8ec863bfddb039a194a7b7b6fa016c05efb262"
    heads = ("two layers", "linear", "decoder")
    stride = STRIDE
    decoder_width: ClassVar[int] = 256  # of SegFormer-B0 and -B1 (Xie et al., 2021)
    memory_format = torch.channels_last  # faster than the contiguous one

    def __init__(
        self,
        backbone: PreTrainedModel,
        n_outputs: int,
        *,
        head: Head = "two layers",
        **options: Any,
    ) -> None:
        super().__init__(backbone, n_outputs, head=head, **options)
        if head == "decoder":
            self.read = (*backbone.config.pyramid, sum(backbone.config.num_block_repeats))
        convert_conv2d_weight_memory_format(self.backbone, self.memory_format)

    @staticmethod
    def block_names(backbone: PreTrainedModel) -> list[str]:
        return [
            *(f"encoder.blocks.{i}" for i in range(sum(backbone.config.num_block_repeats))),
            "encoder.top_conv",
        ]

    @classmethod
    def first_of_last(cls, backbone: PreTrainedModel) -> int:
        """Index of the first block of the last two stages."""
        return sum(backbone.config.num_block_repeats[:-2])

    def width(self, backbone: PreTrainedModel) -> int:
        return backbone.config.hidden_dim

    @classmethod
    def build_head(
        cls, head: Head, backbone: PreTrainedModel, width: int, hidden: int, n_outputs: int
    ) -> nn.Module:
        if head != "decoder":
            return super().build_head(head, backbone, width, hidden, n_outputs)
        config = SegformerConfig(
            hidden_sizes=[*backbone.config.pyramid.values(), backbone.config.hidden_dim],
            decoder_hidden_size=cls.decoder_width,
            classifier_dropout_prob=0.0,
        )
        config.num_labels = n_outputs
        return SegformerDecodeHead(config)

    def embed(self, inputs: Tensor) -> Tensor:
        height, width = inputs.shape[-2:]
        if height % STRIDE or width % STRIDE:  # the paddings would not be those of the pretraining
            raise ValueError(
                f"an EfficientNet-Lite reads pictures whose sides are multiples of {STRIDE} px, got"
                f" {height} x {width}"
            )
        pixels = scaled(inputs, self.projection.weight.dtype)
        return self.backbone.embeddings(pixels.contiguous(memory_format=self.memory_format))

    def block(self, index: int, hidden: Tensor, mask: Any) -> Tensor:
        encoder = self.backbone.encoder
        if index < len(encoder.blocks):
            return encoder.blocks[index](hidden)
        return encoder.top_activation(encoder.top_bn(encoder.top_conv(hidden)))


def scaled(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Pixel values from 0 to 255 as the checkpoints were trained on them: (x - 127) / 128."""
    return (images.to(dtype) - 127) / 128
