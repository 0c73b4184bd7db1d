"""Mended faults, each put back into a child by its name: the generator must find them, or it would
find none like them.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fedmuscle_lib.cli.bench
import fedmuscle_lib.cli.form
import fedmuscle_lib.cli.options
import fedmuscle_lib.cli.reproduce
import fedmuscle_lib.cli.tune
import fedmuscle_lib.core.tensors
import fedmuscle_lib.data.client_files
import fedmuscle_lib.data.coco
import fedmuscle_lib.data.encodings
import fedmuscle_lib.data.layout
import fedmuscle_lib.data.public
import fedmuscle_lib.fedloge.messages
import fedmuscle_lib.fedmuscle.server
from data_prep.io import fetch
from fedmuscle_lib.core import exit_codes
from fedmuscle_lib.core.tensors import Numbers
from fedmuscle_lib.data import coco_checks, images, labelled_sets, pickles
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.runs import archive, loop, settings, store


def _set(place: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(place, name, value)


def _any_codec() -> None:
    pickles._GLOBALS["_codecs", "encode"] = pickles._Global(codecs.encode)


def _functions_as_values() -> None:
    finished = pickles._finished
    pickles._finished = lambda value, depth=1: (
        value if isinstance(value, pickles._Global) else finished(value, depth)
    )  # type: ignore[assignment]


def _any_state() -> None:
    build = pickles._Dtype.build

    def lenient(self: Any, state: Any) -> None:
        try:
            build(self, state)
        except pickles.DataError:
            self.finished = True

    pickles._Dtype.build = lenient  # type: ignore[method-assign]


def _any_shape() -> None:
    import numpy as np

    def array(content: Any, dtype: Any, shape: Any, order: Any) -> Any:
        return np.zeros(shape, dtype.dtype)

    pickles._array = array  # type: ignore[assignment]


def _keys_twice() -> None:
    def set_items(machine: Any, values: list[Any]) -> None:
        machine.stack[-1].update(zip(values[::2], values[1::2], strict=True))

    pickles._STEPS["SETITEM"] = lambda machine, _: set_items(
        machine, [machine.stack.pop(-2), machine.stack.pop()]
    )
    pickles._STEPS["SETITEMS"] = lambda machine, _: set_items(machine, machine.marked())


def _any_text() -> None:
    for name, step in pickles._STEPS.items():
        if step is pickles._Machine.text:
            pickles._STEPS[name] = pickles._Machine.push


def _any_file() -> None:
    for reader in (pickles, fedmuscle_lib.data.coco, fedmuscle_lib.data.encodings):
        reader.read_bytes = lambda path, most=0: Path(path).read_bytes()  # type: ignore[attr-defined]


def _repeated_ids() -> None:
    def ids(kind: str, records: list[dict[str, Any]]) -> Any:
        yield from ()
        return {record.get("id") for record in records}

    coco_checks._ids = ids  # type: ignore[assignment]


def _arrays_as_promised() -> None:
    import numpy as np

    labelled_sets._array = lambda packed, name: np.lib.format.read_array(packed.open(name))


def _names_as_spelt() -> None:
    fetch._SUM = re.compile(r"([0-9a-fA-F]{64})\s+\*?(\S.*)")


def _tables_as_they_are() -> None:
    import io

    import pandas as pd

    store._table = lambda content, name, columns: pd.read_csv(io.BytesIO(content))  # type: ignore[assignment]


def _any_layout() -> None:
    for reader in (fedmuscle_lib.core.tensors, fedmuscle_lib.fedloge.messages):
        reader.plain = lambda sender, what, value, device: value  # type: ignore[attr-defined]


def _no_copies() -> None:
    for reader in (fedmuscle_lib.core.tensors, fedmuscle_lib.fedloge.messages):
        reader.own_copy = lambda value: value  # type: ignore[attr-defined]


def _any_numbers() -> None:
    take = Server.take

    def lenient(
        self: Any, user: Any, round: Any, message: Any, shape: Any, what: str, numbers: Any
    ) -> Any:
        return take(self, user, round, message, shape, what, Numbers(whole=numbers.whole))

    Server.take = lenient  # type: ignore[method-assign]


def _any_repetition() -> None:
    receive = Server.receive

    def lenient(self: Any, user: Any, batch: Any, z: Any) -> None:
        self._received = {other: own for other, own in self._received.items() if other != user}
        receive(self, user, batch, z)

    Server.receive = lenient  # type: ignore[method-assign]


def _any_device() -> None:
    def lenient(name: str) -> str:
        torch.empty(0, device=name if name != "auto" else "cpu")
        return name

    for command in (
        fedmuscle_lib.cli.form,
        fedmuscle_lib.cli.bench,
        fedmuscle_lib.cli.tune,
        fedmuscle_lib.cli.reproduce,
    ):
        command.try_device = lenient  # type: ignore[attr-defined]


def _any_side() -> None:
    load = fedmuscle_lib.data.encodings.Pixels.load
    fedmuscle_lib.data.encodings.Pixels.load = lambda self, paths, sides=(): load(self, paths)  # type: ignore[method-assign]


_OF_DATA: dict[str, Callable[[], None]] = {
    "arrays of any type": _set(pickles._Dtype, "_NAME", re.compile("(?s).*")),
    "types of any state": _any_state,
    "arrays of any shape": _any_shape,
    "any codec": _any_codec,
    "functions as values": _functions_as_values,
    "containers in two places": _set(pickles, "_weight", lambda value: 8),
    "texts named again and again": _set(pickles, "_MOST_REPEATED", 1 << 60),
    "containers of any depth": _set(pickles, "_DEEPEST", 1 << 60),
    "keys of any kind, and twice": _keys_twice,
    "half characters": _any_text,
    "pipes and devices": _any_file,
    "captions of any length": _set(fedmuscle_lib.data.public, "MOST_CAPTION", 1 << 60),
    "values shown as they are": _set(fedmuscle_lib.data.public, "shown", repr),
    "ids twice": _repeated_ids,
    "files outside": _set(coco_checks, "_name_fault", lambda name: ""),
    "numbers that are not finite": _set(
        coco_checks, "_is_number", lambda value: isinstance(value, int | float)
    ),
    "polygons of any kind": _set(coco_checks, "_polygon_fault", lambda polygon, height, width: ""),
    "outlines of any length": _set(coco_checks, "_TURNS", 1 << 60),
    "run lengths unread": _set(
        coco_checks, "segmentation_fault", lambda segmentation, height, width: ""
    ),
    "fields twice": _set(coco_checks, "_without_repeats", dict),
    "pictures of any size": _set(images, "MOST_PIXELS", 1 << 60),
    "pictures of any kind": _set(images, "_FORMATS", None),
    "pictures as they lie there": _set(images, "_upright", lambda image: image),
    "colours below the transparent": _set(
        images, "as_rgb", lambda image: images._upright(image).convert("RGB")
    ),
    "16 bits cut off": _set(images, "_WIDE", ()),
    "pictures of another size than recorded": _any_side,
}
_OF_OTHERS: dict[str, dict[str, Callable[[], None]]] = {
    "stored": {
        "shipped runs as they lie there": _set(
            archive.Sealed, "read", lambda self, name: self._zip.read(name)
        ),
        "tables of any kind": _tables_as_they_are,
        "provenances of any kind": _set(store, "_checked", lambda provenance: provenance),
        "files that are none left in place": _set(
            store.Entry, "_set_aside", lambda self, path, why: None
        ),
    },
    "resumed": {
        "states as they are restored": _set(loop, "_same", lambda one, other: True),
    },
    "manifests": {
        "unfinished folders": _set(
            fedmuscle_lib.data.layout,
            "read_json",
            lambda path: {"whole": not (path.is_file() and b'"whole": false' in path.read_bytes())},
        ),
    },
    "arrays": {
        "arrays as large as they promise": _arrays_as_promised,
    },
    "lists": {
        "labels of any length": _set(labelled_sets, "_DIGITS", 1 << 60),
    },
    "sums": {
        "names as they are spelt": _names_as_spelt,
    },
    "answers": {
        "discarding as progress": _set(fetch, "LEAST", -(1 << 60)),
        "reasons as the server words them": _set(fetch, "line_of", lambda text: text),
    },
    "messages": {
        "messages of any layout": _any_layout,
        "messages kept as they were sent": _no_copies,
        "messages of anybody": _set(Server, "_admit", lambda self, user: None),
        "messages again": _any_repetition,
        "rows of any norm": _set(fedmuscle_lib.fedmuscle.server, "NORM_TOLERANCE", float("inf")),
        "votes for anything": _any_numbers,
    },
    "settings": {
        "settings of any size": _set(settings, "LARGEST", 1 << 20_000),
        "texts of any characters": _set(settings, "_UNFIT", re.compile("(?!)")),
    },
    "commands": {
        "brackets of any depth": _set(
            fedmuscle_lib.cli.options, "_json", lambda name, text: json.loads(text)
        ),
        "devices without numbers": _any_device,
        "lines of any length": _set(exit_codes, "LONGEST", 1 << 60),
        "lines of any characters": _set(exit_codes, "_line", lambda text: text),
    },
}


@dataclass(frozen=True)
class Fault:
    """What was mended: how it is put back, and the kinds of input that find it."""

    put_back: Callable[[], None]
    kinds: tuple[str, ...] = ("pickles", "captions", "coco", "pictures")


FAULTS = {name: Fault(put_back) for name, put_back in _OF_DATA.items()}
FAULTS |= {
    name: Fault(put_back, (kind,))
    for kind, own in _OF_OTHERS.items()
    for name, put_back in own.items()
}
