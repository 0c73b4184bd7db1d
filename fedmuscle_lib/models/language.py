"""Causal language models, for the generation of text."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from fedmuscle_lib.models.base import UserModel
from fedmuscle_lib.models.text import mean_of_tokens, padding
from fedmuscle_lib.tasks import Head


class LanguageModel(UserModel):
    """Reads (b, l) token ids, padded on the right; its outputs are the logits of each next token, (b, l, vocabulary).

    The head is the pretrained one, which GPT-2 shares with its token embeddings, and stays frozen: all that a user trains is in w.
    Features are the mean of the last layer's states over a text's tokens. The paper has no such user; its code's README names one.
    """

    heads, reads = ("language model",), "texts"

    @staticmethod
    def build_head(head: Head, backbone: PreTrainedModel, width: int, hidden: int, n_outputs: int) -> nn.Module:
        if not backbone.config.tie_word_embeddings:
            raise ValueError(f"a {backbone.config.model_type} whose output layer is not its token embeddings is not known")
        return nn.Identity()

    def features(self, inputs: Tensor) -> Tensor:
        return mean_of_tokens(self._states(inputs), self._known(inputs)).to(self.projection.weight.dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        embeddings = self.backbone.get_input_embeddings().weight
        return F.linear(self._states(inputs).to(embeddings.dtype), embeddings)

    def _known(self, inputs: Tensor) -> Tensor:
        return inputs != padding(self.backbone.config)

    def _states(self, inputs: Tensor) -> Tensor:
        """(b, l, width). A token attends to none after it, so padding changes nothing."""
        with self.autocast(inputs):
            return self.backbone(input_ids=inputs, attention_mask=self._known(inputs).long()).last_hidden_state
