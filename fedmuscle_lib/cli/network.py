"""``serve``, ``join`` and ``keys``: a federation over machines.

What is imported of it is imported when one of them runs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmuscle_lib.cli.options import Parameters, named_values, numbers_of


def needs_grpc() -> None:
    """Raise a RuntimeError that says how to install grpcio, where it is not there."""
    try:
        import grpc  # noqa: F401
    except ImportError:
        raise RuntimeError(
            "a federation over machines needs grpcio: pip install 'fedmuscle-notebooks[federated]'"
        ) from None


_say = partial(print, flush=True)
_PLACES = ("data", "model", "key", "root", "state")  # of a party's file


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
    needs_grpc()
    from fedmuscle_lib.network.serve import serve
    from fedmuscle_lib.network.terms import ServerFile, read

    serve(read(ServerFile, file, {}), _say)


def join(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PARTY.TOML]", help="The party's file; docs/federation.md describes it."
        ),
    ] = None,
    parameter: Parameters = None,
) -> None:
    """Take part in a federation over machines with your own data and model, until its rounds are
    over.

    With -p, NAME=VALUE is a field of the file, such as user=2, limits.NAME=VALUE a limit, or a
    setting of your training.
    """
    needs_grpc()
    from fedmuscle_lib.network.party import Party
    from fedmuscle_lib.network.terms import PartyFile, read

    given: dict[str, Any] = {}
    for name, value in named_values(parameter).items():
        if name in PartyFile.model_fields:
            given[name] = Path(value).absolute() if name in _PLACES else value
        else:
            table = "limits" if name.startswith("limits.") else "settings"
            given.setdefault(table, {})[name.removeprefix("limits.")] = value
    Party(read(PartyFile, file, given), _say).run()


def keys(
    folder: Annotated[Path, typer.Argument(help="Where they go; what is there already stays.")],
    users: Annotated[
        str, typer.Option(help="Numbers of the users, with commas between them.")
    ] = "",
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of the server, for its certificate; repeatable."),
    ] = None,
) -> None:
    """Make a key for each user and, if a host is named, a certificate for the server.

    To try a federation, make all at once; a party needs its user_N.key and server.pem. Elsewhere
    each party makes its own key and sends user_N.pub alone.
    """
    needs_grpc()
    from fedmuscle_lib.network import keys as made

    numbers = numbers_of("users", users) if users else []
    for path in made.make(folder, numbers, host or []):
        print(path)
