"""``python -m data_prep NAME``: a command for each data set, which ends in the README's ``data_dir`` layout.

What a command needs is imported inside it: the one data set then never waits for the libraries of another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from data_prep.catalogue import CATALOGUE, Entry, SourceError

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


# the module of each public data set: its places and how they are written
MODULES = {
    "cifar10": "cifar",
    "cifar100": "cifar",
    "coco": "coco",
    "voc": "voc",
    "flickr30k": "flickr30k",
    "yahoo": "topics",
    "ag-news": "topics",
    "food101": "photo_classes",
    "caltech101": "photo_classes",
    "tiny-imagenet": "tiny_imagenet",
}


def _public_data_set(entry: Entry) -> Callable[..., None]:
    def command(
        data_dir: Annotated[Path, typer.Option(help="Where to write it.", show_default="data/real of the repository")] = ROOT / "data/real",
        base_url: Annotated[str | None, typer.Option(help="Every archive is URL/<name>: http, https or file.")] = None,
        archives: Annotated[Path | None, typer.Option(help="A folder of archives that are already there.")] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be fetched; fetch nothing.")] = False,
        allow_subset: Annotated[bool, typer.Option("--allow-subset", help="Accept another file than the official from its host.")] = False,
        force: Annotated[bool, typer.Option("--force", help="Replace what another command or a person put there.")] = False,
        seed: Annotated[int, typer.Option(min=0, help="Draws who gets which sample.")] = 0,
        alpha: Annotated[float | None, typer.Option(min=1e-3, help="Divide classes by Dirichlet(alpha); evenly by default.")] = None,
        clients: Annotated[int | None, typer.Option(min=1, help="Users.", show_default="the paper's")] = None,
        train_size: Annotated[int | None, typer.Option(min=1, help="Least training set of a user.", show_default="Appendix G's")] = None,
        pool: Annotated[int | None, typer.Option(min=1, help="Training file of a user, that seeds draw from.")] = None,
        val: Annotated[int | None, typer.Option(min=0, help="Validation samples of a user.")] = None,
        test: Annotated[int | None, typer.Option(min=0, help="Test samples of a user.", show_default="Appendix G's")] = None,
        public: Annotated[int | None, typer.Option(min=0, help="Images of the public set.", show_default="5000")] = None,
        size: Annotated[int | None, typer.Option(min=8, help="Longest side of a kept image, or the side of a pickled one.")] = None,
        parts: Annotated[str | None, typer.Option(help="Which of mlc,ss,public to make.", show_default="all")] = None,
        skip_missing: Annotated[bool, typer.Option("--skip-missing", help="Go on without images that can't be had.")] = False,
    ) -> None:
        from data_prep.build import plan, prepare
        from data_prep.fetch import Source

        particular = {
            "alpha": alpha,
            "clients": clients,
            "train_size": train_size,
            "pool": pool,
            "val": val,
            "test": test,
            "public": public,
            "size": size,
            "parts": parts,
            "skip_missing": skip_missing or None,
        }
        if idle := [name for name, value in particular.items() if value is not None and name not in entry.takes]:
            raise typer.BadParameter(f"{entry.name} has no use for it", param_hint=f"--{idle[0].replace('_', '-')}")
        options = {"seed": seed} | {name: value for name, value in particular.items() if name in entry.takes}
        source = Source.of(data_dir / "archives", base_url, archives)
        module = import_module(f"data_prep.{MODULES[entry.name]}")
        places = module.places(entry.name, options)
        if dry_run:
            return plan(entry, source, data_dir, places, typer.echo)
        started = time.perf_counter()
        prepare(entry, options, source, data_dir, places, module.write, allow_subset=allow_subset, force=force, say=typer.echo)
        typer.echo(f"{entry.name}: {', '.join(str(data_dir / place.folder) for place in places)}, {time.perf_counter() - started:.1f} s")

    return command


for _entry in CATALOGUE.values():
    app.command(_entry.name, help=_entry.title)(_public_data_set(_entry))


def main(arguments: list[str] | None = None) -> None:
    """Run a command line; a full disk, an unwritable folder or a damaged archive is one line, not a traceback."""
    try:
        app(arguments)
    except (OSError, SourceError) as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
