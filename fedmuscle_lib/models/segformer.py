"""SegFormer (Xie et al., 2021), for semantic segmentation."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead

from fedmuscle_lib.models.maps import FeatureMaps
from fedmuscle_lib.tasks import Head

# of ImageNet, which the checkpoints were trained on
_MEAN, _STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


class SegFormer(FeatureMaps):
    """Reads (b, 3, h, w) pixel values from 0 to 255; its outputs are (b, classes, h/4, w/4). Its
    four stages are its blocks.

    The head is the MLP decoder on the encoder's four stages (Appendix H). The paper does not say
    what the representation model is; its Appendix R names the place where representations are taken
    as a limitation. Ours is the encoder: it is what LoRA adapts and what stands before the head, as
    for every other user. Features are the mean over all positions of its last stage, the most
    abstract, so that what is aligned says what is in an image and leaves where it is to the
    shallower stages that the decoder reads too.
    """

    heads = ("decoder",)
    attention = ("q_proj", "v_proj")
    read = (0, 1, 2, 3)

    @staticmethod
    def block_names(backbone: PreTrainedModel) -> list[str]:
        return [f"stages.{i}" for i in range(backbone.config.num_encoder_blocks)]

    def width(self, backbone: PreTrainedModel) -> int:
        return backbone.config.hidden_sizes[-1]

    @staticmethod
    def build_head(
        head: Head, backbone: PreTrainedModel, width: int, hidden: int, n_outputs: int
    ) -> nn.Module:
        config = copy.deepcopy(backbone.config)
        config.num_labels, config.classifier_dropout_prob = (
            n_outputs,
            0.0,
        )  # no dropout, as for every other head
        return SegformerDecodeHead(config)

    def embed(self, inputs: Tensor) -> Tensor:
        mean, std = (values.to(inputs.device).view(3, 1, 1) for values in (_MEAN, _STD))
        return (inputs.to(self.projection.weight.dtype) / 255 - mean) / std
