"""The profiles: one TOML file each. A profile is numbers, names and paths; nothing outside asks which profile it is."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]  # the clone
_PATHS = ("data_dir", "models_path")


def read(path: Path) -> dict[str, Any]:
    """A profile's settings; its relative paths start at the clone."""
    profile = tomllib.loads(path.read_text(encoding="utf8"))
    return profile | {name: ROOT / profile[name] for name in _PATHS if name in profile}


PROFILES: dict[str, dict[str, Any]] = {path.stem: read(path) for path in sorted(Path(__file__).parent.glob("*.toml"))}
