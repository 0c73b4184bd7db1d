"""Text generation: TG. The original README lists it; the paper has no such user."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.encodings import Modality, Tokens
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.tasks.task import Head, Task

NO_TOKEN = -100


@dataclass(frozen=True)
class TextGeneration(Task):
    """Targets are the texts' own token ids, (b, l), and ``NO_TOKEN`` behind a text's end. Each
    token is predicted from those before it.

    The metric is the perplexity: exp of a token's mean negative log-likelihood over the whole
        evaluation set. It is no percentage.
    """

    reads: ClassVar[Modality] = "texts"
    metric: ClassVar[str] = "Perplexity"
    lower_is_better: ClassVar[bool] = True
    head: ClassVar[Head] = "language model"
    evaluation_batch: ClassVar[int] = 32

    def _read(self, path: Path, images: Path, encoding: Tokens) -> tuple[Samples, tuple[int, ...]]:
        """A text is its own target."""
        inputs = encoding.encode(Pickled(path, "texts").texts())
        targets = inputs.masked_fill(inputs == encoding.tokenizer.pad_token_id, NO_TOKEN)
        return Samples(inputs, targets), ()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        total, tokens = self.count(outputs, targets)
        return total / tokens.clamp(min=1)

    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed negative log-likelihood in nats, and tokens."""
        following = targets[:, 1:].flatten()
        total = F.cross_entropy(
            outputs[:, :-1].flatten(0, 1), following, ignore_index=NO_TOKEN, reduction="sum"
        )
        return torch.stack([total, (following != NO_TOKEN).sum().to(total.dtype)])

    def score(self, counts: Tensor) -> float:
        total, tokens = counts.tolist()
        return math.exp(total / tokens)

    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """A unigram model of the training texts; unseen tokens count once."""
        train, evaluation = (
            targets[:, 1:][targets[:, 1:] != NO_TOKEN] for targets in (train, evaluation)
        )
        seen = (
            torch.bincount(train, minlength=1 + int(torch.cat([train, evaluation]).max()))
            .clamp(min=1)
            .double()
        )
        return math.exp(-(seen / seen.sum()).log()[evaluation].mean().item())
