"""The vision transformers that the project pretrains itself: how one is built."""

from __future__ import annotations

from transformers import ViTConfig, ViTModel


def build(hidden: int, layers: int, heads: int, mlp: int, *, size: int, patch: int) -> ViTModel:
    """The Hugging Face model for ``size`` x ``size`` pictures, freshly initialised from torch's global generator.

    ``fedmuscle_lib.models`` reads its features as the mean of the patch tokens after the last layer norm, of pixels scaled to
    [-1, 1]: there is no pooler, and what pretrains it reads them alike.
    """
    config = ViTConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=mlp,
        image_size=size,
        patch_size=patch,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    return ViTModel(config, add_pooling_layer=False)
