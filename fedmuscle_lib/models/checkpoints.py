"""Reads checkpoints: where one lies, what it is, its frozen backbone, its tokenizer.

Nothing is downloaded and no pickle is loaded.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from fedmuscle_lib.core.errors import NoFile, unreadable
from fedmuscle_lib.core.files import Stamp, read_json, stamp_of
from fedmuscle_lib.models.efficientnet_lite import EfficientNetLiteConfig, EfficientNetLiteModel
from fedmuscle_lib.models.hybrid_vit import HybridViTConfig, HybridViTModel

# unknown to transformers
_OUR_OWN: dict[str, Any] = {
    EfficientNetLiteConfig.model_type: EfficientNetLiteModel,
    HybridViTConfig.model_type: HybridViTModel,
}
_NO_POOLER = {"vit", "bert"}  # whose poolers the project does not use; the others have none


def checkpoint_folder(models_path: Path, name: str) -> Path:
    """Folder of the checkpoint ``name``: ``models_path/name``, or below it as Hugging Face's
    ``cache_dir`` keeps it.

    The README of the original code downloads ``google/vit-base-patch32-224-in21k`` with
    ``cache_dir=models_path/google``.
    """
    folder = models_path / name
    cached = folder.parent / f"models--{name.replace('/', '--')}"
    main = cached / "refs/main"
    if (folder / "config.json").exists() or not main.exists():
        return folder
    return cached / "snapshots" / main.read_text().strip()


def model_type(path: Path) -> str:
    """Return what the checkpoint's config.json says it is, such as "vit".

    Raises:
        FileNotFoundError: there is no checkpoint; the message names it.
        DataError: its config.json can't be read; the message names it.
    """
    try:
        return read_json(path / "config.json").get("model_type", "")
    except NoFile:
        makes = (
            "`python -m data_prep mini` makes it"
            if "mini" in path.parts
            else "docs/data.md says which command of data_prep makes it"
        )
        raise FileNotFoundError(
            f"{path}: no checkpoint (config.json and model.safetensors); {makes}"
        ) from None


def _stamps(path: Path) -> tuple[Stamp | None, ...]:
    """Return what changes when a file of the checkpoint does."""
    return tuple(stamp_of(file) for file in sorted(path.glob("*")))


@lru_cache(maxsize=16)
def _frozen(path: str, device: str, stamps: tuple[Stamp | None, ...]) -> PreTrainedModel:
    kind = model_type(Path(path))
    logging.disable_progress_bar()
    # it would report the pretraining heads that checkpoints carry and nobody asks for
    logging.set_verbosity_error()
    # the project's own checkpoints are stored in half precision and trained in full
    options = {"dtype": torch.float32, "local_files_only": True, "use_safetensors": True}
    if kind in _NO_POOLER:
        options["add_pooling_layer"] = False
    with unreadable(f"{path}: not a readable checkpoint", OSError):
        model, report = _OUR_OWN.get(kind, AutoModel).from_pretrained(
            path, output_loading_info=True, **options
        )
    if report["missing_keys"]:  # they would be drawn at random
        raise OSError(f"{path}: the checkpoint lacks {sorted(report['missing_keys'])[0]}")
    return model.requires_grad_(False).to(device)


def load_backbone(path: Path, device: str = "cpu") -> PreTrainedModel:
    """A backbone whose frozen weights are shared in the device's memory by all that load the same
    path; the modules are its own.

    Raises:
        OSError: there is no checkpoint, or it can't be read; the message names it.
    """
    frozen = _frozen(str(path), device, _stamps(path))
    # what is in the memo is not copied but shared
    return copy.deepcopy(frozen, {id(parameter): parameter for parameter in frozen.parameters()})


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that lies with a text checkpoint. One without a padding token, as GPT-2's, pads
    with the token that ends a text.

    Raises:
        OSError: there is none, or it can't be read; the message names it.
    """
    if not (path / "tokenizer.json").is_file():
        raise FileNotFoundError(f"{path / 'tokenizer.json'}: no tokenizer lies with the checkpoint")
    return _tokenizer(path, _stamps(path))


@lru_cache(maxsize=8)
def _tokenizer(path: Path, stamps: tuple[Stamp | None, ...]) -> PreTrainedTokenizerBase:
    with unreadable(f"{path}: not a readable tokenizer", OSError):
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
