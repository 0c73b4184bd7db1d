"""Causal language models, for the generation of text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.masking_utils import create_causal_mask

from fedmuscle_lib.models.base import State
from fedmuscle_lib.models.text import TextEncoder
from fedmuscle_lib.tasks import Head


class LanguageModel(TextEncoder):
    """Reads (b, l) token ids, padded on the right; its outputs are the logits of each next token,
    (b, l, vocabulary).

    The head is the pretrained one, which GPT-2 shares with its token embeddings, and stays frozen:
    all that a user trains is in w. Features are the mean of the last layer's states over a text's
    tokens. The paper has no such user; its code's README names one.
    """

    heads = ("language model",)
    has_cls = False  # the first of its tokens has seen no other
    attention = ("c_attn",)  # queries, keys and values in one

    @staticmethod
    def block_names(backbone: PreTrainedModel) -> list[str]:
        return [f"h.{i}" for i in range(backbone.config.num_hidden_layers)]

    @staticmethod
    def build_head(
        head: Head, backbone: PreTrainedModel, width: int, hidden: int, n_outputs: int
    ) -> nn.Module:
        return nn.Identity()

    def embed(self, inputs: Tensor) -> Tensor:
        return self.backbone.wte(inputs) + self.backbone.wpe(self._positions(inputs))

    def mask(self, hidden: Tensor, state: State) -> Any:
        """A token attends to none after it, so padding changes nothing."""
        known = self._known(state).long()
        options: dict[str, Any] = {"past_key_values": None, "position_ids": self._positions(hidden)}
        return create_causal_mask(
            config=self.backbone.config, inputs_embeds=hidden, attention_mask=known, **options
        )

    def block(self, index: int, hidden: Tensor, mask: Any) -> Tensor:
        return self._blocks[index](hidden, None, mask)

    def finish(self, hidden: Tensor) -> Tensor:
        return self.backbone.ln_f(hidden)

    def forward(self, inputs: Tensor | State) -> Tensor:
        hidden = self._rest(self._state(inputs))[-1]
        with self.autocast(hidden):
            hidden = self.finish(hidden)
        embeddings = self.backbone.get_input_embeddings().weight
        return F.linear(hidden.to(embeddings.dtype), embeddings)

    @staticmethod
    def _positions(inputs: Tensor) -> Tensor:
        """(1, l) for (b, l) or (b, l, width)."""
        return torch.arange(inputs.shape[1], device=inputs.device).unsqueeze(0)
