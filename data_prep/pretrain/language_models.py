"""Pretraining of small text backbones from scratch: BERT and DistilBERT by masked language
modelling, GPT-2 by causal language modelling.

They stand for the paper's BERT-Base and DistilBERT-Base (Appendix H) and for GPT-2, which its
code's README lists. The paper downloads pretrained checkpoints, so it states none of the
hyper-parameters below.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    BertTokenizer,
    DataCollatorForLanguageModeling,
    GPT2Tokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from data_prep.pretrain import training
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.models.text import mean_of_tokens

Architecture = Literal["bert", "distilbert", "gpt2"]
NO_TARGET = -100  # of the collator's


@dataclass(frozen=True)
class Recipe:
    """Architecture and diet of one backbone.

    Attributes:
        vocabulary: size of its tokenizer at most; few texts yield fewer tokens.
        longest: tokens in a text at most; longer texts are cut into pieces.
        lr: the peak of the learning rate.
        batch: pieces in a batch.
    """

    architecture: Architecture
    hidden: int
    layers: int
    heads: int
    mlp: int
    vocabulary: int
    longest: int
    steps: int
    lr: float = 1e-3
    batch: int = 64
    seed: int = 0

    @property
    def causal(self) -> bool:
        return self.architecture == "gpt2"


@dataclass(frozen=True)
class Contrast:
    """Steps of supervised contrast after those of language modelling, which goes on beside it, 1 :
    1.

    Attributes:
        pairs: draws a batch: texts, and for each another one of its topic; no two of the former are
            of one topic.
        about: for the card: what a topic is.
    """

    pairs: Callable[[np.random.RandomState], tuple[list[str], list[str]]]
    about: str
    steps: int
    lr: float = 1e-3


@fixed_state(1)
def pretrain(
    name: str,
    recipe: Recipe,
    texts: Sequence[str],
    held_out: Sequence[str],
    out: Path,
    facts: Mapping[str, str],
    contrast: Contrast | None = None,
) -> dict:
    """Pretrain a backbone and its tokenizer on ``texts``, and save both under ``out/name`` with a
    model card.

    The tokenizer depends on the texts, the vocabulary and the kind alone; BERT and DistilBERT are
    of the same kind. On a CPU the weights depend on the arguments alone: one thread makes the sums
    repeatable.

    Args:
        held_out: texts to measure loss, perplexity and accuracy on.
        facts: for the card: the "world" that the backbone belongs to, such as "the small profile";
            the "data" and their terms; the "command" that remakes it; and its "license" by Hugging
            Face's key.
        contrast: what follows, if anything.

    Returns:
        The report that ``pretraining.json`` holds: scores, those of guessing by token frequency
            ("trivial"), and cost.

    Raises:
        ValueError: there are no texts, or none has a token to guess.
        FloatingPointError: the loss is no longer a number.
        NotOurs: ``out/name`` holds something else.
        OSError: the folder can't be written.
    """
    training.claim(out / name)
    started = time.process_time()
    for kind, given in (("text", texts), ("held-out text", held_out)):
        if not any(map(str.strip, given)):
            raise ValueError(f"{name}: there is no {kind}")
    torch.manual_seed(recipe.seed)
    tokenizer = train_tokenizer(recipe, texts)
    model = LanguageModelling(recipe, tokenizer)
    train, test = (_pieces(tokenizer, given, recipe.longest) for given in (texts, held_out))
    if not train or not test:
        raise ValueError(
            f"{name}: no {'held-out ' if train else ''}text has a token to guess from another"
        )
    collate = _collator(recipe, tokenizer)
    batches = _draws(train, recipe)

    def guessing(_: int) -> Tensor:
        logits, targets = model(**collate(next(batches)))
        return F.cross_entropy(logits, targets, reduction="sum") / max(
            1, len(targets)
        )  # so few tokens that none is masked

    training.fit(
        name, model, guessing, recipe.steps, training.optimisation(model, recipe.lr, recipe.steps)
    )
    if contrast:
        rng = np.random.RandomState(recipe.seed)

        def loss(step: int) -> Tensor:
            first, second = contrast.pairs(rng)
            return training.contrastive(
                model.means([*first, *second], tokenizer, recipe.longest)
            ) + guessing(step)

        training.fit(
            f"{name}, contrast",
            model,
            loss,
            contrast.steps,
            training.optimisation(model, contrast.lr, contrast.steps),
        )
    report = {
        "name": name,
        **asdict(recipe),
        "vocabulary": len(tokenizer),
        **({"contrast_steps": contrast.steps} if contrast else {}),
        "texts": len(texts),
        "held_out": len(held_out),
        "data": hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16],
        "parameters": model.backbone.num_parameters(),
        **_measure(name, model, train, test, _collator(recipe, tokenizer)),
        "cpu_seconds": round(time.process_time() - started),
        "threads": 1,
        **training.MADE_WITH,
    }
    then = (
        training.card(
            "language_model_contrast", vars(contrast) | {"temperature": training.TEMPERATURE}
        )
        if contrast
        else ""
    )
    said = (
        report
        | training.RECIPES["words"][recipe.architecture]
        | {
            **facts,
            "decay": training.WEIGHT_DECAY,
            "norm": training.MAX_NORM,
            "then": then,
        }
    )
    training.save(
        model.backbone, out / name, report, training.card("language_model", said), tokenizer
    )
    return report


def train_tokenizer(recipe: Recipe, texts: Sequence[str]) -> PreTrainedTokenizerBase:
    """Train lower-case WordPiece for BERT and DistilBERT, which share a vocabulary, or byte pairs
    for GPT-2.
    """
    if recipe.causal:
        return GPT2Tokenizer(pad_token="<|endoftext|>").train_new_from_iterator(
            texts, recipe.vocabulary, show_progress=False
        )
    tokenizer = BertTokenizer()
    # The library numbers the letters inside words in the order of a hash table, which differs
    # between processes, and breaks ties by these numbers. Special tokens are numbered in the order
    # given.
    letters = sorted(
        set(tokenizer.backend_tokenizer.normalizer.normalize_str("\n".join(texts))) - {" "}
    )
    inside = [f"##{letter}" for letter in letters]
    trained = tokenizer.train_new_from_iterator(
        texts, recipe.vocabulary, new_special_tokens=inside, show_progress=False
    )
    return BertTokenizer(vocab=trained.get_vocab())


class LanguageModelling(nn.Module):
    """A backbone with its token embeddings as the output layer; BERT's extra layer in between is
    dropped afterwards, GPT-2 has none.
    """

    def __init__(self, recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        self.causal = recipe.causal
        self.backbone = build(recipe, tokenizer)
        width = recipe.hidden
        self.transform = (
            nn.Identity()
            if self.causal
            else nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Map a batch (b, l) to logits (n, vocabulary) and ids (n,) of the n tokens to predict."""
        states = self.backbone(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state  # Shape: (b, l, hidden)
        if self.causal:
            states, labels = states[:, :-1], labels[:, 1:]
        sought = labels != NO_TARGET
        embeddings = self.backbone.get_input_embeddings().get_parameter("weight")
        return F.linear(self.transform(states[sought]), embeddings), labels[sought]

    def means(
        self, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, longest: int
    ) -> Tensor:
        """Return the mean token of each text, (b, hidden), as its users pool."""
        encoded = tokenizer(
            list(texts), return_tensors="pt", padding=True, truncation=True, max_length=longest
        )
        states = self.backbone(
            input_ids=encoded.input_ids, attention_mask=encoded.attention_mask
        ).last_hidden_state
        return mean_of_tokens(states, encoded.attention_mask)


# the names of a config for the width of an MLP and for dropout
_CONFIG_NAMES = {
    "bert": ("intermediate_size", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    "distilbert": ("hidden_dim", "dropout", "attention_dropout"),
    "gpt2": ("n_inner", "resid_pdrop", "embd_pdrop", "attn_pdrop"),
}


def build(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return the Hugging Face model, freshly initialised from torch's global generator.

    Training is too short for dropout to help.
    """
    if recipe.architecture not in _CONFIG_NAMES:
        raise ValueError(
            f"architecture {recipe.architecture!r} is not known; known: {', '.join(_CONFIG_NAMES)}"
        )
    mlp, *dropouts = _CONFIG_NAMES[recipe.architecture]
    config: dict[str, Any] = {
        "hidden_size": recipe.hidden,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        mlp: recipe.mlp,
        "max_position_embeddings": recipe.longest,
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        # BERT's and GPT-2's 0.02 at width 768, scaled by 1 / sqrt(width): with 0.02 itself, a model
        # this narrow hardly starts to learn
        "initializer_range": 0.02 * (768 / recipe.hidden) ** 0.5,
    } | dict.fromkeys(dropouts, 0.0)
    if recipe.causal:
        config |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    pooling = {"add_pooling_layer": False} if recipe.architecture == "bert" else {}
    return AutoModel.from_config(AutoConfig.for_model(recipe.architecture, **config), **pooling)


def _pieces(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], longest: int
) -> list[dict[str, list[int]]]:
    """Tokenise the texts and cut long ones into pieces; leave out pieces of a single token, which
    has no context.
    """
    cut = {"truncation": True, "max_length": longest, "return_overflowing_tokens": True}
    encoded = tokenizer(list(texts), return_special_tokens_mask=True, **cut)
    return [
        {"input_ids": ids, "special_tokens_mask": special}
        for ids, special in zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)
        if len(ids) > 1
    ]


def _draws(pieces: list[dict], recipe: Recipe) -> Iterator[list[dict]]:
    """Yield the pieces of one step after another without end, of similar length to save padding;
    each piece at most once an epoch.
    """
    rng = np.random.RandomState(recipe.seed)
    lengths = np.array([len(piece["input_ids"]) for piece in pieces])
    batch = min(recipe.batch, len(pieces))
    while True:
        order = rng.permutation(len(pieces))[
            : len(pieces) // batch * batch
        ]  # the rest is dropped, another one each time
        ranked = [
            rows[np.argsort(lengths[rows], kind="stable")]
            for rows in np.split(order, range(16 * batch, len(order), 16 * batch))
        ]
        for rows in rng.permutation(np.concatenate(ranked).reshape(-1, batch)):
            yield [pieces[row] for row in rows]


def _collator(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase
) -> DataCollatorForLanguageModeling:
    """Return a collator that pads, and masks 15 % of the tokens as Devlin et al. (2019) do: 80 % of
    them blank, 10 % another token.
    """
    return DataCollatorForLanguageModeling(tokenizer, mlm=not recipe.causal, seed=recipe.seed)


@torch.no_grad()
def _measure(
    name: str,
    model: LanguageModelling,
    train: list[dict],
    test: list[dict],
    collate: DataCollatorForLanguageModeling,
) -> dict:
    """Return loss, perplexity and accuracy on the test pieces, and those of a unigram model of the
    training pieces.

    In the unigram model, unseen tokens count once.
    """
    model.eval()
    total, hits, sought = 0.0, 0, []
    for start in range(0, len(test), 64):
        logits, targets = model(**collate(test[start : start + 64]))
        total += F.cross_entropy(logits, targets, reduction="sum").item()
        hits += (logits.argmax(1) == targets).sum().item()
        sought.append(targets)
    targets = torch.cat(sought)
    if not len(targets):
        raise ValueError(
            f"{name}: the held-out texts are so short that no token of theirs was masked"
        )
    loss = total / len(targets)
    own = [i for piece in train for i, special in zip(*piece.values(), strict=True) if not special]
    seen = (
        torch.bincount(torch.tensor(own), minlength=model.backbone.config.vocab_size)
        .clamp(min=1)
        .double()
    )
    return {
        "loss": round(loss, 4),
        "perplexity": round(float(np.exp(loss)), 2),
        "accuracy": round(hits / len(targets), 4),
        "trivial_perplexity": round(
            (seen / seen.sum()).log()[targets].mean().neg().exp().item(), 2
        ),
        "trivial_accuracy": round((targets == seen.argmax()).double().mean().item(), 4),
    }
