"""A user's model theta = {w, phi}: a pretrained backbone with LoRA and a projection to d (w), and a
prediction head (phi).

One module a family; a checkpoint's ``model_type`` says which it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.core.versions import versions
from fedmuscle_lib.models.base import State, UserModel
from fedmuscle_lib.models.checkpoints import (
    checkpoint_folder,
    load_backbone,
    load_tokenizer,
    model_type,
)
from fedmuscle_lib.models.efficientnet_lite import EfficientNetLite
from fedmuscle_lib.models.frozen import FrozenStates
from fedmuscle_lib.models.hybrid_vit import HybridViT
from fedmuscle_lib.models.language import LanguageModel
from fedmuscle_lib.models.probe import linear_probe
from fedmuscle_lib.models.segformer import SegFormer
from fedmuscle_lib.models.text import TextEncoder
from fedmuscle_lib.models.vision import VisionTransformer
from fedmuscle_lib.runs.address import files_digest, hash_of

ARCHITECTURES: dict[str, type[UserModel]] = {
    "vit": VisionTransformer,
    "efficientnet_lite": EfficientNetLite,
    "hybrid_vit": HybridViT,
    "segformer": SegFormer,
    "bert": TextEncoder,
    "distilbert": TextEncoder,
    "gpt2": LanguageModel,
}


def architecture_of(folder: Path) -> type[UserModel]:
    """The class of models of the checkpoint in ``folder``; raises ValueError, naming its config, if
    its ``model_type`` is not known.
    """
    name = model_type(folder)
    check_known(f"{folder / 'config.json'}: unknown model_type", name, ARCHITECTURES)
    return ARCHITECTURES[name]


def checkpoint_digest(
    folder: Path, patterns: Sequence[str] = ("*.json", "*.safetensors", "*.txt")
) -> str:
    """A hash of a checkpoint's weights, config and tokenizer, with the version of its model family;
    empty where there is none.
    """
    if not (folder / "config.json").exists():
        return ""
    return hash_of(
        [
            [files_digest(folder, pattern, deep=False) for pattern in patterns],
            versions(architecture_of(folder)),
        ]
    )


def untrained(folder: Path, **options: Any) -> UserModel:
    """A user's model of the checkpoint in ``folder`` as it was pretrained, for its features:
    nothing adapts it, and its head means nothing.

    Args:
        folder: of the checkpoint.
        options: of ``UserModel``, such as ``pooling``.

    Raises:
        ValueError, OSError: as :func:`architecture_of` and :func:`load_backbone`.
    """
    family = architecture_of(folder)
    unused: dict[str, Any] = {"head": family.heads[0], "head_hidden": 1, "head_on": "features"}
    unused |= {"proj_dim": 1, "rank": 1, "lora_alpha": 1, "lora_layers": "linear"}
    return family(load_backbone(folder), 1, lora_blocks="none", **unused, **options).eval()
