"""Builds the vision transformers that the project pretrains itself."""

from __future__ import annotations

from transformers import ViTConfig, ViTModel


def build(hidden: int, layers: int, heads: int, mlp: int, *, size: int, patch: int) -> ViTModel:
    """Return the Hugging Face model for ``size`` x ``size`` pixels, freshly initialised from torch's global generator.

    Its features are the mean of the patch tokens after the last layer norm, for pixels scaled to [-1, 1], in pretraining and in
    ``fedmuscle_lib.models`` alike; there is no pooler.
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
        attn_implementation="sdpa",  # type: ignore[call-arg]  # one of PretrainedConfig's **kwargs, which the stubs lack
    )
    return ViTModel(config, add_pooling_layer=False)
