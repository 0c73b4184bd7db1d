"""``python -m data_prep NAME``: a command for each data set, which ends in the README's ``data_dir`` layout.

What a command needs is imported inside it: the one data set then never waits for the libraries of another.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).parents[1]

# Read when numpy is imported. The matrices here are small: on busy cores, more threads made the glyphs six times as slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__.splitlines()[0].replace("``", ""))


@app.command()
def mini(
    data_dir: Annotated[Path, typer.Option(help="Where to write it.", show_default="data/mini of the repository")] = ROOT / "data/mini",
) -> None:
    """Generate the embedded world: no download, seconds."""
    from data_prep.mini import prepare

    started = time.perf_counter()
    typer.echo(f"mini: preparing {data_dir} ...")
    manifest = prepare(data_dir)
    typer.echo(f"mini: {len(manifest['files'])} files, sha256 {manifest['sha256'][:12]}, {time.perf_counter() - started:.1f} s")


@app.command()
def mini_backbones(
    names: Annotated[list[str] | None, typer.Argument(help="Which; all by default.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="Where to save them.", show_default="data_prep/weights, the shipped ones")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of pretraining.", show_default="the recipe's")] = None,
) -> None:
    """Pretrain the embedded world's backbones anew: minutes each on one core."""
    from data_prep.mini_backbones import RECIPES, WEIGHTS, pretrain

    for name in names or ():
        if name not in RECIPES:
            raise typer.BadParameter(f"unknown backbone {name!r}; known: {', '.join(RECIPES)}", param_hint="NAMES")
    for name in names or RECIPES:
        report = pretrain(name, out or WEIGHTS, steps)
        typer.echo(
            f"{name}: {report['parameters']:,} parameters, {report['steps']} steps, {report['cpu_seconds']} CPU s, "
            f"{report['upstream_accuracy']:.1%} upstream accuracy -> {(out or WEIGHTS) / name}"
        )


def main(arguments: list[str] | None = None) -> None:
    """Run a command line; a full disk or an unwritable folder is one line, not a traceback."""
    try:
        app(arguments)
    except OSError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
