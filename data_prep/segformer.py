"""The SegFormers that the project pretrains itself: how one is built."""

from __future__ import annotations

from transformers import SegformerConfig, SegformerModel

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels in [0, 1]: what SegFormer checkpoints expect


def build(hidden: tuple[int, ...], layers: tuple[int, ...], heads: tuple[int, ...], decoder: int) -> SegformerModel:
    """The Hugging Face encoder, freshly initialised from torch's global generator; ``decoder`` is the width that its config gives a head.

    Its four stages see a picture at a 4th, an 8th, a 16th and a 32nd of its size, as those of the paper's checkpoints do, but shrink
    keys and values less, since the pictures are small.
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
