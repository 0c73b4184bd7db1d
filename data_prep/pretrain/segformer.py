"""Builds the SegFormers that the project pretrains itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from transformers import SegformerConfig, SegformerModel

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels in [0, 1]: what SegFormer checkpoints expect


def normalised(images: Tensor) -> Tensor:
    """Normalise pixels (b, 3, h, w) in [0, 1] as the encoder expects them."""
    mean, std = (torch.tensor(values, device=images.device).view(3, 1, 1) for values in (MEAN, STD))
    return (images - mean) / std


def build(hidden: tuple[int, ...], layers: tuple[int, ...], heads: tuple[int, ...], decoder: int) -> SegformerModel:
    """Return the Hugging Face encoder, freshly initialised from torch's global generator; its config gives a head the width ``decoder``.

    Its four stages see an image at a 4th, an 8th, a 16th and a 32nd of its size, as in the paper's checkpoints, but shrink keys and
    values less, since the images are small.
    """
    config = SegformerConfig(
        hidden_sizes=list(hidden),
        depths=list(layers),
        num_attention_heads=list(heads),
        decoder_hidden_size=decoder,
        sr_ratios=[4, 2, 1, 1],
        mlp_ratios=[2, 2, 2, 2],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
    )
    return SegformerModel(config)


@torch.no_grad()
def redraw_convolutions(backbone: SegformerModel) -> None:
    """Redraw the convolutions from N(0, 2 / fan-out), as Xie et al.'s code does.

    Hugging Face draws every weight from N(0, 0.02^2), since its SegFormers are not trained from scratch: a depthwise 3x3 convolution
    then passes hardly any signal.
    """
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
            module.weight.normal_(0, math.sqrt(2 / fan_out))
