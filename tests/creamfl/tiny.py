"""A federation of seconds: six clients of three kinds, whose networks from scratch are tiny, on a
few scenes of the embedded world.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fingerprints import TINY_NETWORKS

from fedmuscle_lib.creamfl.build import Federation, build
from fedmuscle_lib.creamfl.settings import Settings

CLIENTS = {"images": 2, "texts": 2, "pairs": 2}
TINY: dict[str, Any] = {
    "clients": CLIENTS,
    "participants": 4,
    "rounds": 3,
    "local_epochs": 1,
    "public_size": 24,
    "test_size": 20,
    "pairs_size": 24,
    "dim": 8,
    "batch_size": 12,
    "labelled_batch": 512,
    "image_size": 32,
    "networks": TINY_NETWORKS,
    "device": os.environ.get("FEDMUSCLE_TEST_DEVICE", "cpu"),
}


def settings(world: Path, **given: Any) -> Settings:
    return Settings(**(TINY | {"data_dir": world, "models_path": world / "models"} | given))


def federation(world: Path, **given: Any) -> Federation:
    return build(settings(world, **given))
