"""A user's model theta = {w, phi}: a pretrained backbone with LoRA and a projection to d (w), and a prediction head (phi)."""

from __future__ import annotations

import copy
import math
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel
from transformers.utils import ModelOutput, logging


class UserModel(nn.Module):
    """Representation model and head of one user (Section 3, Appendix H).

    Args:
        backbone: a Hugging Face vision transformer; frozen but for the LoRA matrices added here.
        n_outputs: width of the head's output.
        head_on: "features" (the head reads the pooled features, the projection serves the alignment) or "representation".
        proj_dim: d of the paper.
        precision: of the backbone's matrix products, by autocast; projection, head and every loss stay in float32.

    Features are the mean of the patch tokens after the last layer norm. Pixels come as uint8 and are scaled to [-1, 1], which is
    what the ViT checkpoints of the paper expect too.
    """

    def __init__(
        self,
        backbone: nn.Module,
        n_outputs: int,
        *,
        proj_dim: int,
        rank: int,
        lora_alpha: int,
        lora_targets: tuple[str, ...],
        head_hidden: int,
        head_on: Literal["features", "representation"],
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        super().__init__()
        width = backbone.config.hidden_size
        adapters = LoraConfig(r=rank, lora_alpha=lora_alpha, target_modules=list(lora_targets), lora_dropout=0.0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")  # between peft and transformers
            self.backbone = get_peft_model(backbone, adapters)
        self.projection = nn.Linear(width, proj_dim)
        self.head = nn.Sequential(
            nn.Linear(width if head_on == "features" else proj_dim, head_hidden), nn.ReLU(), nn.Linear(head_hidden, n_outputs)
        )
        self.head_on, self.precision = head_on, precision

    def features(self, images: Tensor) -> Tensor:
        """(b, 3, h, w) pixel values from 0 to 255 -> (b, width)."""
        return self._pooled(self._backbone(images).last_hidden_state)

    def represent(self, images: Tensor) -> Tensor:
        """The rows of Z^n: (b, 3, h, w) pixel values -> (b, d), unit norm."""
        return F.normalize(self.projection(self.features(images)), dim=-1)

    def forward(self, images: Tensor) -> Tensor:
        """The head's outputs for the user's task, (b, n_outputs)."""
        return self._outputs(self.features(images))

    def forward_with_levels(self, images: Tensor, levels: int = 4) -> tuple[Tensor, list[Tensor]]:
        """The head's outputs, and features from shallow to deep: after each ``levels``-th part of the blocks, then the projection.

        Each is (b, its width), the mean of the patch tokens there; a backbone with fewer blocks than levels has fewer of them.
        """
        found = self._backbone(images, output_hidden_states=True)
        states = found.hidden_states  # before the first block, and after each
        depth = len(states) - 1
        blocks = sorted({math.ceil(depth * part / levels) for part in range(1, levels + 1)})
        features = self._pooled(found.last_hidden_state)
        return self._outputs(features), [*(self._pooled(states[block]) for block in blocks), self.projection(features)]

    def _backbone(self, images: Tensor, **options: bool) -> ModelOutput:
        pixels = images.to(self.projection.weight.dtype) / 127.5 - 1
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            return self.backbone(pixel_values=pixels, **options)

    def _pooled(self, tokens: Tensor) -> Tensor:
        """(b, 1 + patches, width) -> (b, width)."""
        return tokens[:, 1:].mean(1, dtype=self.projection.weight.dtype)

    def _outputs(self, features: Tensor) -> Tensor:
        return self.head(features if self.head_on == "features" else self.projection(features))

    def representation_parameters(self) -> list[nn.Parameter]:
        """The trainable part of w: LoRA and projection."""
        return [p for p in self.backbone.parameters() if p.requires_grad] + list(self.projection.parameters())

    def trainable_state(self) -> dict[str, Tensor]:
        """What training changes, by name; the frozen backbone is not in it."""
        return {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}


def checkpoint_folder(models_path: Path, name: str) -> Path:
    """Where the checkpoint ``name`` lies: ``models_path/name``, or below it as Hugging Face's ``cache_dir`` keeps it.

    The README of the original code downloads ``google/vit-base-patch16-224-in21k`` with ``cache_dir=models_path/google``.
    """
    folder = models_path / name
    cached = folder.parent / f"models--{name.replace('/', '--')}"
    main = cached / "refs/main"
    if (folder / "config.json").exists() or not main.exists():
        return folder
    return cached / "snapshots" / main.read_text().strip()


@lru_cache(maxsize=8)
def _frozen(path: str, device: str) -> nn.Module:
    if not Path(path, "config.json").exists():
        raise FileNotFoundError(
            f"{path}: no checkpoint (config.json and model.safetensors); `python -m data_prep mini` makes mini's, and the README says "
            "where the other profiles' come from"
        )
    logging.disable_progress_bar()
    # the project's own checkpoints are stored in half precision and trained in full
    options = {"dtype": torch.float32, "local_files_only": True, "use_safetensors": True, "add_pooling_layer": False}
    try:
        model, report = AutoModel.from_pretrained(path, output_loading_info=True, **options)
    except Exception as error:  # safetensors and transformers have kinds of their own
        raise OSError(f"{path}: not a readable checkpoint ({type(error).__name__}: {str(error).splitlines()[0]})") from None
    if report["missing_keys"]:  # they would be drawn at random
        raise OSError(f"{path}: the checkpoint lacks {sorted(report['missing_keys'])[0]}")
    return model.requires_grad_(False).to(device)


def load_backbone(path: Path, device: str = "cpu") -> nn.Module:
    """A backbone whose frozen weights are shared in the device's memory by all that load the same path; the modules are its own.

    Raises:
        OSError: there is no checkpoint, or it can't be read; the message names it.
    """
    frozen = _frozen(str(path), device)
    # what is in the memo is not copied but shared
    return copy.deepcopy(frozen, {id(parameter): parameter for parameter in frozen.parameters()})
