"""``serve`` and ``join``: a federation over machines.

What is imported of it is imported when one of them runs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmuscle_lib.cli.options import Parameters, named_values

_say = partial(print, flush=True)
_PLACES = ("data", "model", "certificate", "root", "state")  # of a party's file


def _needs_grpc() -> None:
    try:
        import grpc  # noqa: F401
    except ImportError:
        raise RuntimeError(
            "a federation over machines needs grpcio: pip install -e '.[federated]' in the clone"
        ) from None


def serve(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="SERVER.TOML", help="The server's file; docs/federation.md describes it."
        ),
    ],
) -> None:
    """Be the server of a federation over machines: listen, do the rounds that are left, and end.

    It has no model and no data.
    """
    _needs_grpc()
    from fedmuscle_lib.network.server import serve
    from fedmuscle_lib.network.terms import ServerFile, read

    serve(read(ServerFile, file), _say)


def join(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="PARTY.TOML", help="The party's file; docs/federation.md describes it."
        ),
    ],
    parameter: Parameters = None,
) -> None:
    """Take part in a federation over machines with your own data and model, until its rounds are
    over.

    With -p, NAME=VALUE is a field of the file, such as task=IC10, or a setting of your training.
    """
    _needs_grpc()
    from fedmuscle_lib.network.join import join
    from fedmuscle_lib.network.terms import PartyFile, read

    given: dict[str, Any] = {"settings": {}}
    for name, value in named_values(parameter).items():
        if name in PartyFile.model_fields:
            given[name] = Path(value).absolute() if name in _PLACES else value
        else:
            given["settings"][name] = value
    join(read(PartyFile, file, given), _say)
