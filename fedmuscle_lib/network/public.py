"""The public set on its way: the server hands out files, a party without the set fetches them, and
uses nothing that was not agreed on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from fedmuscle_lib.core.errors import DataError, RefusedMessage, line_of, prefixed
from fedmuscle_lib.core.files import read_bytes
from fedmuscle_lib.core.ownership import scratch, sweep
from fedmuscle_lib.data.encodings import Modality
from fedmuscle_lib.data.public import CAPTIONS, IMAGE_SUFFIXES, first_images, public_digest
from fedmuscle_lib.network.messages import CONTENT, Fetch, Files, pack, unpack
from fedmuscle_lib.network.terms import Terms

_PART = 1 << 22  # bytes after which a message takes no further file
_MOST_FILES = 128  # in a message


def part(folder: Path | None, n: int, first: int) -> bytes:
    """Return some files of the public set of ``n``, from the one at ``first`` on, as a message.

    Raises:
        RefusedMessage: there is no such file, or the server has digests alone.
        DataError: one can't be read.
    """
    if folder is None:
        raise RefusedMessage("the server has no public set to fetch, only its digest")
    contents: dict[str, bytes] = {}
    for path in [*first_images(folder, n), *folder.glob(CAPTIONS)][first : first + _MOST_FILES]:
        contents[path.name] = read_bytes(path)
        if sum(map(len, contents.values())) > _PART:
            break
    if not contents:
        raise RefusedMessage(f"the server's public set has no file {first + 1}")
    content = torch.from_numpy(np.frombuffer(bytearray().join(contents.values()), np.uint8))
    return pack(
        Files(names=tuple(contents), sizes=tuple(map(len, contents.values()))), {CONTENT: content}
    )


def fetch(
    call: Callable[[str, bytes], bytes],
    folder: Path,
    user: int,
    terms: Terms,
    reads: Modality,
    most: float,
) -> None:
    """Fetch the public set into ``folder``, which is not there yet. It appears there as a whole,
    once its digests are those of the terms.

    Args:
        call: makes a call of the server.
        reads: what the party's model reads of it.
        most: bytes that it may have.

    Raises:
        RefusedMessage: the server hands out something else, or more.
        OSError: the folder can't be written.
    """
    sweep(folder.parent, command := f"fetch-user-{user}")
    with scratch(folder.parent, command) as place:
        images = place / folder.name / "images"
        images.mkdir(parents=True)
        fetched, size = 0, 0
        while fetched < terms.public_size + (reads == "texts"):
            head, tensors = unpack(
                "the server", Files, call("fetch", pack(Fetch(first=fetched))), CONTENT
            )
            fetched, size = fetched + len(head.names), size + tensors[CONTENT].nbytes
            if size > most or fetched > terms.public_size + 1:
                raise RefusedMessage(
                    f"limits.fetch: the public set has more than {most / 1e6:g} MB or"
                    f" {terms.public_size} images"
                )
            _write(images, head, tensors[CONTENT])
        for each in {"images", reads, *(["texts"] if (images.parent / CAPTIONS).exists() else [])}:
            with prefixed("the server's public set can't be read", DataError, RefusedMessage):
                same = public_digest(images.parent, terms.public_size, each) == terms.public.get(
                    each
                )
            if not same:
                raise RefusedMessage(
                    f"the server's public set is not the one of its terms: its {each} have another"
                    " SHA-256"
                )
        try:
            images.parent.rename(folder)
        except OSError:
            if (
                not folder.is_dir()
            ):  # another party put it there, and its digest is checked as any other
                raise


def _write(images: Path, head: Files, content: torch.Tensor) -> None:
    """Write files where a public set has them."""
    if (
        content.dtype != torch.uint8
        or content.shape != (sum(head.sizes),)
        or len(head.names) != len(head.sizes)
    ):
        raise RefusedMessage("the server sent files whose sizes are others than it says")
    for name, of in zip(head.names, content.split(list(head.sizes)), strict=True):
        path = images.parent / name if name == CAPTIONS else images / name
        if path.exists() or name != CAPTIONS and path.suffix.lower() not in IMAGE_SUFFIXES:
            raise RefusedMessage(
                f"the server sent {line_of(name)!r}, which is no file of a public set, or sent it"
                " twice"
            )
        path.write_bytes(of.numpy().tobytes())
