"""Builds the SegFormers that the project pretrains itself."""

from __future__ import annotations

import torch
from torch import Tensor
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
