"""Command lines: no value is empty, and a path may begin with ``~``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command that refuses an empty value, as an unset variable of the shell gives, and reads a
    path that begins with ``~``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line into ``ctx.params``; raises ValueError if a value is empty."""
        for before, text in pairwise(["an argument", *args]):
            if not text or text.startswith("--") and text.endswith("="):
                raise ValueError(f"{text.rstrip('=') or before}: the value is empty")
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            if isinstance(value, Path):
                ctx.params[name] = value.expanduser()
            elif isinstance(value, list):
                ctx.params[name] = [
                    one.expanduser() if isinstance(one, Path) else one for one in value
                ]
        return rest


class App(typer.Typer):
    """Commands of this kind."""

    def command(  # type: ignore[override]
        self, name: str | None = None, **about: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return super().command(name, cls=Command, **about)
