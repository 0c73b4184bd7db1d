"""The vision transformers that the project pretrains itself: how one is built, and how one is saved."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import ViTConfig, ViTModel

from data_prep.files import named, put


def build(hidden: int, layers: int, heads: int, mlp: int, *, size: int, patch: int) -> ViTModel:
    """The Hugging Face model for ``size`` x ``size`` pictures, freshly initialised from torch's global generator.

    ``fedmuscle_lib.models`` reads its features as the mean of the patch tokens after the last layer norm, of pixels scaled to
    [-1, 1]: there is no pooler, and what pretrains it reads them alike.
    """
    config = ViTConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=mlp,
        image_size=size,
        patch_size=patch,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    return ViTModel(config, add_pooling_layer=False)


def save(backbone: ViTModel, folder: Path, report: dict, card: str) -> None:
    """Save a checkpoint in half precision (``backbone`` is halved in place) with its model card and its report.

    The report, ``pretraining.json``, comes last: where it is, the others are whole.
    """
    with named(folder):
        backbone.half().save_pretrained(folder)
    put(folder / "README.md", card.encode())
    put(folder / "pretraining.json", (json.dumps(report, indent=2) + "\n").encode())


def read_report(folder: Path) -> dict | None:
    """The report of the finished checkpoint in ``folder``, or None where there is none."""
    try:
        return json.loads((folder / "pretraining.json").read_text())
    except (FileNotFoundError, ValueError):  # the latter: cut short
        return None
