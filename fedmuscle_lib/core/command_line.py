"""Command lines: each option once, and paths as a person writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from fedmuscle_lib.core.files import user_path


class Command(TyperCommand):
    """A command that refuses an option given twice, where the last would win, and reads paths by
    :func:`files.user_path`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line into ``ctx.params``; raises ValueError if an option is given twice,
        or a path is empty.
        """
        texts, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(given).items():
            if (
                times > 1
                and parameter.name in texts
                and not isinstance(texts[parameter.name], list | tuple)
            ):
                raise ValueError(
                    f"{parameter.opts[0]} is given {'twice' if times == 2 else f'{times} times'}"
                )
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            written = texts.get(name, value)  # of an empty text, Path makes "."
            if isinstance(value, Path):
                ctx.params[name] = user_path(written, name)
            elif isinstance(value, list):
                ctx.params[name] = [
                    user_path(text, name) if isinstance(one, Path) else one
                    for one, text in zip(value, written, strict=True)
                ]
        return rest


class App(typer.Typer):
    """Commands of this kind."""

    def command(  # type: ignore[override]
        self, name: str | None = None, **about: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return super().command(name, cls=Command, **about)
