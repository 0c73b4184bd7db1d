"""The paper's Hugging Face checkpoints, saved below the README's ``models_path`` without their task
heads, as safetensors.

Without a network, ``random`` writes models of the same architectures with random weights, which
serve to measure costs and nothing else.
"""

from __future__ import annotations

import string
from pathlib import Path
from tempfile import TemporaryDirectory

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
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    SegformerConfig,
    ViTConfig,
)

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
        OSError: it can't be downloaded or written, or other files or random weights lie there.
    """
    folder, kind = models_path / name, ARCHITECTURES[name].model_type
    options = {"add_pooling_layer": False} if kind in _POOLED else {}
    if (folder / RANDOM).exists() and not random:
        raise OSError(f"{folder}: holds random weights; delete it to fetch the real ones")
    if (folder / "config.json").exists():
        try:
            model = AutoModel.from_pretrained(folder, local_files_only=True, **options)
        except SafetensorError as error:
            raise OSError(
                f"{folder}: a damaged checkpoint ({error}); delete it to fetch it anew"
            ) from None
        return model.num_parameters()
    tokenizer = None
    if random:
        torch.manual_seed(0)
        model = AutoModel.from_config(ARCHITECTURES[name], **options).half()
        tokenizer = _characters() if kind in _TEXT else None
    else:
        model = AutoModel.from_pretrained(name, **options)
        tokenizer = AutoTokenizer.from_pretrained(name) if kind in _TEXT else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new = Path(scratch, "new")
        model.save_pretrained(new)
        if tokenizer:
            tokenizer.save_pretrained(new)
        if random:
            (new / RANDOM).write_text(f'{{"architecture": "{name}", "seed": 0}}\n')
        for path in new.iterdir():  # transformers' weights are their owner's alone
            path.chmod((new / "config.json").stat().st_mode)
        new.rename(folder)  # refuses a folder with other files
    return model.num_parameters()


def _characters() -> PreTrainedTokenizerBase:
    """Return a tokenizer of single characters, which needs no download and suffices for random
    weights.
    """
    characters = ("[PAD]", "[UNK]", *string.ascii_lowercase, *string.digits, *string.punctuation)
    known = {token: i for i, token in enumerate(characters)}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
