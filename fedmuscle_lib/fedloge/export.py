"""Trained federations as files: the result of step 1, from which step 2 realigns heads without
training.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.errors import DataError, line_of, shown
from fedmuscle_lib.core.files import named, parse_json
from fedmuscle_lib.core.tensors import like, load_tensors
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedloge.rounds import Rounds, inputs
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs.settings import parse

FILE = "model.safetensors"


def save(rounds: Rounds, folder: Path) -> None:
    """Write ``model.safetensors``: the shared tensors, each client's own, and in its metadata
    settings and data.

    Tensors are called "shared/<name>" and "client <number>/<name>". A fixed classifier, which
    follows from the seed, is not among them.

    Raises:
        NotOurs: as :func:`claim`.
        OSError: the folder can't be written.
    """
    claim(folder)
    s, tensors = rounds.settings, _by_name(rounds.state())
    metadata = {
        "system": s.system,
        "settings": json.dumps(s.recorded()),
        "inputs": json.dumps(inputs(s)),
    }
    with ownership.scratch(folder, "model") as new, named(folder / FILE):
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, new / FILE, metadata
        )
        os.replace(new / FILE, folder / FILE)


def claim(folder: Path) -> None:
    """Check that the place of ``model.safetensors`` in ``folder`` is free, or taken by a model that
    was saved there before.

    Raises:
        NotOurs: a link, or another file, lies there.
    """
    ownership.reach(folder / FILE, folder)
    if (folder / FILE).exists():
        about: dict[str, str] = {}
        with suppress(DataError):
            about = load_tensors(folder / FILE)[1]
        if about.get("system") != Settings.system:
            raise ownership.NotOurs(
                f"{folder / FILE}: not a model that was saved by this command; move it away, or"
                " name another folder"
            )


def _by_name(state: dict[str, Any]) -> dict[str, Tensor]:
    owners = {"shared": state["server"]["tensors"]} | {
        f"client {number}": own for number, own in state["clients"].items()
    }
    return {
        f"{owner}/{name}": tensor for owner, own in owners.items() for name, tensor in own.items()
    }


@fixed_state()
def load(path: Path, norm: float | None = None, **changes: Any) -> Rounds:
    """Return the federation as it was after its last round, with its data read again.

    Args:
        path: a file that :func:`save` wrote, or its folder.
        norm: of the realigned global head's rows; the run's own by default.
        changes: settings that are to be others, such as ``data_dir`` or ``options``.

    Raises:
        DataError: no such file, one that is damaged, one with other tensors than its settings ask
            for, or the data are not those that it was trained with; the message names it.
        ValueError: settings that no run can have.
    """
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; `python -m fedmuscle_lib fedloge --save-models FOLDER`"
            " writes one"
        )
    tensors, about = load_tensors(path)
    try:
        given, trained_with = (
            parse_json(about[name].encode(), f"{path}: {name}") for name in ("settings", "inputs")
        )
        if about["system"] != Settings.system:
            raise DataError(
                f"{path}: a model of {line_of(about['system'])}, not of {Settings.system}"
            )
        saved = parse(Settings, given)  # without changes: if something is wrong, it is the file's
    except (KeyError, ValueError) as error:
        raise (
            error
            if isinstance(error, DataError)
            else DataError(f"{path}: not a saved model ({line_of(str(error))})")
        ) from None
    options = (
        saved.options
        | changes.pop("options", {})
        | ({} if norm is None else {"fedloge.realigned_norm": norm})
    )
    rounds = Rounds(settings := parse(Settings, given | changes | {"options": options}))
    if changed := [
        name for name, digest in inputs(settings).items() if trained_with.get(name) != digest
    ]:
        raise DataError(
            f"{path}: trained with another {changed[0]} than that in {settings.data_dir}"
        )
    state = rounds.state()
    wanted = _by_name(state)
    for name in wanted.keys() | tensors.keys():
        if name not in tensors or name not in wanted or not like(tensors[name], wanted[name]):
            raise DataError(f"{path}: {shown(name)} is not what its settings ask for")
    for name, tensor in wanted.items():
        tensor.copy_(tensors[name])
    rounds.restore(state)
    return rounds
