"""Parts of every pretraining: recipes, optimiser, training loop, contrastive loss, and checkpoints
with a model card and a report.
"""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from tqdm import trange
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.files import ROOT, named, put

WARM_UP = 0.1  # share of the steps
WEIGHT_DECAY = 0.05
MAX_NORM = 1.0  # of the gradient
TEMPERATURE = 0.1  # of the contrast, as in Khosla et al. (2020)
REPORT = "pretraining.json"  # in a finished checkpoint's folder
PROGRESS = ("checkpoint.pt", "training_log.csv")  # in the folder of one that is being trained
CARDS = Path(__file__).parent / "cards"
RECIPES = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text(encoding="utf8"))
MADE_WITH = {"torch": torch.__version__, "machine": platform.machine()}  # the end of each report


class Optimisation(NamedTuple):
    """How :func:`fit` steps: gradients are clipped at ``max_norm``."""

    optimizer: Optimizer
    schedule: LRScheduler
    max_norm: float = MAX_NORM


def optimisation(model: nn.Module, lr: float, steps: int) -> Optimisation:
    """Return AdamW and a one-cycle schedule with its peak at ``lr``.

    Weight decay applies to matrices, not to biases and norms.
    """
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=lr, fused=True)
    return Optimisation(optimizer, OneCycleLR(optimizer, lr, total_steps=steps, pct_start=WARM_UP))


def fit(
    label: str, model: nn.Module, loss: Callable[[int], Tensor], steps: int, how: Optimisation
) -> float:
    """Train the model behind a progress bar; return the mean loss.

    Args:
        loss: draws a step's batch and returns its loss.

    Raises:
        FloatingPointError: the loss is no longer a number.
    """
    total = 0.0
    with trange(steps, desc=label, mininterval=5) as bar:
        for step in bar:
            value = loss(step)
            how.optimizer.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), how.max_norm)
            how.optimizer.step()
            how.schedule.step()
            total += value.item()
            if step % 50 == 0:
                bar.set_postfix(loss=f"{value.item():.3f}")
    if not total < float("inf"):
        raise FloatingPointError(f"{label}: the mean loss is {total / steps}")
    return total / steps


def contrastive(features: Tensor) -> Tensor:
    """Return the mean cross-entropy of telling each sample's partner from all other samples by
    cosine: Khosla et al.'s equation 2.

    Without it, features keep what a sample looks like besides its class: its ground, its layout,
        its frame of words. Two backbones then
    agree on these more than on classes, unlike those of the paper, which were trained on ImageNet
    with augmentation.

    Args:
        features: (2 n, width); the rows i and n + i are of one class, and count as of another class
            than the rest.
    """
    unit = F.normalize(features, dim=1)
    logits = (unit @ unit.T / TEMPERATURE).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(features)).roll(len(features) // 2))


def card(template: str, facts: dict[str, Any]) -> str:
    """Return a model card, or a part of one, from a file of ``cards``."""
    return (CARDS / f"{template}.md").read_text(encoding="utf8").format(**facts)


def save(
    backbone: PreTrainedModel,
    folder: Path,
    report: dict,
    card: str,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Save a checkpoint in half precision (``backbone`` is halved in place) with its model card and
    its report.

    The report, ``pretraining.json``, is written last: if it is there, the other files are complete.
    """
    with placed(folder) as new:
        with named(folder):
            backbone.half().save_pretrained(new)
            if tokenizer:
                tokenizer.save_pretrained(new)
        describe(new, report, card)


@contextmanager
def placed(folder: Path) -> Iterator[Path]:
    """A folder to write a checkpoint to; at the end its files take the place of those in
    ``folder``, which :func:`claim` has seen.
    """
    ownership.sweep(folder.parent, folder.name)
    with ownership.scratch(folder.parent, folder.name) as new:
        yield new
        ownership.exchange(new, folder, own=[path.name for path in new.glob("*")], last=REPORT)


def claim(folder: Path) -> None:
    """Raise NotOurs unless the folder of a checkpoint is free, or holds one of its name that these
    commands made or were making.
    """
    report = read_report(folder)
    ours = isinstance(report, dict) and report.get("name") == folder.name
    ownership.vacant(folder, folder.parent, but=PROGRESS, ours=ours)
    for path in folder.glob("*"):
        ownership.reach(path, folder)


def describe(folder: Path, report: dict, card: str) -> None:
    """Write a checkpoint's model card and, after it, its report."""
    put(folder / "README.md", card.encode())
    put(folder / REPORT, (json.dumps(report, indent=2) + "\n").encode())


def read_report(folder: Path) -> dict | None:
    """Return the report of the finished checkpoint in ``folder``, or None if there is none."""
    try:
        return json.loads((folder / REPORT).read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: cut short
        return None


def public(path: Path) -> str:
    """Return the path for a model card: relative to the repository, or its last two names, not the
    path on this machine.
    """
    path = path.resolve()
    return (
        path.relative_to(ROOT).as_posix()
        if path.is_relative_to(ROOT)
        else "/".join(path.parts[-2:])
    )
