"""What the pretraining scripts share: recipes, the optimiser, the loop, and how a result is saved.

The shipped weights were made with these recipes at an earlier commit, which their cards name as
commands of ``data_prep``. The scripts keep the arithmetic.
"""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from tqdm import trange
from transformers import PreTrainedModel, PreTrainedTokenizerBase

RECIPES = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text(encoding="utf8"))
WARM_UP, WEIGHT_DECAY, MAX_NORM = 0.1, 0.05, 1.0
TEMPERATURE = 0.1  # of the contrast, as in Khosla et al. (2020)


def optimisation(model: nn.Module, lr: float, steps: int) -> tuple[Optimizer, LRScheduler]:
    """Return AdamW, which decays matrices alone, and a one-cycle schedule with peak ``lr``."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=lr, fused=True)
    return optimizer, OneCycleLR(optimizer, lr, total_steps=steps, pct_start=WARM_UP)


def fit(
    label: str,
    model: nn.Module,
    loss: Callable[[int], Tensor],
    steps: int,
    how: tuple[Optimizer, LRScheduler],
    max_norm: float = MAX_NORM,
) -> None:
    """Train the model behind a progress bar. ``loss`` draws a step's batch and returns its loss."""
    optimizer, schedule = how
    with trange(steps, desc=label, mininterval=5) as bar:
        for step in bar:
            value = loss(step)
            optimizer.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            schedule.step()
            if step % 50 == 0:
                bar.set_postfix(loss=f"{value.item():.3f}")


def contrastive(features: Tensor) -> Tensor:
    """Return the supervised contrast (Khosla et al., equation 2) of features, a scalar.

    Each row is told from all others by cosine; rows i and n + i are of one class. Without it,
    features keep the ground and the layout of an image, and two backbones agree on these more than
    on classes.

    Args:
        features: (2 n, width).
    """
    unit = F.normalize(features, dim=1)
    logits = (unit @ unit.T / TEMPERATURE).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(features)).roll(len(features) // 2))


def claim(folder: Path) -> Path:
    """Make a new folder for a result and return it.

    Raises:
        FileExistsError: the folder is there.
    """
    folder.mkdir(parents=True)
    return folder


def save(
    backbone: PreTrainedModel,
    folder: Path,
    report: dict,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Save a backbone in half precision, its tokenizer, and ``pretraining.json``."""
    backbone.half().save_pretrained(folder)
    if tokenizer:
        tokenizer.save_pretrained(folder)
    report |= {
        "parameters": backbone.num_parameters(),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    (folder / "pretraining.json").write_text(json.dumps(report, indent=2) + "\n")
    print(f"{folder}: {report}")
