"""Trained federations as files: the result of step 1, from which step 2 realigns heads without
training.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save as to_bytes
from torch import Tensor

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import put
from fedmuscle_lib.core.ownership import NotOurs
from fedmuscle_lib.core.tensors import load_tensors
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedloge.rounds import Rounds, inputs
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs.settings import parse

FILE = "model.safetensors"


def save(rounds: Rounds, folder: Path) -> None:
    """Write ``model.safetensors``: the shared tensors, each client's own, and in its metadata
    settings and data as JSON.

    Tensors are called "shared/<name>" and "client <number>/<name>". A fixed classifier, which
    follows from the seed, is not among them.

    Raises:
        NotOurs: as :func:`claim`.
        OSError: the folder can't be written.
    """
    claim(folder)
    s = rounds.settings
    about = {
        "system": s.system,
        "settings": json.dumps(s.recorded()),
        "inputs": json.dumps(inputs(s)),
    }
    tensors = {name: tensor.contiguous() for name, tensor in _by_name(rounds.state()).items()}
    put(folder / FILE, to_bytes(tensors, about))


def claim(folder: Path) -> None:
    """Check that the place of ``model.safetensors`` in ``folder`` is free, or taken by a model that
    was saved there before.

    Raises:
        NotOurs: another file lies there.
    """
    path = folder / FILE
    with suppress(DataError):
        if not path.exists() or load_tensors(path)[1].get("system") == Settings.system:
            return
    raise NotOurs(
        f"{path}: not a model that was saved by this command; move it away, or name another folder"
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
        changes: settings to replace, such as ``data_dir``.

    Raises:
        DataError: no such file, no saved model, or the data are not those that it was trained with;
            the message names it.
        ValueError: settings that no run can have.
    """
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; `python -m fedmuscle_lib fedloge --save-models FOLDER`"
            " writes one"
        )
    tensors, about = load_tensors(path)
    if about.get("system") != Settings.system:
        raise DataError(f"{path}: not a saved model of {Settings.system}")
    given, trained_with = json.loads(about["settings"]), json.loads(about["inputs"])
    if norm is not None:
        given["options"]["fedloge.realigned_norm"] = norm
    settings = parse(Settings, given | changes)
    for name, digest in inputs(settings).items():
        if trained_with[name] != digest:
            raise DataError(f"{path}: trained with another {name} than that in {settings.data_dir}")
    rounds = Rounds(settings)
    state = rounds.state()
    for name, tensor in _by_name(state).items():
        tensor.copy_(tensors[name])
    rounds.restore(state)
    return rounds
