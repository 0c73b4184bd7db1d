"""The command line: ``python -m fedmuscle_lib run | reproduce | bench | algorithms``.

What a person can get wrong ends in one line and exit code 2; ``--traceback`` shows where it came from. The README's flags are
accepted by ``run`` under the names that it gives.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, get_args, get_origin

import torch
import typer
from pydantic.fields import FieldInfo

from fedmuscle_lib import algorithms as registry
from fedmuscle_lib import bench, experiment, report
from fedmuscle_lib.experiment import History, run, stored
from fedmuscle_lib.reproduce import reproduce
from fedmuscle_lib.settings import PROFILES, Settings, parse
from fedmuscle_lib.setups import SETUPS, User

# The README's name of a setting, and its values where ours are called differently.
README_NAMES = {"algorithm": "aggregation_method", "public": "public_dataset_name", "rounds": "num_epochs"}
README_VALUES = {"algorithm": {"local_training": "local"}, "public": {"pascal": "voc", "flicker_multi_modal": "flickr30k"}}
README_COUNTS = {f"num_{task}_clients": task for task in ("MLC", "IC100", "IC10", "SS", "TG")}
README_COUNTS["num_yahoo_topic_classification_clients"] = "TC"

app = typer.Typer(
    help="FedMuscle: run an experiment, regenerate the notebooks, measure.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _everywhere(
    traceback: Annotated[bool, typer.Option("--traceback", help="Show the whole traceback of an error; anywhere on the line.")] = False,
) -> None:
    pass  # ``main`` takes the flag off the line, so that it may stand behind a command too


# --- run ---------------------------------------------------------------------------------------------------------------------


def _run(with_local: bool, **options: str | int | None) -> None:
    """Run one experiment, or fetch it if it was run before, and print its metrics beside the trivial ones, and Delta."""
    settings = settings_from(options)
    baseline = settings.model_copy(update={"algorithm": report.BASELINE})
    local = run(baseline) if with_local else stored(baseline)
    history = run(settings)
    histories = [history] if settings.algorithm == report.BASELINE or local is None else [local, history]
    _print_run(histories)


def _print_run(histories: list[History]) -> None:
    history = histories[-1]
    trivial = report.trivial([history]).set_index("user")["mean"].rename("trivial")
    rows = history.final().drop(columns=["round", "phase"]).join(trivial, on="user")
    print(rows.round({"value": 2, "trivial": 2}).to_string(index=False))
    cost = report.costs([history]).iloc[0]
    print(
        f"per user and round: {cost.uplink_bytes / 1e6:.2f} MB up, {cost.downlink_bytes / 1e6:.2f} MB down; "
        f"{cost.tflop:.2f} TFLOP and {cost.seconds:.0f} s in all"
    )
    if len(histories) == 2:
        for phase in ("after_alignment", "after_local"):
            delta = report.delta(histories, phase).set_index("algorithm").delta[history.settings.algorithm]
            print(f"Delta {phase.replace('_', ' ')}: {delta:+.2f} %")
    elif history.settings.algorithm != report.BASELINE:
        print("Delta: local training has not been run with these settings; --with-local runs it too")


def settings_from(options: dict[str, str | int | None]) -> Settings:
    """Settings from what was given on the command line; None is not given.

    Raises:
        ValueError: a value that the setting can't have, or settings that contradict each other.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if (method := given.pop("adapter_method", "lora")) != "lora":
        raise ValueError(f"adapter_method: only lora is known, not {method!r}")
    counts = {name: given.pop(name) for name in README_COUNTS if name in given}
    values = {name: value_of(name, str(text)) for name, text in given.items()}
    if values.get("public") == "flickr30k":
        values.setdefault("setup", "setup2")  # the README's command names none
    if counts:
        values["users"] = _first_users(SETUPS.get(values.get("setup", Settings.model_fields["setup"].default), ()), counts)
    settings = parse(values)
    _try_device(settings.device)
    return settings


def _try_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: {name!r} can't be used here: {str(error).splitlines()[0]}") from None


def _first_users(setup: Sequence[User], counts: dict[str, int]) -> tuple[int, ...]:
    """Numbers of the first users of each counted task; of the other tasks nobody takes part."""
    chosen: list[int] = []
    for name, count in counts.items():
        numbers = [user.number for user in setup if user.task == README_COUNTS[name]]
        if not 0 <= count <= len(numbers):
            raise ValueError(f"{name}: there are {len(numbers)} users with {README_COUNTS[name]}, not {count}")
        chosen += numbers[:count]
    return tuple(sorted(chosen))


def value_of(name: str, text: str) -> Any:
    """A setting's value from its text: JSON for matrices and mappings, commas between the items of a list, else as it stands."""
    if name == "device" and text.isdigit():  # the README's --device 0
        return f"cuda:{text}"
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}: {text!r} is not JSON ({error})") from None
    if name in Settings.model_fields and _is_list(Settings.model_fields[name]):
        return tuple(item.strip() for item in text.split(","))
    return README_VALUES.get(name, {}).get(text, text)


def _is_list(field: FieldInfo) -> bool:
    """Whether the field takes a flat tuple (a matrix is none)."""
    kinds = [field.annotation, *get_args(field.annotation)]
    return any(get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is not tuple for kind in kinds)


def _run_parameters() -> list[inspect.Parameter]:
    """An option for every setting, and the README's that are none."""
    parameters = [_flag("with_local", "Run local training of the same settings first, for Delta.")]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        spellings = [name, README_NAMES.get(name, name)]
        help = f"{field.description} [default: {'the profile decides' if _in_profiles(name) else default}]"
        parameters.append(_option(name, spellings, help, "TEXT"))
    counts = {name: f"The first K users with {task}; who is not counted takes no part." for name, task in README_COUNTS.items()}
    parameters += [_option(name, [name], help, "K", int) for name, help in counts.items()]
    parameters.append(_option("adapter_method", ["adapter_method"], "lora.", "TEXT"))
    return parameters


def _in_profiles(name: str) -> bool:
    return any(name in profile for profile in PROFILES.values())


def _option(name: str, spellings: Sequence[str], help: str, metavar: str, kind: type = str, hidden: bool = False) -> inspect.Parameter:
    flags = dict.fromkeys(flag for spelling in spellings for flag in (f"--{spelling.replace('_', '-')}", f"--{spelling}"))
    option = typer.Option(*flags, help=help, metavar=metavar, hidden=hidden, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def _flag(name: str, help: str) -> inspect.Parameter:
    option = typer.Option(f"--{name.replace('_', '-')}", help=help)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])


_run.__signature__ = inspect.Signature(_run_parameters())
app.command("run")(_run)


# --- the other commands ------------------------------------------------------------------------------------------------------


@app.command("reproduce")
def _reproduce(
    notebooks: Annotated[list[str] | None, typer.Argument(metavar="[NOTEBOOK]...", help="Names such as table7; all by default.")] = None,
    profile: Annotated[str, typer.Option(help=Settings.model_fields["profile"].description)] = "mini",
    seeds: Annotated[str, typer.Option(metavar="0,1,2", help="Seeds of every run.")] = "0",
    jobs: Annotated[int, typer.Option(min=1, help="Notebooks at a time.")] = 2,
    output: Annotated[Path, typer.Option(help="Where <profile>/<notebook>/ is written.")] = Path("figures"),
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A notebook's parameter or any setting; repeatable.")
    ] = None,
) -> None:
    """Execute notebooks and regenerate their tables, figures and the index page."""
    outcomes = reproduce(notebooks or None, profile, _seeds(seeds), jobs, output, dict(map(_named_value, parameter or [])))
    for outcome in outcomes:
        print(f"{outcome.notebook}: {'failed: ' + outcome.failure if outcome.failure else 'done'} ({outcome.seconds:.0f} s)")
    print(f"index: {output / profile / 'index.html'}")
    raise typer.Exit(int(any(outcome.failure for outcome in outcomes)))


def _seeds(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise ValueError(f"seeds: whole numbers with commas between them, not {text!r}") from None


def _named_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"-p takes NAME=VALUE, not {text!r}")
    value = value_of(name, value)
    try:
        return name, json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        return name, value


def _bench_run(settings: Settings) -> None:
    """Two rounds of local training and of FedMuscle, computed anew and one after the other."""
    with TemporaryDirectory() as folder:
        experiment.RUNS = Path(folder)  # what is in the store was measured some other time
        histories = [run(settings.model_copy(update={"algorithm": name, "rounds": 2})) for name in ("local", "fedmuscle")]
    print(report.costs(histories).round(2).to_string(index=False))


def _bench_loss(settings: Settings) -> None:
    bench.bench_loss(dim=settings.proj_dim, threads=settings.threads, device=settings.device, seed=settings.seed)


BENCHES: dict[str, Callable[[Settings], object]] = {"run": _bench_run, "loss": _bench_loss, "step": bench.bench_step}


@app.command("bench")
def _bench(
    name: Annotated[str, typer.Argument(metavar="|".join(sorted(BENCHES)), help="What to measure on this machine.")],
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="Any setting, such as profile=paper; repeatable.")
    ] = None,
) -> None:
    """Print what the loss costs beside the README's form, what an alignment step or a short run costs."""
    if name not in BENCHES:
        raise ValueError(f"no benchmark {name!r}; known: {', '.join(sorted(BENCHES))}")
    threads = {"threads": 2} if name == "loss" else {}  # the loss is large enough to be shared, the mini models are not
    settings = parse(threads | dict(map(_named_value, parameter or [])))
    _try_device(settings.device)
    BENCHES[name](settings)


@app.command("algorithms")
def _algorithms() -> None:
    """List the algorithms: name, label, and whether it is the paper's, a control or ours."""
    for name in registry.names():
        algorithm = registry.get(name)
        print(f"{name:14}{algorithm.label:30}{algorithm.source}")


# --- the way in and out ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 1 (a notebook failed), 2 (a mistake, told in one line), 130 (interrupted)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    whole = "--traceback" in arguments
    logger = logging.getLogger("fedmuscle")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler := logging.StreamHandler())
    try:
        code = app([a for a in arguments if a != "--traceback"], prog_name="python -m fedmuscle_lib", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (ValueError, OSError, typer.TyperException) as error:
        if whole:
            traceback.print_exc()
        print(f"error: {_told(error)}", file=sys.stderr)
        return 2
    finally:
        logger.removeHandler(handler)


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
