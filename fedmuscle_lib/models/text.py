"""BERT and its kin, for the classification of texts."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from fedmuscle_lib.models.base import State, UserModel


class TextEncoder(UserModel):
    """Reads (b, l) token ids, padded on the right. Features are the mean over a text's own tokens
    of the last layer's states, or that of the CLS token, with which every text begins. The paper
    does not say how texts are pooled; ours is as for images.
    """

    reads = "texts"
    has_cls = True
    attention: ClassVar[tuple[str, ...]] = (
        "query",
        "value",
        "q_lin",
        "v_lin",
    )  # BERT's and DistilBERT's

    @staticmethod
    def block_names(backbone: PreTrainedModel) -> list[str]:
        stack = "transformer" if backbone.config.model_type == "distilbert" else "encoder"
        return [f"{stack}.layer.{i}" for i in range(backbone.config.num_hidden_layers)]

    def kept_inputs(self, inputs: Tensor) -> State:
        return {"tokens": inputs}

    def embed(self, inputs: Tensor) -> Tensor:
        return self.backbone.embeddings(input_ids=inputs)

    def mask(self, hidden: Tensor, state: State) -> Any:
        known = self._known(state).long()
        return create_bidirectional_mask(
            config=self.backbone.config, inputs_embeds=hidden, attention_mask=known
        )

    def block(self, index: int, hidden: Tensor, mask: Any) -> Tensor:
        return self._blocks[index](hidden, mask)

    def pooled(self, hidden: Tensor, state: State) -> Tensor:
        if self.pooling == "cls":
            return hidden[:, 0].to(self.projection.weight.dtype)
        return mean_of_tokens(hidden, self._known(state)).to(self.projection.weight.dtype)

    def _known(self, state: State) -> Tensor:
        return state["tokens"] != padding(self.backbone.config)


def padding(config: PretrainedConfig) -> int:
    """The id that fills a batch of texts up; where a model has none, as GPT-2, the one that ends a
    text.
    """
    return config.eos_token_id if config.pad_token_id is None else config.pad_token_id


def mean_of_tokens(states: Tensor, known: Tensor) -> Tensor:
    """(b, l, width) -> (b, width), over the tokens of the mask (b, l)."""
    weight = known.unsqueeze(-1).float()
    return (states * weight).sum(1) / weight.sum(1).clamp(min=1)
