"""The embedded world of few files, for tests of how it is written and not of what it shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data_prep.world import mini
from data_prep.world.glyphs import SIDE, SPLITS, Vocabulary


def blots() -> Vocabulary:
    """A vocabulary of random masks, one a class in every split: drawing the true ones takes
    seconds.
    """
    users, upstream = (*Vocabulary.ic100, *Vocabulary.digits), Vocabulary.upstream
    instances = {split: {c: np.array([c]) for c in users} for split in SPLITS} | {
        "upstream": {c: np.array([c]) for c in upstream}
    }
    masks = torch.rand(
        len(users) + len(upstream),
        SIDE,
        SIDE,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
    )
    return Vocabulary(masks, instances, {c: f"blot {c}" for c in (*users, *upstream)})


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make worlds small until the test ends: a few samples of every set, of blots, one backbone,
    and neither synthetic images nor noise.
    """
    monkeypatch.setattr(mini, "vocabulary", blots)
    for name in ("POOL", "VALIDATION", "TEST"):
        monkeypatch.setattr(mini, name, dict.fromkeys(mini.FOLDERS, 2))
    monkeypatch.setattr(mini, "PUBLIC", 4)
    monkeypatch.setattr(mini, "LABELLED", {"train": 2, "test": 1})
    monkeypatch.setattr(
        mini, "SCENES", {name: (instances, 3) for name, (instances, _) in mini.SCENES.items()}
    )
    monkeypatch.setattr(mini, "_synthetic", lambda root, words: None)
    monkeypatch.setattr(mini, "MINI_WEIGHTS", mini.MINI_WEIGHTS / "weak-vit-tiny")
