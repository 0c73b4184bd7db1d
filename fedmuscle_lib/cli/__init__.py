"""The commands of ``python -m fedmuscle_lib``, one module each.

``form`` makes options of settings; ``options`` reads values from text; ``original`` knows the flags
of FedMuscle's original code.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fedmuscle_lib.cli import (
    algorithms,
    bench,
    creamfl,
    fedloge,
    network,
    notebook,
    realign,
    reproduce,
    run,
    runs,
    verify,
)
from fedmuscle_lib.core.command_line import App

app = App(
    help="FedMuscle: run an experiment, regenerate the notebooks, look after stored runs, measure.",
    add_completion=False,
    rich_markup_mode="rich",  # groups of options; errors are told by `__main__`
    pretty_exceptions_enable=False,
)


@app.callback()
def _everywhere(
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback", help="Show the whole traceback of an error; anywhere on the line."
        ),
    ] = False,
) -> None:
    pass  # ``__main__`` takes the flag off the line, so that it may stand behind a command too


app.command("run", context_settings={"token_normalize_func": run.FORM.spelling})(run.command)
app.command("fedloge", context_settings={"token_normalize_func": fedloge.FORM.spelling})(
    fedloge.command
)
app.command("creamfl", context_settings={"token_normalize_func": creamfl.FORM.spelling})(
    creamfl.command
)
app.command("realign")(realign.command)
app.command("reproduce")(reproduce.command)
app.add_typer(runs.app, name="runs")
app.command("verify")(verify.command)
app.command("bench")(bench.command)
app.command("serve")(network.serve)
app.command("join")(network.join)
app.command("keys")(network.keys)
app.command("algorithms")(algorithms.command)
app.command("notebook")(notebook.command)

__all__ = ["app"]
