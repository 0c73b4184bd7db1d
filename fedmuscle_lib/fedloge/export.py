"""Trained federations as files: what step 1 leaves, from which heads are realigned without training anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedmuscle_lib.core.errors import DataError, line_of, shown
from fedmuscle_lib.core.files import named, parse_json
from fedmuscle_lib.core.tensors import like
from fedmuscle_lib.fedloge.rounds import Rounds, inputs
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs.settings import parse

FILE = "model.safetensors"


def save(rounds: Rounds, folder: Path) -> Path:
    """Write ``model.safetensors``: the shared tensors, each client's own, and in its metadata settings and data; return its path.

    Tensors are called "shared/<name>" and "client <number>/<name>". A fixed classifier, which follows from the seed, is not among them.

    Raises:
        OSError: the folder can't be written.
    """
    state = rounds.federation.state()
    tensors = {f"shared/{name}": tensor for name, tensor in state["server"]["tensors"].items()}
    for client, own in state["clients"].items():
        tensors |= {f"client {client}/{name}": tensor for name, tensor in own.items()}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    s = rounds.settings
    metadata = {"system": s.system, "settings": json.dumps(s.recorded()), "inputs": json.dumps(inputs(s))}
    with named(path):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    return path


def load(path: Path, norm: float | None = None, **changes: Any) -> Rounds:
    """The federation as it was after its last round, with its data read again.

    Args:
        path: what :func:`save` wrote, or its folder.
        norm: of the realigned global head's rows; the run's own by default.
        changes: settings that are to be others, such as ``data_dir`` or ``options``.

    Raises:
        DataError: no such file, one that is damaged, one with other tensors than its settings ask for, or the data are not those that it
            was trained with; the message names it.
        ValueError: settings that no run can have.
    """
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise DataError(f"{path}: no such file; `python -m fedmuscle_lib fedloge --save-models FOLDER` writes one")
    try:
        with safe_open(path, "pt") as file:
            about, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        given, trained_with = (parse_json(about[name].encode(), f"{path}: {name}") for name in ("settings", "inputs"))
        if about["system"] != Settings.system:
            raise DataError(f"{path}: a model of {line_of(about['system'])}, not of {Settings.system}")
        if not isinstance(given.get("options", {}), dict):
            raise DataError(f"{path}: its options have no names")
        parse(Settings, given)  # without changes: what is wrong is the file's
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise error if isinstance(error, DataError) else DataError(f"{path}: not a saved model ({line_of(str(error))})") from None
    options = given.get("options", {}) | changes.pop("options", {}) | ({} if norm is None else {"fedloge.realigned_norm": norm})
    rounds = Rounds(settings := parse(Settings, given | changes | {"options": options}))
    if changed := [name for name, digest in inputs(settings).items() if trained_with.get(name) != digest]:
        raise DataError(f"{path}: trained with another {changed[0]} than that in {settings.data_dir}")
    _restore(rounds, tensors, path)
    return rounds


def _restore(rounds: Rounds, tensors: dict[str, Tensor], path: Path) -> None:
    state = rounds.state()
    wanted = {"shared": state["server"]["tensors"]} | {f"client {client}": own for client, own in state["clients"].items()}
    names = {f"{owner}/{name}": tensor for owner, own in wanted.items() for name, tensor in own.items()}
    for name in names.keys() | tensors.keys():
        if name not in tensors or name not in names or not like(tensors[name], names[name]):
            raise DataError(f"{path}: {shown(name)} is not what its settings ask for")
        if not torch.isfinite(tensors[name]).all():
            raise DataError(f"{path}: {name!r} has numbers that are not finite")
    for owner, own in wanted.items():
        for name in own:
            own[name] = tensors[f"{owner}/{name}"].to(own[name].device)
    rounds.restore(state)
