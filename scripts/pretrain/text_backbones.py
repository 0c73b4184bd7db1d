"""Pretrain small text backbones: BERT and DistilBERT by masking, GPT-2 by the next token.

    python scripts/pretrain/text_backbones.py bert-base distilbert-base gpt2 --out FOLDER
    python scripts/pretrain/text_backbones.py small-gpt2 --archives FOLDER --out FOLDER

The first three are those of ``data_prep/weights/mini``: they read books in the embedded world's
language, then learn by supervised contrast that two texts of an upstream topic belong together.
``small-gpt2`` is ``data_prep/weights/small/gpt2``; it reads Yahoo! Answers. Minutes each on one
core; the weights depend on the texts and the recipe alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import RECIPES, claim, contrastive, fit, optimisation, save
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

from data_prep.datasets import CATALOGUE
from data_prep.datasets.topics import excerpt
from data_prep.world import language
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.models.text import mean_of_tokens

NO_TARGET = -100  # of the collator's
CONTRAST_STEPS, CONTRAST_LR, CONTRAST_TOPICS = 1000, 1e-3, 48  # 48 topics in a batch
BOOKS, UPSTREAM_BOOKS, HELD_OUT = 20_000, 10_000, 500  # sentences
SMALL_TEXTS, SMALL_HELD_OUT = 50_000, 1000


@dataclass(frozen=True)
class Recipe:
    """Architecture and diet of one backbone.

    Attributes:
        vocabulary: size of its tokenizer at most.
        longest: tokens in a text at most; longer texts are cut into pieces.
        lr: the peak of the learning rate.
        batch: pieces in a batch.
    """

    architecture: str
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


@fixed_state(1)  # one thread makes the sums, hence the weights, repeatable
def pretrain(name: str, out: Path, archives: Path | None, steps: int | None = None) -> None:
    """Pretrain a backbone and its tokenizer, and save both in ``out/name``.

    Args:
        archives: the folder of Yahoo! Answers' archive, for ``small-gpt2``.
        steps: of each phase; the recipe's if None.
    """
    recipe = Recipe(**RECIPES["text_backbones"][name])
    folder = claim(out / name)
    if name == "small-gpt2":
        entry = CATALOGUE["yahoo"]
        path = (archives or Path()) / entry.archives[0].name
        found = excerpt(entry, path, {"train": SMALL_TEXTS, "test": SMALL_HELD_OUT})
        texts, held_out = ([text for _, text in rows] for rows in found.values())
    else:
        texts = [*language.books(BOOKS, seed=1), *language.upstream_books(UPSTREAM_BOOKS, seed=3)]
        held_out = language.books(HELD_OUT, seed=2)
    torch.manual_seed(recipe.seed)
    tokenizer = train_tokenizer(recipe, texts)
    model = LanguageModelling(recipe, tokenizer)
    train, test = (pieces(tokenizer, given, recipe.longest) for given in (texts, held_out))
    # masks 15 % of the tokens as Devlin et al. (2019) do
    mlm = not recipe.causal
    collate = DataCollatorForLanguageModeling(tokenizer, mlm=mlm, seed=recipe.seed)
    batches = drawn(train, recipe)

    def guessing(_: int) -> Tensor:
        logits, targets = model(**collate(next(batches)))
        return F.cross_entropy(logits, targets, reduction="sum") / max(1, len(targets))

    n = steps or recipe.steps
    fit(name, model, guessing, n, optimisation(model, recipe.lr, n))
    if name != "small-gpt2":
        rng = np.random.RandomState(recipe.seed)

        def loss(step: int) -> Tensor:
            first, second = language.twice(CONTRAST_TOPICS, rng)
            means = model.means([*first, *second], tokenizer, recipe.longest)
            return contrastive(means) + guessing(step)

        n = steps or CONTRAST_STEPS
        fit(f"{name}, contrast", model, loss, n, optimisation(model, CONTRAST_LR, n))
    measure = DataCollatorForLanguageModeling(tokenizer, mlm=mlm, seed=recipe.seed)
    report = {"name": name, **asdict(recipe), "texts": len(texts), **scores(model, test, measure)}
    save(model.backbone, folder, report, tokenizer)


def train_tokenizer(recipe: Recipe, texts: Sequence[str]) -> PreTrainedTokenizerBase:
    """Train lower-case WordPiece for BERT and DistilBERT, or byte pairs for GPT-2."""
    if recipe.causal:
        return GPT2Tokenizer(pad_token="<|endoftext|>").train_new_from_iterator(
            texts, recipe.vocabulary, show_progress=False
        )
    tokenizer = BertTokenizer()
    # The library numbers the letters inside words in the order of a hash table, which differs
    # between processes, and breaks ties by these numbers. Special tokens are numbered in the order
    # given.
    text = tokenizer.backend_tokenizer.normalizer.normalize_str("\n".join(texts))
    inside = [f"##{letter}" for letter in sorted(set(text) - {" "})]
    trained = tokenizer.train_new_from_iterator(
        texts, recipe.vocabulary, new_special_tokens=inside, show_progress=False
    )
    return BertTokenizer(vocab=trained.get_vocab())


class LanguageModelling(nn.Module):
    """A backbone whose token embeddings are the output layer; BERT has an extra layer in between,
    which is dropped afterwards.
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
        ids, mask = encoded.input_ids, encoded.attention_mask
        states = self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        return mean_of_tokens(states, mask)


# a config's names of the width of an MLP and of dropout
_CONFIG_NAMES = {
    "bert": ("intermediate_size", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    "distilbert": ("hidden_dim", "dropout", "attention_dropout"),
    "gpt2": ("n_inner", "resid_pdrop", "embd_pdrop", "attn_pdrop"),
}


def build(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return the model, freshly initialised; training is too short for dropout to help."""
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


def pieces(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], longest: int
) -> list[dict[str, list[int]]]:
    """Tokenise the texts and cut long ones into pieces of at least two tokens."""
    cut = {"truncation": True, "max_length": longest, "return_overflowing_tokens": True}
    encoded = tokenizer(list(texts), return_special_tokens_mask=True, **cut)
    return [
        {"input_ids": ids, "special_tokens_mask": special}
        for ids, special in zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)
        if len(ids) > 1
    ]


def drawn(pieces: list[dict], recipe: Recipe) -> Iterator[list[dict]]:
    """Yield batches of pieces of similar length without end; each piece at most once an epoch."""
    rng = np.random.RandomState(recipe.seed)
    lengths = np.array([len(piece["input_ids"]) for piece in pieces])
    batch = min(recipe.batch, len(pieces))
    while True:
        order = rng.permutation(len(pieces))[: len(pieces) // batch * batch]
        ranked = [
            rows[np.argsort(lengths[rows], kind="stable")]
            for rows in np.split(order, range(16 * batch, len(order), 16 * batch))
        ]
        for rows in rng.permutation(np.concatenate(ranked).reshape(-1, batch)):
            yield [pieces[row] for row in rows]


@torch.no_grad()
def scores(
    model: LanguageModelling, test: list[dict], collate: DataCollatorForLanguageModeling
) -> dict[str, float]:
    """Return perplexity and accuracy on the test pieces."""
    model.eval()
    total, hits, sought = 0.0, 0, 0
    for start in range(0, len(test), 64):
        logits, targets = model(**collate(test[start : start + 64]))
        total += F.cross_entropy(logits, targets, reduction="sum").item()
        hits += (logits.argmax(1) == targets).sum().item()
        sought += len(targets)
    return {
        "perplexity": round(float(np.exp(total / sought)), 2),
        "accuracy": round(hits / sought, 4),
    }


def main(
    names: list[str],
    out: Annotated[Path, typer.Option(help="Write NAME below this folder.")],
    archives: Annotated[Path | None, typer.Option(help="The folder of yahoo's archive.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of each phase.")] = None,
) -> None:
    """Pretrain text backbones."""
    for name in names:
        pretrain(name, out, archives, steps)


if __name__ == "__main__":
    typer.run(main)
