"""The paper's Hugging Face checkpoints, saved below the README's ``models_path`` without their task
heads, as safetensors.

Without a network, ``random`` writes models of the same architectures with random weights, which
serve to measure costs and nothing else.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    SegformerConfig,
    ViTConfig,
)
from transformers.utils import logging

from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.files import named, put

# Section 6.1: "ViT models ... pre-trained on ImageNet-21K", by the names that the README gives. The
# paper does not say which of the README's two ViT-Base it uses. With patches of 32 px, a pass over
# Setup1's local data takes 29 TFLOP, as Table 1 says of local training, and with 16 px 37, counted
# without the products inside attention (one more with them).
ARCHITECTURES: dict[str, PretrainedConfig] = {
    name: ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        patch_size=patch,
    )
    for name, width, layers, patch in (
        ("WinKawaks/vit-tiny-patch16-224", 192, 12, 16),
        ("WinKawaks/vit-small-patch16-224", 384, 12, 16),
        ("google/vit-base-patch32-224-in21k", 768, 12, 32),
        ("google/vit-large-patch16-224-in21k", 1024, 24, 16),
    )
}
# "SegFormer models ... pre-trained on ImageNet-1K and fine-tuned on ADE20K, and heterogeneous
# BERT-based models"; GPT-2 is ours.
ARCHITECTURES |= {
    "nvidia/segformer-b0-finetuned-ade-512-512": SegformerConfig(),
    "nvidia/segformer-b1-finetuned-ade-512-512": SegformerConfig(hidden_sizes=[64, 128, 320, 512]),
    "google-bert/bert-base-uncased": BertConfig(),
    "distilbert/distilbert-base-uncased": DistilBertConfig(),
    "openai-community/gpt2": GPT2Config(),
}
_TEXT = {"bert", "distilbert", "gpt2"}
_POOLED = {"vit", "bert"}  # whose poolers nobody here uses

RANDOM = "random.json"  # in a folder whose weights are random


def fetch(name: str, models_path: Path, random: bool = False) -> int:
    """Write ``models_path/name`` unless it is there; return the number of parameters.

    Raises:
        NotOurs: something else lies in its place.
        OSError: it can't be downloaded or written, or the folder holds a damaged checkpoint, or
            random weights that were not asked for.
    """
    folder = models_path / name
    reads_text = ARCHITECTURES[name].model_type in _TEXT
    if (folder / "config.json").exists():
        if not random and (folder / RANDOM).exists():
            raise OSError(
                f"{folder}: holds random weights, to measure costs with; delete it to fetch the"
                " real ones"
            )
        try:
            model = AutoModel.from_pretrained(folder, local_files_only=True, **_options(name))
        except SafetensorError as error:
            raise OSError(
                f"{folder}: a damaged checkpoint ({error}); delete it to fetch it anew"
            ) from None
        return model.num_parameters()
    ownership.vacant(folder, models_path)
    if random:
        torch.manual_seed(0)
        model = AutoModel.from_config(ARCHITECTURES[name], **_options(name)).half()
        card = (
            f"Random weights in the architecture of {name}: to measure costs with, not to learn"
            " from.\n"
        )
        beside = {"README.md": card, RANDOM: json.dumps({"architecture": name, "seed": 0}) + "\n"}
        _save(model, _characters() if reads_text else None, folder, beside)
    else:
        model = AutoModel.from_pretrained(name, **_options(name))
        _save(model, AutoTokenizer.from_pretrained(name) if reads_text else None, folder, {})
    return model.num_parameters()


def _options(name: str) -> dict[str, bool]:
    return {"add_pooling_layer": False} if ARCHITECTURES[name].model_type in _POOLED else {}


def _characters() -> PreTrainedTokenizerBase:
    """Return a tokenizer of single characters, which needs no download and suffices for random
    weights.
    """
    known = {
        token: i
        for i, token in enumerate(
            ("[PAD]", "[UNK]", *string.ascii_lowercase, *string.digits, *string.punctuation)
        )
    }
    characters = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=characters, pad_token="[PAD]", unk_token="[UNK]"
    )


def _save(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: Path,
    beside: dict[str, str],
) -> None:
    """Save the model, its tokenizer, and further files by name and content."""
    logging.disable_progress_bar()
    with ownership.scratch(
        folder.parent, folder.name
    ) as scratch:  # a folder that was left half written does not look whole
        new = scratch / folder.name
        with named(new):
            model.save_pretrained(new)
            if tokenizer:
                tokenizer.save_pretrained(new)
        for name, content in beside.items():
            put(new / name, content.encode())
        new.rename(folder)
