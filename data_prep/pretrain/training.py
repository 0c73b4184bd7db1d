"""What all pretraining here shares: the optimiser, a step, and saving a backbone with its model card and report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from tqdm import trange
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from data_prep import ROOT
from data_prep.io.files import put
from fedmuscle_lib.core.files import named

WARM_UP = 0.1  # share of the steps
WEIGHT_DECAY = 0.05
MAX_NORM = 1.0  # of the gradient


def optimisation(model: nn.Module, lr: float, steps: int) -> tuple[AdamW, OneCycleLR]:
    """Return AdamW and a one-cycle schedule with its peak at ``lr``. Weight decay applies to matrices, not to biases and norms."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=lr, fused=True)
    return optimizer, OneCycleLR(optimizer, lr, total_steps=steps, pct_start=WARM_UP)


def fit(
    label: str,
    model: nn.Module,
    loss: Callable[[int], Tensor],
    steps: int,
    optimisation: tuple[Optimizer, LRScheduler],
    max_norm: float = float("inf"),
) -> None:
    """Train the model behind a progress bar.

    Args:
        loss: draws a step's batch and returns its loss.
    """
    with trange(steps, desc=label, mininterval=5) as bar:
        for step in bar:
            value = loss(step)
            descend(value, model, *optimisation, max_norm)
            if step % 50 == 0:
                bar.set_postfix(loss=f"{value.item():.3f}")


def descend(loss: Tensor, model: nn.Module, optimizer: Optimizer, schedule: LRScheduler, max_norm: float = float("inf")) -> None:
    """Step down the gradient of ``loss``, clipped at ``max_norm``, and step the learning rate."""
    optimizer.zero_grad()
    loss.backward()
    if max_norm < float("inf"):
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    schedule.step()


def save(backbone: PreTrainedModel, folder: Path, report: dict, card: str, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
    """Save a checkpoint in half precision (``backbone`` is halved in place) with its model card and its report.

    The report, ``pretraining.json``, is written last: if it is there, the other files are complete.
    """
    with named(folder):
        backbone.half().save_pretrained(folder)
        if tokenizer:
            tokenizer.save_pretrained(folder)
    describe(folder, report, card)


def describe(folder: Path, report: dict, card: str) -> None:
    """Write a checkpoint's model card and, after it, its report."""
    put(folder / "README.md", card.encode())
    put(folder / "pretraining.json", (json.dumps(report, indent=2) + "\n").encode())


def read_report(folder: Path) -> dict | None:
    """Return the report of the finished checkpoint in ``folder``, or None if there is none."""
    try:
        return json.loads((folder / "pretraining.json").read_text())
    except (FileNotFoundError, ValueError):  # the latter: cut short
        return None


def public(path: Path) -> str:
    """Return the path for a model card: relative to the repository, or its last two names, not the path on this machine."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else "/".join(path.parts[-2:])
