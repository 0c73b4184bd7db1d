"""``run``: one experiment. It has an option for every setting, made from the settings themselves, and the original code's flags."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from fedmuscle_lib import algorithms, report
from fedmuscle_lib.cli import original
from fedmuscle_lib.cli.options import alternatives, is_list, try_device, value_of
from fedmuscle_lib.data import PUBLIC_SETS
from fedmuscle_lib.profiles import PROFILES, ROOT
from fedmuscle_lib.runs import History, run, stored
from fedmuscle_lib.settings import Settings, parse
from fedmuscle_lib.setups import SETUPS

# The groups of `run --help`, and the settings in each.
GROUPS = {
    "Federation": ("algorithm", "setup", "users", "public", "profile", "protocol", "seed", "others", "reply", "options"),
    "Training": (
        "rounds", "local_epochs", "epochs", "cl_epochs", "order", "batch_size", "public_batch_size", "public_size", "train_samples",
        "local_draw", "lr", "weight_decay", "optimisers", "evaluate_on", "evaluate_every", "refit",
    ),
    "Loss": ("tau", "tau_prime"),
    "Model": (
        "backbones", "proj_dim", "rank", "lora_alpha", "lora_layers", "lora_blocks", "head_layers", "head_hidden", "head_on", "pooling",
        "pooled_stages", "image_size", "mask_size", "text_length",
    ),
    "Data": ("data_dir", "models_path", "root_train_image_folder", "root_val_image_folder"),
    "Machine": ("device", "threads", "precision"),
}  # fmt: skip
_ORIGINAL = "Flags of the original code"
_CHOICES = {"algorithm": algorithms.names(), "setup": list(SETUPS), "public": list(PUBLIC_SETS), "profile": list(PROFILES)}
_RANGES = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def command(with_local: bool, **options: str | int | None) -> None:
    """Run one experiment, or fetch it if it was run before, and print its metrics beside what needs no backbone, and Delta."""
    settings = settings_from(options)
    baseline = settings.model_copy(update={"algorithm": report.BASELINE})
    local = run(baseline) if with_local else stored(baseline)
    history = run(settings)
    show([history] if settings.algorithm == report.BASELINE or local is None else [local, history])


def settings_from(options: dict[str, str | int | None]) -> Settings:
    """Settings from what was given on the command line; None is not given.

    Raises:
        ValueError: a value that the setting can't have, or settings that contradict each other.
    """
    given = {name: value_of(name, text) if isinstance(text, str) else text for name, text in options.items() if text is not None}
    settings = parse(original.translated(given))
    try_device(settings.device)
    return settings


def show(histories: list[History]) -> None:
    """Print the last run's metrics and costs and, with its local training before it, Delta."""
    history = histories[-1]
    references = report.references([history]).pivot(index="user", columns="reference", values="mean").round(2)
    rows = history.final().drop(columns=["round", "phase"]).round(2).join(references.sort_index(axis="columns"), on="user")
    print(rows.to_string(index=False))
    cost = report.costs([history]).iloc[0]
    print(
        f"per user and round: {cost.uplink_bytes / 1e6:.2f} MB up, {cost.downlink_bytes / 1e6:.2f} MB down; "
        f"{cost.tflop:.2f} TFLOP and {cost.seconds:.0f} s in all"
    )
    if history.origin == "shipped":
        print(". ".join((f"This run came with the repository; it was finished {history.provenance['finished']}", *history.caveats)))
    if len(histories) == 2:
        for phase in (report.HEADLINE, report.OTHER_MOMENT):
            delta = report.delta(histories, phase).set_index("algorithm").delta[history.settings.algorithm]
            print(f"Delta {phase.replace('_', ' ')}: " + ("undefined: a local metric is 0" if delta != delta else f"{delta:+.2f} %"))
    elif history.settings.algorithm != report.BASELINE:
        print("Delta: local training has not been run with these settings; --with-local runs it too")


# --- its options -------------------------------------------------------------------------------------------------------------


def spelling(option: str) -> str:
    """An option's one spelling: underscores are dashes, and the original code's names stand for ours."""
    dashed = option.replace("_", "-")
    return _THEIRS.get(dashed, dashed)


_THEIRS = {theirs.replace("_", "-"): ours.replace("_", "-") for ours, theirs in original.NAMES.items()}


def _parameters() -> list[inspect.Parameter]:
    """An option for every setting, by group, and the original code's flags that are none."""
    parameters = [_flag("with_local", "Run local training of the same settings first, for Delta.")]
    for group, names in GROUPS.items():
        for name in names:
            parameters.append(_option(name, describe(name), _metavar(name), group))
    for name, task in original.COUNTS.items():
        help = f"The first K users with {task}; of a task without a count nobody takes part.{_alias(name)}"
        parameters.append(_option(name, help, "K", _ORIGINAL, int))
    parameters.append(_option("adapter_method", "lora, which is all that there is.", "NAME", _ORIGINAL))
    return parameters


def describe(name: str) -> str:
    """A setting's line of help: what it is, what it can be, and its value in each profile."""
    field = Settings.model_fields[name]
    facts = [f"one of {', '.join(choices)}" for choices in [_choices(name)] if choices]
    bounds = [*field.metadata, *alternatives(field.annotation)]
    facts += [f"{words} {getattr(bound, key)}" for bound in bounds for key, words in _RANGES.items() if hasattr(bound, key)]
    facts += filter(None, [_values(name)])
    return f"{field.description}{_alias(name)}" + (f" [{'; '.join(facts)}]" if facts else "")


def _alias(name: str) -> str:
    return f" The original code's --{original.NAMES[name]}." if name in original.NAMES else ""


def _choices(name: str) -> list[str]:
    if name in _CHOICES:
        return _CHOICES[name]
    kinds = alternatives(Settings.model_fields[name].annotation)
    return [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]


def _values(name: str) -> str:
    """Such as "20 in mini, 12 in small, 150 in paper"; the value alone where all profiles agree; nothing where there is none by default."""
    default = Settings.model_fields[name].get_default(call_default_factory=True)
    if any(len(values.get(name, ())) > 1 for values in PROFILES.values() if isinstance(default, dict)):
        return "the profile's own"  # too many to list
    profiles: dict[str, list[str]] = {}
    for profile, values in PROFILES.items():
        profiles.setdefault(_shown(values.get(name, default)), []).append(profile)
    if len(profiles) == 1:
        (value,) = profiles
        return f"default: {value}" if value else ""
    return ", ".join(f"{value or 'none'} in {' and '.join(names)}" for value, names in profiles.items())


def _shown(value: Any) -> str:
    if isinstance(value, Path):
        return (value.relative_to(ROOT) if value.is_relative_to(ROOT) else value).as_posix()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value) if value else ""
    return "" if value is None else str(value)


def _metavar(name: str) -> str:
    field = Settings.model_fields[name]
    kinds = [get_origin(kind) or kind for kind in alternatives(field.annotation)]
    words = {int: "INT", float: "NUMBER", Path: "PATH", dict: "JSON", tuple: "A,B" if is_list(field) else "JSON"}
    return "|".join(dict.fromkeys(words[kind] for kind in kinds if kind in words)) or "TEXT"


def _option(name: str, help: str, metavar: str, group: str, kind: type = str) -> inspect.Parameter:
    escaped = help.replace("[", r"\[")  # brackets are markup
    option = typer.Option(f"--{spelling(name)}", help=escaped, metavar=metavar, rich_help_panel=group, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def _flag(name: str, help: str) -> inspect.Parameter:
    option = typer.Option(f"--{spelling(name)}", help=help)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])


command.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]
