"""Arrays of a labelled set: npz files that are scrambled, promise too much, or hold other
arrays.
"""

from __future__ import annotations

import io
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from hostile.kind import Case, Kind, scrambled

from data_prep.io.writers import labelled, write_arrays, write_classes
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.labelled_sets import read

CLASSES, N, SIZE = ("ant", "bee", "cow"), 6, 8
IMAGES, LABELS = (
    np.arange(N * SIZE * SIZE * 3).astype(np.uint8).reshape(N, SIZE, SIZE, 3),
    np.arange(N) % 3,
)


def prepare(folder: Path) -> None:
    """Write the names of the classes, and a test split."""
    write_classes(folder / labelled("set"), CLASSES)
    write_arrays(folder / labelled("set"), "test", IMAGES, LABELS)


def _packed(images: bytes, labels: bytes, method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in (("images.npy", images), ("labels.npy", labels)):
            file.writestr(
                zipfile.ZipInfo(name), content, method
            )  # of no date, so that equal draws are equal
    return buffer.getvalue()


def _array(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array)
    return buffer.getvalue()


def _promised(content: np.ndarray, **header: Any) -> bytes:
    text = (
        repr(
            {"descr": content.dtype.str, "fortran_order": False, "shape": content.shape} | header
        ).encode()
        + b"\n"
    )
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content.tobytes()


def _case(draws: random.Random) -> Case:
    choice, images, labels = draws.random(), _array(IMAGES), _array(LABELS)
    method = draws.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    if choice < 0.05:
        return Case(draws.choice(("pipe", "device", "folder")), "no file")
    if choice < 0.3:
        return Case(scrambled(_packed(images, labels, method), draws))
    if choice < 0.5:
        return Case(
            _packed(
                scrambled(images, draws),
                scrambled(labels, draws) if draws.random() < 0.3 else labels,
                method,
            )
        )
    shape = draws.choice(
        (
            (1 << 40, 8, 8, 3),
            (1 << 62, 8, 8, 3),
            (1 << 29, 1, 1, 3),
            (-6, 8, 8, 3),
            (7, 8, 8, 3),
            (0, 8, 8, 3),
            (6, 192),
        )
    )
    wrong = {
        "another shape": _promised(IMAGES, shape=shape),
        "a shape that is none": _promised(
            IMAGES, shape=draws.choice((6, None, "6", ("6",), (6.5, 8), "(" * 5000))
        ),
        "another type": _promised(
            IMAGES,
            descr=draws.choice(
                ("|O", "<f4", "|S1", "<U64", "<i8", "V1", "|b1", [("a", "<i8")], 7, "no")
            ),
        ),
        "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        "nothing": b"",
    }
    why = draws.choice([*wrong, "labels of no class"])
    if why == "labels of no class":
        odd = draws.choice(
            (
                LABELS + 1,
                LABELS - 1,
                LABELS + (1 << 40),
                LABELS / 2,
                LABELS[:-1],
                LABELS[None],
                LABELS.astype(np.uint64) + (1 << 63),
            )
        )
        return Case(_packed(images, _array(odd), method), why)
    return Case(_packed(wrong[why], labels, method), why)


KIND = Kind(
    file=f"{labelled('set')}/train.npz",
    prepare=prepare,
    case=_case,
    read=lambda folder: read(folder, "set").train.samples(range(3)),
    refusals=(DataError,),
)
