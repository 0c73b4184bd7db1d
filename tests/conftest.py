"""What every test shares: no display, one thread, and the embedded world."""

from __future__ import annotations

import os
from pathlib import Path

os.environ |= {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}  # read when numpy, torch and matplotlib are imported

import pytest

from data_prep.world.mini import prepare

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def mini_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded world: the repository's own if it was prepared, else one of this session."""
    data_dir = ROOT / "data/mini"
    if not data_dir.exists():
        data_dir = tmp_path_factory.mktemp("data") / "mini"
    prepare(data_dir)
    return data_dir
