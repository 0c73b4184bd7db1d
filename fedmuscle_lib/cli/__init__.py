"""The commands of ``python -m fedmuscle_lib``, one module each; ``commands`` has them all.

``form`` makes options of settings; ``options`` reads values from text; ``original`` knows the flags
of FedMuscle's original code.
"""

from __future__ import annotations

from typing import Any

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """``app``, imported when it is asked for: a command that needs no model imports no torch."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedmuscle_lib.cli.commands import app

    return app
