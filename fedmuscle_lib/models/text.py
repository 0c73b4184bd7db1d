"""BERT and its kin, for the classification of texts."""

from __future__ import annotations

from torch import Tensor
from transformers import PretrainedConfig

from fedmuscle_lib.models.base import UserModel


class TextEncoder(UserModel):
    """Reads (b, l) token ids, padded on the right. Features are the mean over a text's own tokens of the last layer's states.

    The paper does not say how texts are pooled; ours is as for pictures.
    """

    reads = "texts"

    def features(self, inputs: Tensor) -> Tensor:
        known = inputs != padding(self.backbone.config)
        with self.autocast(inputs):
            states = self.backbone(input_ids=inputs, attention_mask=known.long()).last_hidden_state  # Shape: (b, l, width)
        return mean_of_tokens(states, known).to(self.projection.weight.dtype)


def padding(config: PretrainedConfig) -> int:
    """The id that fills a batch of texts up; where a model has none, as GPT-2, the one that ends a text."""
    return config.eos_token_id if config.pad_token_id is None else config.pad_token_id


def mean_of_tokens(states: Tensor, known: Tensor) -> Tensor:
    """(b, l, width) -> (b, width), over the tokens of the mask (b, l)."""
    weight = known.unsqueeze(-1).float()
    return (states * weight).sum(1) / weight.sum(1).clamp(min=1)
