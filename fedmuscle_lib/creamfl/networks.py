"""Networks of one modality, inputs -> unit vectors (b, d): from scratch, or a checkpoint whose last
blocks LoRA adapts.

Those from scratch are transformers' classes and torch's GRU, with random weights: the paper has
"All models are trained from scratch" (Appendix M). A name is one of :data:`SCRATCH`, with "+pie"
for the authors' pooling, or that of a checkpoint.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import BertConfig, BertModel, ResNetConfig, ResNetModel

from fedmuscle_lib.data.encodings import Modality, Pixels, Tokens
from fedmuscle_lib.models import (
    architecture_of,
    checkpoint_folder,
    load_backbone,
    load_tokenizer,
)
from fedmuscle_lib.models.text import mean_of_tokens

PIE = "+pie"
RANK = 16  # of LoRA, and its alpha; the project's own


class Encoder(nn.Module):
    """Inputs -> states (b, p, width) of p positions, and which of these are known, (b, p).

    Attributes:
        reads: the modality.
        stride: of images' sides, as a ``UserModel``'s: any can be read.
        width: of the states.
    """

    reads: ClassVar[Modality]
    stride = 1
    width: int


class ResNet(Encoder):
    """Of pixel values (b, 3, h, w) from 0 to 255."""

    reads = "images"

    def __init__(self, widths: list[int], depths: list[int], layer: str, stem: int) -> None:
        super().__init__()
        self.net = ResNetModel(
            ResNetConfig(embedding_size=stem, hidden_sizes=widths, depths=depths, layer_type=layer)
        )
        self.width = widths[-1]

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        states = self.net(inputs.float() / 127.5 - 1).last_hidden_state.flatten(2).mT
        return states, states.new_ones(states.shape[:2])


class GRU(Encoder):
    """Of token ids (b, l), padded on the right by 0; both directions."""

    reads = "texts"

    def __init__(self, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.net = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)
        self.width = 2 * hidden

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        known = inputs != 0
        packed = pack_padded_sequence(
            self.embedding(inputs), known.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.net(packed)[0], True, total_length=inputs.shape[1])
        return states, known


class BERT(Encoder):
    """Of token ids (b, l), padded on the right by 0; its states are that of the CLS token alone."""

    reads = "texts"

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        # without dropout, as in UserModel
        config = BertConfig(
            vocab_size=vocabulary, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
        self.net, self.width = BertModel(config, add_pooling_layer=False), config.hidden_size

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        states = self.net(inputs, attention_mask=(inputs != 0).long()).last_hidden_state[:, :1]
        return states, states.new_ones(states.shape[:2])


class Pooled(nn.Module):
    """An encoder, the mean of its states projected to d and, with ``pie``, self-attention over
    them.

    Has what ``models.UserModel`` has that a party asks for; nothing of it is frozen.

    Source:
        The authors' code, PIE: LayerNorm(mean's projection + sigmoid(linear(states by one head of
        attention))).
    """

    depth, deep_embeddings = 0, False

    def __init__(self, encoder: Encoder, dim: int, pie: bool) -> None:
        super().__init__()
        self.encoder, self.projection = encoder, nn.Linear(encoder.width, dim)
        self.pie, width = nn.ModuleDict(), encoder.width
        if pie:
            self.pie["score"] = nn.Sequential(
                nn.Linear(width, width // 2), nn.Tanh(), nn.Linear(width // 2, 1)
            )
            self.pie["local"], self.pie["norm"] = nn.Linear(width, dim), nn.LayerNorm(dim)

    def represent(self, inputs: Tensor) -> Tensor:
        """(b, d), unit norm."""
        states, known = self.encoder(inputs)
        z = self.projection(mean_of_tokens(states, known))
        if self.pie:
            scores = self.pie["score"](states)[..., 0].masked_fill(known == 0, -torch.inf)
            attended = (scores.softmax(1)[..., None] * states).sum(1)
            z = self.pie["norm"](z + self.pie["local"](attended).sigmoid())
        return normalize(z, dim=-1)

    def trainable_state(self) -> dict[str, Tensor]:
        return dict(self.state_dict())


# Appendix M's networks, and two for tests and teaching: class and sizes. Those of texts take the
# size of their vocabulary first.
SCRATCH: dict[str, tuple[type[Encoder], tuple[Any, ...]]] = {
    "resnet-tiny": (ResNet, ([16, 32], [1, 1], "basic", 16)),
    "resnet-18": (ResNet, ([64, 128, 256, 512], [2, 2, 2, 2], "basic", 64)),
    "resnet-101": (ResNet, ([256, 512, 1024, 2048], [3, 4, 23, 3], "bottleneck", 64)),
    "gru-tiny": (GRU, (32, 16)),
    "gru": (GRU, (300, 128)),  # code: 300-d embeddings, 2 x 128
    "bert": (BERT, ()),
}


def encoding_of(settings: Any, modality: str, name: str) -> Pixels | Tokens:
    """Return how a network reads images or texts.

    Raises:
        ValueError: the network is of another modality.
        OSError: a checkpoint or tokenizer is missing or damaged; the message names it.
    """
    scratch = SCRATCH.get(name.removesuffix(PIE))
    folder = checkpoint_folder(settings.models_path, settings.tokenizer if scratch else name)
    kind = scratch[0] if scratch else architecture_of(folder)
    if kind.reads != modality:
        raise ValueError(f"networks: {name} reads {kind.reads}, not {modality}")
    if modality == "texts":
        return Tokens(load_tokenizer(folder), settings.text_length)
    if kind.stride:
        return Pixels(settings.image_size)
    return Pixels(load_backbone(folder).config.image_size)


def network(settings: Any, name: str, encoding: Pixels | Tokens) -> Any:
    """Make a network with initial weights of torch's global generator: a :class:`Pooled`, or a
    ``UserModel`` whose head nobody uses.

    Raises:
        OSError: a checkpoint is missing or damaged; the message names it.
    """
    if scratch := SCRATCH.get(name.removesuffix(PIE)):
        encoder, sizes = scratch
        vocabulary = (len(encoding.tokenizer),) if isinstance(encoding, Tokens) else ()
        pooled = Pooled(encoder(*vocabulary, *sizes), settings.dim, name.endswith(PIE))
        return pooled.to(settings.device)
    folder = checkpoint_folder(settings.models_path, name)
    model = architecture_of(folder)(
        load_backbone(folder, settings.device),
        n_outputs=1,
        rank=RANK,
        lora_alpha=RANK,
        lora_layers="linear",
        lora_blocks="last",
        head="linear",
        head_hidden=1,
        head_on="features",
        proj_dim=settings.dim,
    )
    model.head.requires_grad_(False)
    return model.to(settings.device)
