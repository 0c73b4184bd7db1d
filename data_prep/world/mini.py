"""The embedded world: the users' data sets and the public sets, generated without a download, the
same on every machine.

The world is an analogue of the paper's data, not a substitute. Glyphs stand for CIFAR-100's
classes, handwritten digits for CIFAR-10's, and scenes of several objects for COCO and Pascal VOC;
``glyphs`` keeps classes and instances apart. Texts are in the world's own language (``language``):
questions stand for Yahoo! Answers, reports for AG's News, and captioned scenes for Flickr30k. For
long-tailed federations there is a labelled set of digits, drawn for it alone, as CIFAR-10 is for
theirs.

For CreamFL there are scenes of one to three objects with five captions each: what server and
clients share, what clients with pairs have to themselves, and a test set, whose instances differ.

For the non-IID setting each of its four tasks has a pool. Pairs of glyphs stand for Food-101's
dishes, and single glyphs on a plain ground for Caltech-101's objects; both have 100 classes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from tqdm import tqdm

from data_prep import MINI_DIFFUSION, MINI_WEIGHTS
from data_prep.io.writers import (
    labelled,
    write_arrays,
    write_captions,
    write_classes,
    write_coco,
    write_images,
    write_pickle,
    write_texts,
)
from data_prep.world import language
from data_prep.world.glyphs import Vocabulary, vocabulary
from data_prep.world.rendering import SIZE, draw, noise, outlined, scenes, single
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import MANIFEST, put, read_json

VERSION = 8
# what a seed draws a user's local training set from (Appendix G's sizes are in
# fedmuscle_lib.fedmuscle.setups), and the evaluation sets
POOLS = {
    f"{task} pool": task for task in ("IC100", "IC10", "ICF", "ICC")
}  # three users of a task divide one, in the non-IID setting
POOL = {"MLC": 600, "IC100": 600, "IC10": 300, "SS": 1500, "TC": 1000, "TG": 1000} | dict.fromkeys(
    POOLS, 1200
)
VALIDATION = {
    "MLC": 500,
    "IC100": 800,
    "IC10": 800,
    "SS": 300,
    "TC": 1000,
    "TG": 300,
} | dict.fromkeys(POOLS, 600)
TEST = {"MLC": 500, "IC100": 1000, "IC10": 1000, "SS": 500, "TC": 2000, "TG": 500} | dict.fromkeys(
    POOLS, 3000
)
USERS = {"MLC": 3, "IC100": 2, "IC10": 1, "SS": 2, "TC": 2, "TG": 1} | dict.fromkeys(POOLS, 1)
PUBLIC = 4096
LABELLED = {
    "train": 500,
    "test": 100,
}  # images of each of ten classes; a long-tailed federation keeps some of those to train with
GLYPHS = labelled("glyphs")
# Captioned scenes by their folder below MM: which instances draw them, and how many there are.
SCENES = {"public": ("public", 1024), "pairs": ("train", 1024), "test": ("test", 500)}
CAPTIONS = 5  # of a scene, as COCO and Flickr30k have
FOLDERS = {
    "MLC": "MLC_setup",
    "IC100": "IC/CIFAR100",
    "IC10": "IC/CIFAR10",
    "SS": "semseg_setup",
    "TC": "TC/yahoo_qa",
    "TG": "TC/ag_news",
    "IC100 pool": "IC/CIFAR100_pool",
    "IC10 pool": "IC/CIFAR10_pool",
    "ICF pool": "IC/FOOD101_pool",
    "ICC pool": "IC/CALTECH101_pool",
}
N_SECTIONS = 4  # of the news, as AG's has
_write_images = partial(
    write_images, compress_level=0
)  # each has the same bytes everywhere, whichever zlib writes it


def prepare(data_dir: Path) -> dict:
    """Write the world below ``data_dir`` (30075 small files) unless it is there complete; return
    its manifest.

    Of an earlier world, its own files are replaced; what else lies beside them stays.

    Raises:
        FileExistsError: another file or a link lies in the place of one of the world's; nothing has
            changed then.
        OSError: the folder can't be written.
    """
    earlier = _read_manifest(data_dir) or {"files": []}
    whole = "sha256" in earlier and _sum(data_dir, earlier["files"]) == earlier["sha256"]
    if whole and earlier["version"] == _version():
        return earlier
    if data_dir.is_symlink() and not data_dir.exists():
        raise FileExistsError(f"{data_dir}: a link that leads nowhere; remove it")
    if data_dir.exists() and not earlier["files"] and any(data_dir.iterdir()):
        raise FileExistsError(f"{data_dir}: holds other files, and no world; name another folder")
    own = {*earlier["files"]} if whole or "unfinished" in earlier else set()
    target = data_dir.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    # written aside and moved into place, so that an interrupted run leaves nothing that looks whole
    with TemporaryDirectory(dir=target.parent, prefix=".mini-") as scratch:
        root = Path(scratch, "world")
        words = vocabulary()
        steps = [
            partial(_client, root, task, split, client, sizes[task], words)
            for task in FOLDERS
            for split, sizes in (("train", POOL), ("val", VALIDATION), ("test", TEST))
            for client in range(USERS[task])
        ]
        sets = (_public, _captioned, _synthetic, _labelled, _scenes)
        steps += [partial(write, root, words) for write in sets]
        # a log gets a line now and then
        pause = 0.1 if sys.stderr.isatty() else 15
        for step in tqdm(steps, "mini", unit="set", mininterval=pause, ascii=True):
            step()
        shutil.copytree(MINI_WEIGHTS, root / "models")
        manifest = _manifest(root)
        for folder in {(target / name).parent for name in {*own, *manifest["files"]}}:
            if folder.resolve() != folder:
                raise FileExistsError(f"{folder}: behind a link, which is left alone; move it away")
        for name in manifest["files"]:
            if name not in own and not _begun(target / name, root / name):
                raise FileExistsError(
                    f"{data_dir / name}: not what this command wrote; move it away, or name"
                    " another folder"
                )
        files = sorted({*own, *manifest["files"]})
        started = {"name": "mini", "unfinished": True, "whole": False, "files": files}
        put(target / MANIFEST, json.dumps(started).encode())
        for name in own - {*manifest["files"]}:
            (target / name).unlink(missing_ok=True)
        for name in manifest["files"]:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(root / name, target / name)
        put(target / MANIFEST, json.dumps(manifest, indent=1).encode())
    return manifest


def others(data_dir: Path, manifest: dict) -> list[str]:
    """Return the paths below ``data_dir`` of files that are not of the world."""
    return sorted(
        {str(path.relative_to(data_dir)) for path in data_dir.rglob("*") if not path.is_dir()}
        - {*manifest["files"], MANIFEST}
    )


def _begun(path: Path, whole: Path) -> bool:
    """Return whether there is no file, or one of this world, perhaps cut off."""
    return not os.path.lexists(path) or (
        path.is_file() and whole.read_bytes().startswith(path.read_bytes())
    )


def _read_manifest(data_dir: Path) -> dict | None:
    """Return the manifest of an embedded world of any version, or None."""
    try:
        manifest = read_json(data_dir / MANIFEST)
    except DataError:
        return None
    return manifest if manifest.get("name") == "mini" else None


def _version() -> str:
    """Return a version that changes with the world's recipe, the shipped backbones and the shipped
    images.
    """
    files = [path for path in sorted(MINI_WEIGHTS.rglob("*")) if path.is_file()]
    files += sorted(MINI_DIFFUSION.glob("synthetic.*"))
    weights = b"".join(path.read_bytes() for path in files)
    return f"{VERSION}-{hashlib.sha256(weights).hexdigest()[:12]}"


def _rng(*address: object) -> np.random.RandomState:
    return np.random.RandomState(
        int.from_bytes(hashlib.sha256(repr(address).encode()).digest()[:4], "big")
    )


def _client(root: Path, task: str, split: str, client: int, n: int, words: Vocabulary) -> None:
    rng = _rng("client", task, split, client)
    instances = {"train": "train", "val": "validation", "test": "test"}[split]
    folder = root / FOLDERS[task]
    stem = folder / split / f"client_{client}"
    if task in {"MLC", "SS"}:
        classes = scenes(n, np.array(words.mlc), 1, 3, rng)
        drawn = draw(classes, instances, words, rng)
        names = _write_images(folder / "images" / split, drawn.uint8(), stem=f"client_{client}_")
        categories = {c: words.names[c] for c in words.mlc}
        masks = outlined(drawn.alphas) if task == "SS" else drawn.alphas
        write_coco(
            stem.with_suffix(".json"), names, classes, masks.numpy() > 0.5, categories, (SIZE, SIZE)
        )
    elif task in {"TC", "TG"}:
        topics = rng.permutation(np.resize(np.arange(language.N_TOPICS), n))  # balanced
        write = language.question if task == "TC" else language.report
        labels = topics if task == "TC" else topics % N_SECTIONS
        write_texts(stem.with_suffix(".pkl"), [write(t, rng) for t in topics], labels)
    else:
        task = POOLS.get(task, task)
        shown = _shown(task, words)
        labels = rng.permutation(np.resize(np.arange(len(shown)), n))  # balanced
        detail, strokes = (0.3, 0) if task == "ICC" else (1.0, 2)  # on a plain ground
        write_pickle(
            stem.with_suffix(".pkl"),
            draw(shown[labels], instances, words, rng, detail, strokes).uint8(),
            labels,
        )


def _shown(task: str, words: Vocabulary) -> np.ndarray:
    """Return the glyphs or digits that an image of each class of a task shows: (classes,
    objects).
    """
    if task == "IC10":
        return single(np.array(words.digits))
    glyphs = single(np.array(words.ic100))
    return (
        np.hstack([glyphs, np.roll(glyphs, 1)]) if task == "ICF" else glyphs
    )  # a glyph is part of two dishes


def _public(root: Path, words: Vocabulary) -> None:
    """Write four unlabelled public sets, as different from each other as their namesakes.

    In Pascal VOC's analogue, half the images show one large object, half show one to three small
    ones. In COCO's, a quarter show one large object, three quarters two to four small ones. In
    CIFAR-100's, each shows one large object of its 100 classes, and in CIFAR-10's, which has a
    quarter as many images, of its ten. As in the paper's public sets,
    downstream classes occur in them; the first two sets show all 110.
    """
    everything = np.array(words.ic100 + words.digits)
    # digits make up a quarter of the objects: they are 10 of 110 classes, but half of MLC's and all
    # of IC10's
    weights = np.where(np.isin(everything, words.digits), 3.0, 1.0)
    weights /= weights.sum()
    for name, large, low, high in (
        ("public_Pascal", PUBLIC // 2, 1, 3),
        ("public_COCO", PUBLIC // 4, 2, 4),
    ):
        rng = _rng("public", name)
        parts = [
            single(rng.choice(everything, large, p=weights)),
            scenes(PUBLIC - large, everything, low, high, rng, weights),
        ]
        images = np.concatenate([draw(part, "public", words, rng).uint8() for part in parts])
        _write_images(root / "MLC_setup" / name, images[rng.permutation(PUBLIC)])
    for name, shown, n in (
        ("CIFAR100", words.ic100, PUBLIC),
        ("CIFAR10", words.digits, PUBLIC // 4),
    ):
        rng = _rng("public", name.lower())
        drawn = draw(single(rng.choice(np.array(shown), n)), "public", words, rng)
        _write_images(root / f"IC/{name}/public", drawn.uint8())


def _captioned(root: Path, words: Vocabulary) -> None:
    """Write Flickr30k's analogue: half the images show one large object, half the two of a topic; a
    caption names them.
    """
    rng = _rng("public", "flickr30k")
    few = np.full((PUBLIC, 2), -1)
    for row in few:
        own = language.members(rng.randint(language.N_TOPICS))
        k = rng.randint(1, 3)
        row[:k] = rng.choice(own, k, replace=False)
    alone = few[:, 1] < 0
    images = np.empty((PUBLIC, SIZE, SIZE, 3), np.uint8)
    for rows, classes in ((alone, few[alone, :1]), (~alone, few[~alone])):
        images[rows] = draw(classes, "public", words, rng).uint8()
    _write_captioned(root / "TC/flicker_public", images, few, 1, rng)  # the README's spelling


def _synthetic(root: Path, words: Vocabulary) -> None:
    """Write the synthetic images, and as many of noise. The former are shipped: another processor
    would round theirs otherwise.

    ``scripts/pretrain/synthetic_images.py`` made them of the users' images. The sheet has a column
    a user and a row for each of its images.
    """
    sheet = np.asarray(Image.open(MINI_DIFFUSION / "synthetic.png"))
    rows, users = sheet.shape[0] // SIZE, sheet.shape[1] // SIZE
    images = sheet.reshape(rows, SIZE, users, SIZE, 3).swapaxes(1, 2).reshape(-1, SIZE, SIZE, 3)
    _write_images(root / "public/synthetic", images)
    shutil.copyfile(MINI_DIFFUSION / "synthetic.json", root / "public/synthetic" / MANIFEST)
    _write_images(root / "public/noise", noise(len(images), SIZE))


def _labelled(root: Path, words: Vocabulary) -> None:
    """Write the labelled set: large handwritten digits, balanced.

    From scratch, printed glyphs are too easy for a tail to suffer.
    """
    classes = np.array(words.digits)
    write_classes(root / GLYPHS, [words.names[c] for c in words.digits])
    for split, each in LABELLED.items():
        rng = _rng("labelled", split)
        labels = rng.permutation(np.repeat(np.arange(len(classes)), each))
        write_arrays(
            root / GLYPHS, split, draw(single(classes[labels]), split, words, rng).uint8(), labels
        )


def _scenes(root: Path, words: Vocabulary) -> None:
    """Write the captioned scenes: of 1350 sets of objects a caption names one, so that most
    captions fit one image of a test set.
    """
    for name, (instances, n) in SCENES.items():
        rng = _rng("scenes", name)
        classes = scenes(n, np.array(words.mlc), 1, 3, rng)
        _write_captioned(
            root / "MM" / name, draw(classes, instances, words, rng).uint8(), classes, CAPTIONS, rng
        )


def _write_captioned(
    folder: Path, images: np.ndarray, classes: np.ndarray, each: int, rng: np.random.RandomState
) -> None:
    names = _write_images(folder / "images", images)
    captions = {
        name: [language.caption(shown, rng) for _ in range(each)]
        for name, shown in zip(names, classes, strict=True)
    }
    write_captions(folder, captions)


def _manifest(root: Path) -> dict:
    paths = sorted(path for path in root.rglob("*") if path.is_file() and path != root / MANIFEST)
    files = [str(path.relative_to(root)) for path in paths]
    return {"name": "mini", "version": _version(), "sha256": _sum(root, files), "files": files}


def _sum(root: Path, files: Sequence[str]) -> str:
    """Return a digest of names and contents; empty if a file is missing."""
    digest = hashlib.sha256()
    for name in files:
        if not (root / name).is_file():
            return ""
        digest.update(f"{name}\n".encode() + (root / name).read_bytes())
    return digest.hexdigest()
