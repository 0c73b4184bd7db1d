"""``certificates``: by which server and parties of a federation over machines know each other.

``__main__`` runs it without the other commands, which import torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmuscle_lib.network.certificates import make

app = typer.Typer(add_completion=False)


@app.callback()
def _() -> None:
    """A federation over machines."""


@app.command("certificates")
def command(
    folder: Annotated[Path, typer.Argument(help="Where they go; what is there already stays.")],
    user: Annotated[
        list[int] | None, typer.Option(min=1, help="Number of a user; repeatable.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of the server, for its certificate; repeatable."),
    ] = None,
) -> None:
    """Make an authority and the certificates that it signs: one for each user and, if a host is
    named, the server's.

    Each file but root.pem holds a private key, and is for its owner alone.
    """
    for path in make(folder, user or [], host or []):
        print(path)
