"""Every data set's command, from archives in the real formats to files that the library and other
readers read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import miniature_archives as miniature
import numpy as np
import pytest
import torch
from filelock import FileLock
from loopback import Loopback, serving
from PIL import Image
from pycocotools.coco import COCO

import data_prep
from data_prep import __main__ as command_line
from data_prep.__main__ import main
from data_prep.datasets import CATALOGUE, MODULES, coco, voc
from data_prep.datasets.partition import SIZES, Sizes
from data_prep.io import build, fetch
from data_prep.io.archives import opened
from data_prep.io.entry import SourceError
from data_prep.io.writers import write_texts
from fedmuscle_lib.data import captioned
from fedmuscle_lib.data import labelled_sets as labelled_sets
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.pickles import load_pickle
from fedmuscle_lib.data.public import PUBLIC_SETS, read_public
from fedmuscle_lib.tasks import TASKS, ImageClassification
from fedmuscle_lib.tasks.segmentation import IGNORED

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation"
)  # of pycocotools with numpy 2
ROOT = Path(__file__).parents[2]
REAL = Path(
    os.environ.get("FEDMUSCLE_ARCHIVES", "archives")
)  # subsets of the official archives, where somebody has them
SMALL = {
    "cifar10": ["--train-size", "5", "--val", "20", "--test", "20", "--public", "60"],
    "cifar100": ["--train-size", "10", "--val", "40", "--test", "100", "--public", "60"],
    "coco": ["--train-size", "4", "--pool", "6", "--val", "2", "--test", "6", "--public", "10"],
    "coco-captions": ["--public", "20", "--test", "4", "--size", "16"],
    "voc": [
        "--clients",
        "3",
        "--train-size",
        "4",
        "--pool",
        "10",
        "--val",
        "3",
        "--test",
        "6",
        "--size",
        "32",
    ],
    "flickr30k": ["--public", "8", "--size", "16"],
    "yahoo": ["--train-size", "10", "--val", "80", "--test", "30"],
    "ag-news": ["--train-size", "10", "--val", "80", "--test", "30"],
    "food101": [
        "--train-size",
        "5",
        "--val",
        "2",
        "--size",
        "16",
        "--clients",
        "2",
        "--alpha",
        "0.1",
    ],
    "caltech101": ["--train-size", "3", "--val", "2", "--size", "16", "--clients", "2"],
    "cifar10-pool": ["--train-size", "30", "--val", "20", "--test", "30"],
    "cifar100-pool": ["--train-size", "30", "--val", "20", "--test", "30"],
    "food101-pool": ["--train-size", "9", "--val", "4", "--size", "16"],
    "caltech101-pool": ["--train-size", "6", "--val", "4", "--size", "16"],
    "tiny-imagenet": [],
    "cifar10-lt": ["--per-class", "9"],
    "cifar100-lt": ["--per-class", "2"],
    "imagenet-lt": ["--per-class", "3"],
    "inaturalist": ["--per-class", "3"],
}
MAKE: dict[str, Callable[[Path], None]] = {
    "cifar10": miniature.cifar10,
    "cifar100": miniature.cifar100,
    "coco": miniature.coco,
    "coco-captions": miniature.coco_captions,
    "voc": miniature.voc,
    "flickr30k": miniature.flickr30k,
    "yahoo": lambda folder: miniature.topics(folder, "yahoo_answers_csv", 3, 10),
    "ag-news": lambda folder: miniature.topics(folder, "ag_news_csv", 2, 4),
    "food101": miniature.food101,
    "caltech101": miniature.caltech101,
    "cifar10-pool": miniature.cifar10,
    "cifar100-pool": miniature.cifar100,
    "food101-pool": miniature.food101,
    "caltech101-pool": miniature.caltech101,
    "tiny-imagenet": miniature.tiny_imagenet,
    "cifar10-lt": miniature.cifar10,
    "cifar100-lt": miniature.cifar100,
    "imagenet-lt": miniature.imagenet_lt,
    "inaturalist": miniature.inaturalist,
}
every_data_set = pytest.mark.parametrize("name", MAKE)


@pytest.fixture
def data_dir(tmp_path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(monkeypatch) -> Iterator[Loopback]:
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with serving() as state:
        yield state


def _run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def _tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def _manifests(data_dir: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(data_dir.rglob("manifest.json"))]


def _rows(data_dir: Path, task: str) -> dict[tuple[str, int], np.ndarray]:
    """Pixels of every image of every classification client."""
    folder = data_dir / "IC" / task
    return {
        (p.parent.name, int(p.stem[-1])): load_pickle(p)["data"]
        for p in sorted(folder.glob("*/client_*.pkl"))
    }


# --- every command


def test_every_data_set_has_a_name_of_its_own_and_a_test():
    assert (
        sorted(entry.name for module in MODULES for entry in module.ENTRIES)
        == sorted(CATALOGUE)
        == sorted(MAKE)
    )


@every_data_set
def test_a_run_is_whole_repeatable_says_that_it_is_a_subset_and_reads_its_options(
    archives, data_dir, tmp_path, name, capsys, monkeypatch
):
    MAKE[name](archives)
    command = [name, "--archives", archives, *SMALL[name]]
    assert _run(*command, "--data-dir", data_dir) == 0
    said = capsys.readouterr().out
    assert "SUBSET OR ANOTHER EDITION" in said
    assert CATALOGUE[name].terms in said
    for manifest in _manifests(data_dir):
        assert (manifest["dataset"], manifest["whole"], manifest["official"]) == (name, True, False)
        assert manifest["counts"]["official"] == CATALOGUE[name].counts
        assert manifest["counts"]["found"].keys() <= CATALOGUE[name].counts.keys()
        for archive in manifest["archives"]:
            assert (
                archive["sha256"]
                == hashlib.sha256((archives / archive["name"]).read_bytes()).hexdigest()
            )
            assert archive["official"] in {False, None}
    assert not list(data_dir.glob(f".{name}-*"))  # what was written aside

    before = {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")}
    assert _run(*command, "--data-dir", data_dir) == 0
    said = capsys.readouterr().out
    assert "there already, whole; nothing to do" in said
    assert CATALOGUE[name].terms not in said
    assert {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")} == before

    monkeypatch.setattr(
        command_line, "prepare", lambda run, write: build.prepare(_watched(run), write)
    )
    assert _run(*command, "--data-dir", tmp_path / "again") == 0
    assert _tree(data_dir) == _tree(tmp_path / "again")
    # what is read before there is a run, and where an image is missing
    assert {option.name for option in CATALOGUE[name].takes} - {
        "edition",
        "skip_missing",
    } <= Watched.used


class Watched(dict):
    """Options that remember which of them were read."""

    used: set[str]

    def __getitem__(self, key):
        self.used.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.used.add(key)
        return super().get(key, default)


def _watched(run: build.Run) -> build.Run:
    Watched.used = set()
    run.options = Watched(run.options)
    return run


@every_data_set
def test_a_dry_run_says_what_it_would_fetch_and_touches_nothing(
    server, archives, data_dir, name, capsys
):
    assert _run(name, "--data-dir", data_dir, "--dry-run") == 0
    said = capsys.readouterr().out
    for archive in CATALOGUE[name].archives:
        assert archive.name in said
        size = f"{archive.bytes:,} bytes" if archive.bytes else "size not stated"
        assert archive.bulk or f"{size} from {archive.url}" in said
    server.files = {archive.name: b"12345" for archive in CATALOGUE[name].archives}
    assert _run(name, "--data-dir", data_dir, "--dry-run", "--base-url", server.url) == 0
    assert (
        f"5 bytes from {server.url}/{CATALOGUE[name].archives[0].name}" in capsys.readouterr().out
    )
    assert server.log == []
    assert not data_dir.exists()


@pytest.mark.parametrize(
    "name", [name for name in MAKE if not name.endswith("-pool")]
)  # a pool is read as its users' own
def test_a_damaged_archive_ends_a_run_by_name(archives, data_dir, name, capsys):
    MAKE[name](archives)
    path = archives / CATALOGUE[name].archives[0].name
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    assert _run(name, "--archives", archives, "--data-dir", data_dir, *SMALL[name]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and len(error.splitlines()) == 1
    assert str(path) in error and "damaged" in error
    assert _manifests(data_dir) == []


@pytest.mark.parametrize(
    "name", ["coco", "yahoo", "tiny-imagenet", "imagenet-lt"]
)  # several places, one, a folder of images, links
def test_an_interrupted_run_leaves_nothing_that_looks_whole(
    archives, data_dir, tmp_path, name, monkeypatch
):
    """Stopped before anything is moved, and after the first folder was: the same command does the
    rest.
    """
    MAKE[name](archives)
    command = [name, "--archives", archives, *SMALL[name], "--data-dir"]
    assert _run(*command, tmp_path / "undisturbed") == 0
    for stop_at in ("_report", "_paths"):
        with monkeypatch.context() as patch:
            real = getattr(build, stop_at)

            def stop(*arguments, real=real, stop_at=stop_at):
                if (
                    stop_at == "_report"
                    or (data_dir / arguments[1].folder / "manifest.json").exists()
                ):
                    raise KeyboardInterrupt
                return real(*arguments)

            patch.setattr(build, stop_at, stop)
            assert _run(*command, data_dir) == 130
        assert not [manifest for manifest in _manifests(data_dir) if manifest["whole"]]
    assert _run(*command, data_dir) == 0
    assert _tree(data_dir) == _tree(tmp_path / "undisturbed")


def test_an_interrupted_second_run_leaves_no_old_place_that_looks_whole(
    archives, data_dir, tmp_path, monkeypatch
):
    """Stopped between two places: the old users may have images that are public now."""
    miniature.coco(archives)
    command = ["coco", "--archives", archives, *SMALL["coco"], "--data-dir"]
    assert _run(*command, data_dir) == 0
    moved = []

    def once(*arguments, real=build._move):
        if moved:
            raise KeyboardInterrupt
        moved.append(arguments)
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(build, "_move", once)
        assert _run(*command, data_dir, "--seed", "1") == 130
    assert [manifest["whole"] for manifest in _manifests(data_dir)].count(
        True
    ) == 1  # the place that was moved
    assert (
        _run(*command, data_dir, "--seed", "1")
        == _run(*command, tmp_path / "one", "--seed", "1")
        == 0
    )
    assert _tree(data_dir / "MLC_setup") == _tree(tmp_path / "one/MLC_setup")


def test_a_manifest_says_nothing_of_the_machine(archives, data_dir, tmp_path, capsys):
    """The run store hashes the public sets' manifests; another folder of archives of the same sizes
    is the same request.
    """
    miniature.voc(archives)
    command = ["voc", "--data-dir", data_dir, *SMALL["voc"], "--archives"]
    assert _run(*command, archives) == 0
    for path in data_dir.rglob("manifest.json"):
        assert str(tmp_path) not in path.read_text()
        assert json.loads(path.read_text())["request"]["from"] == "a folder of archives"
    moved = archives.rename(tmp_path / "elsewhere")
    capsys.readouterr()
    assert _run(*command, moved) == 0
    assert "nothing to do" in capsys.readouterr().out
    miniature.voc(moved, unmasked=16)
    assert _run(*command, moved) == 0
    assert "nothing to do" not in capsys.readouterr().out


# --- what the archives may not do


def test_code_in_a_cifar_pickle_never_runs(archives, data_dir, capsys):
    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {archives / 'ran'}",)

    batches = {
        f"cifar-100-python/{name}": pickle.dumps({"data": Payload()}, protocol=2)
        for name in ("train", "test")
    }
    miniature.write_tar(archives / "cifar-100-python.tar.gz", batches)
    assert _run("cifar100", "--archives", archives, "--data-dir", data_dir) == 2
    assert "cifar-100-python/train: refused: it asks for posix.system" in capsys.readouterr().err
    assert not (archives / "ran").exists()


def test_what_the_checksums_do_not_cover_is_said(archives, data_dir, capsys):
    """An archive that no line names, and lines that name nothing."""
    MAKE["ag-news"](archives)
    path = archives / "ag_news_csv.tar.gz"
    (archives / "SHA256SUMS").write_text(
        "".join(f"{'0' * 64}  ./absent{n}.tar\n" for n in range(7))
    )
    assert _run("ag-news", "--archives", archives, "--data-dir", data_dir, *SMALL["ag-news"]) == 0
    said = capsys.readouterr().out
    assert f"NOTE: {path.name}: no line of the SHA256SUMS beside it names it" in said
    assert (
        "NOTE: SHA256SUMS names 7 files that do not lie beside it: absent0.tar, " in said
        and "absent5" not in said
    )
    (archives / "SHA256SUMS").write_text(f"{'0' * 64}  ./{path.name}\n")
    assert (
        _run(
            "ag-news", "--archives", archives, "--data-dir", data_dir / "another", *SMALL["ag-news"]
        )
        == 2
    )
    assert f"{path}: damaged: its SHA-256 is not the one of SHA256SUMS" in capsys.readouterr().err


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "{",
        "[" * 100_000,
        "7",
        "[]",
        '{"dataset": []}',
        '{"dataset": "ag-news", "whole": true, "versions": [], "files": 1}',
        "folder",
        "\ud800",
    ]
    + [
        f'{{"dataset": "ag-news", "whole": true, "versions": {{"data_prep": 3}}, "archives": {a}}}'
        for a in ("7", "[7]", '[{"name": 7}]', "[]")
    ],
)
def test_a_manifest_that_is_none_of_ours_is_never_taken_for_a_whole_folder(
    archives, data_dir, capsys, manifest
):
    """The folder is refused in one line, or written anew."""
    MAKE["ag-news"](archives)
    arguments = ("ag-news", "--archives", archives, "--data-dir", data_dir, *SMALL["ag-news"])
    assert _run(*arguments) == 0
    (path,) = data_dir.rglob("manifest.json")
    before = json.loads(path.read_bytes())
    path.unlink()
    (
        path.mkdir()
        if manifest == "folder"
        else path.write_bytes(manifest.encode("utf8", "surrogatepass"))
    )
    capsys.readouterr()
    if (code := _run(*arguments)) == 2:
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and str(path.parent) in line
    else:
        assert code == 0 and json.loads(path.read_bytes()) == before


def test_without_a_checksum_the_size_must_be_the_official_one(
    server, archives, data_dir, capsys, monkeypatch
):
    MAKE["ag-news"](archives)
    content = (archives / "ag_news_csv.tar.gz").read_bytes()
    server.files["ag_news_csv.tar.gz"] = content
    monkeypatch.setattr(fetch.Source, "url", lambda self, archive: f"{server.url}/{archive.name}")
    command = ["ag-news", "--data-dir", data_dir, *SMALL["ag-news"]]
    assert _run(*command) == 2
    assert "its size is not the official 11,784,419 bytes" in capsys.readouterr().err
    entry = CATALOGUE["ag-news"]
    monkeypatch.setitem(
        CATALOGUE,
        "ag-news",
        replace(entry, archives=(replace(entry.archives[0], bytes=len(content)),)),
    )
    monkeypatch.setattr(
        build.Run,
        "archive",
        lambda self, _, real=build.Run.archive: real(self, CATALOGUE["ag-news"].archives[0]),
    )
    assert _run(*command) == 0
    assert _manifests(data_dir)[0]["archives"][0]["official"] is None


def test_an_archive_that_a_person_put_there_is_used(
    server, archives, data_dir, capsys, monkeypatch
):
    """In place of a download, and judged like one."""
    miniature.cifar100(archives)
    monkeypatch.setattr(fetch.Source, "url", lambda self, archive: f"{server.url}/{archive.name}")
    shutil.copytree(archives, data_dir / "archives")
    assert _run("cifar100", "--data-dir", data_dir, *SMALL["cifar100"]) == 2
    assert "its MD5 is not the official eb9058c3a382ffc7106e4002c42a8d85" in capsys.readouterr().err
    assert _run("cifar100", "--data-dir", data_dir, *SMALL["cifar100"], "--allow-subset") == 0
    assert "SUBSET" in capsys.readouterr().out and _manifests(data_dir)[0]["official"] is False
    assert server.log == []


def test_an_official_archive_is_called_so(archives, data_dir, capsys, monkeypatch):
    """With the miniature's own checksum and counts for the official ones."""
    miniature.tiny_imagenet(archives)
    md5 = hashlib.md5((archives / "tiny-imagenet-200.zip").read_bytes()).hexdigest()
    entry = CATALOGUE["tiny-imagenet"]
    monkeypatch.setattr(
        build.Run,
        "archive",
        lambda self, archive, real=build.Run.archive: real(self, replace(archive, md5=md5)),
    )
    for name, n in (("train", 6), ("val", 4), ("classes", 2)):
        monkeypatch.setitem(entry.counts, name, n)
    assert _run("tiny-imagenet", "--archives", archives, "--data-dir", data_dir) == 0
    assert "NOTE" not in capsys.readouterr().out
    assert _manifests(data_dir)[0]["official"] is True


# --- what is written


@pytest.mark.parametrize(
    ("name", "task", "users"), [("cifar10", "IC10", 1), ("cifar100", "IC100", 2)]
)
def test_cifar(archives, data_dir, name, task, users):
    MAKE[name](archives)
    assert _run(name, "--archives", archives, "--data-dir", data_dir, *SMALL[name]) == 0
    rows = _rows(data_dir, name.upper())
    assert rows.keys() == {
        (split, client) for split in ("train", "val", "test") for client in range(users)
    }
    public = [
        np.asarray(Image.open(path))
        for path in sorted((data_dir / "IC" / name.upper() / "public").glob("*.png"))
    ]
    assert len(public) == 60
    everything = [image.tobytes() for images in rows.values() for image in images] + [
        image.tobytes() for image in public
    ]
    assert len(set(everything)) == len(everything)
    assert read_public(data_dir / "IC" / name.upper() / "public", 60, Pixels(32)).shape == (
        60,
        3,
        32,
        32,
    )
    # an image is the row of its number: the archive's channels-first bytes, and the label that
    # belongs to it
    source = {
        np.random.RandomState(i).randint(0, 256, 3072).astype(np.uint8).tobytes(): i
        for i in range(600)
    }
    for (split, client), images in rows.items():
        samples, classes = TASKS[task].read(data_dir, client, split, Pixels(32))
        assert len(classes) == {"IC10": 10, "IC100": 100}[task]
        for image, label, read in zip(
            images, samples.targets.tolist(), samples.inputs, strict=True
        ):
            number = source[image.transpose(2, 0, 1).tobytes()]
            assert number % len(classes) == label
            assert (number >= {"IC10": 150, "IC100": 300}[task]) == (split == "test")
            assert np.array_equal(read.numpy(), image.transpose(2, 0, 1))


@pytest.mark.parametrize("size", [None, 10])
def test_coco(archives, data_dir, size):
    miniature.coco(archives)
    assert (
        _run(
            "coco",
            "--archives",
            archives,
            "--data-dir",
            data_dir,
            *SMALL["coco"],
            *(["--size", size] if size else []),
        )
        == 0
    )
    users = {}
    for folder, clients in (("MLC_setup", 3), ("semseg_setup", 2)):
        for split, n in (("train", 6), ("val", 2), ("test", 6)):
            for client in range(clients):
                coco = COCO(str(data_dir / folder / split / f"client_{client}.json"))
                assert sorted(coco.getCatIds()) == [1, 2, 3]
                assert len(coco.imgs) == n
                users[folder, split, client] = set(coco.imgs)
                for image in coco.imgs.values():
                    with Image.open(
                        data_dir / folder / "images" / split / image["file_name"]
                    ) as file:
                        assert (
                            file.size
                            == (image["width"], image["height"])
                            == ((10, 7) if size else (20, 14))
                        )
                    found = coco.imgToAnns[image["id"]]
                    assert [a["category_id"] for a in found] == [
                        1 + (image["id"] + k) % 3 for k in range(3)
                    ]
                    scale = image["width"] / 20
                    for annotation in found:
                        assert annotation["bbox"] == [4 * scale, 2 * scale, 8 * scale, 6 * scale]
                        expected = np.zeros((image["height"], image["width"]), np.uint8)
                        expected[
                            int(2 * scale) : int(8 * scale), int(4 * scale) : int(12 * scale)
                        ] = 1
                        assert np.array_equal(coco.annToMask(annotation), expected)
    public = {
        int(path.stem)
        for path in (data_dir / "MLC_setup/public_COCO").iterdir()
        if path.suffix in {".jpg", ".png"}
    }
    assert len(public) == 10
    from_train = [
        ids for (folder, split, _), ids in users.items() if (folder, split) != ("MLC_setup", "test")
    ]
    assert (
        max(set().union(*from_train))
        < 10_000
        < min(set().union(*(users["MLC_setup", "test", client] for client in range(3))))
    )
    assert len(public.union(*from_train)) == 10 + sum(map(len, from_train))  # disjoint
    of_mlc = [
        ids for (folder, split, _), ids in users.items() if (folder, split) == ("MLC_setup", "test")
    ]
    assert len(set().union(*of_mlc)) == sum(map(len, of_mlc))
    samples, classes = TASKS["MLC"].read(data_dir, 1, "train", Pixels(16))
    assert classes == (1, 2, 3)
    assert (
        samples.targets.shape == (6, 3) and samples.targets.min() == 1
    )  # three categories in a row
    assert read_public(data_dir / "MLC_setup/public_COCO", 10, Pixels(16)).shape == (10, 3, 16, 16)


def test_coco_parts_of_two_runs_are_disjoint(archives, data_dir):
    miniature.coco(archives)
    command = [
        "coco",
        "--archives",
        archives,
        "--data-dir",
        data_dir,
        "--train-size",
        "4",
        "--pool",
        "6",
        "--val",
        "2",
        "--test",
        "6",
    ]
    assert _run(*command, "--parts", "mlc,ss") == 0
    assert (
        _run(
            "coco",
            "--archives",
            archives,
            "--data-dir",
            data_dir,
            "--parts",
            "public",
            "--seed",
            "1",
        )
        == 0
    )
    users = {
        path.stem for split in ("train", "val") for path in data_dir.glob(f"*/images/{split}/*")
    }
    users |= {path.stem for path in data_dir.glob("semseg_setup/images/test/*")}
    public = {path.stem for path in (data_dir / "MLC_setup/public_COCO").glob("*.jpg")}
    assert (
        len(users) == 52 and len(public) == 23
    )  # of 80, of which 75 are annotated: as many as were counted on
    assert not users & public


def test_coco_gives_the_papers_users_what_the_paper_says():
    """With as many annotated images as the official archives have: 117,266 and 4,952."""
    train, test = (
        [{"id": start + i} for i in range(n)] for start, n in ((0, 117_266), (10**6, 4_952))
    )
    run = SimpleNamespace(
        options={"seed": 0, "public": None}, sizes=[], rng=lambda: np.random.default_rng(0)
    )
    users, public = coco._divide(run, train, test, train)
    assert len(public) == 5000
    assert {(part, split): len(records) for (part, split, _), records in users.items()} == {
        ("mlc", "train"): 2000, ("mlc", "val"): 500, ("mlc", "test"): 1000,
        ("ss", "train"): 2000, ("ss", "val"): 500, ("ss", "test"): 3000,
    }  # fmt: skip
    drawn = [record["id"] for records in [*users.values(), public] for record in records]
    assert len(set(drawn)) == len(drawn)
    assert all(line["got"] == line["asked"] for line in run.sizes)


def test_coco_parts_named_twice_are_one(archives, data_dir):
    miniature.coco(archives)
    assert (
        _run(
            "coco",
            "--archives",
            archives,
            "--data-dir",
            data_dir,
            *SMALL["coco"],
            "--parts",
            "mlc,mlc",
        )
        == 0
    )
    assert len(list(data_dir.glob("MLC_setup/*/client_*.json"))) == 9


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
def test_coco_does_not_wait_for_what_is_queued(monkeypatch, tmp_path, failure):
    fetched = []

    def download(url, path, *, quiet):
        time.sleep(0.01)
        path.write_bytes(b"")
        fetched.append(url)
        return path

    def take(image, content):
        raise failure

    monkeypatch.setattr(fetch, "download", download)
    (tmp_path / "train2017").mkdir()
    run = SimpleNamespace(source=fetch.Source(tmp_path))
    with pytest.raises(failure):
        coco._one_by_one(
            run, "train2017", {f"{i}.jpg": f"http://127.0.0.1:9/{i}.jpg" for i in range(500)}, take
        )
    assert len(fetched) < 100


def test_coco_images_come_one_by_one_and_what_is_missing_later(server, archives, data_dir, capsys):
    miniature.coco(archives, zips=False)
    server.files = {
        path.relative_to(archives).as_posix(): path.read_bytes()
        for path in archives.rglob("*")
        if path.is_file()
    }
    wanted = [name for name in server.files if name.startswith("train2017")]
    gone = {name: server.files.pop(name) for name in wanted[::7]}
    server.files[wanted[1]] = b"no image at all"
    command = ["coco", "--base-url", server.url, "--data-dir", data_dir, *SMALL["coco"]]
    command[command.index("--public") + 1] = "20"
    assert _run(*command) == 2
    error = capsys.readouterr().err
    assert (
        "images could not be had" in error
        and "run the same command again" in error
        and "--skip-missing" in error
    )
    assert _manifests(data_dir) == []
    server.log.clear()
    server.files |= gone | {wanted[1]: miniature.picture(2)}
    assert _run(*command) == 0
    fetched = {path for path, *_ in server.log if path.endswith(".jpg")}
    assert fetched <= {*gone, wanted[1]}  # no image that was there already
    assert len(_manifests(data_dir)) == 3


def test_coco_goes_on_without_images_if_told_so(archives, data_dir, capsys):
    miniature.coco(archives, zips=False)
    command = ["coco", "--archives", archives, *SMALL["coco"], "--data-dir"]
    assert _run(*command, data_dir / "whole") == 0
    lost = next(iter(COCO(str(data_dir / "whole/MLC_setup/train/client_0.json")).imgs.values()))
    (archives / "train2017" / lost["file_name"]).unlink()
    assert _run(*command, data_dir / "partial") == 2
    assert "1 of " in capsys.readouterr().err
    assert _run(*command, data_dir / "partial", "--skip-missing") == 0
    assert lost["file_name"] in capsys.readouterr().out
    for path in (data_dir / "partial").rglob("client_*.json"):
        assert lost["id"] not in COCO(str(path)).imgs


def test_coco_too_small_for_the_paper_says_so(archives, data_dir, capsys):
    miniature.coco(archives)
    assert _run("coco", "--archives", archives, "--data-dir", data_dir) == 2
    assert (
        "has 75 samples for 3 x 200 for MLC train, 2 x 1000 for SS train" in capsys.readouterr().err
    )


# --- COCO's captions


@pytest.mark.parametrize("year", [2014, 2017])
@pytest.mark.parametrize("karpathy", [True, False])
def test_coco_captions(archives, data_dir, year, karpathy, capsys):
    """CreamFL's test images are of the test split and its public ones of the others, whether
    Karpathy's or COCO's own.
    """
    miniature.coco_captions(archives, year, karpathy=karpathy)
    command = ["coco-captions", "--archives", archives, "--data-dir", data_dir, "--edition", year]
    assert (
        _run(*command, "--public", "28", "--test", "6", "--size", 16 if year == 2017 else 160) == 0
    )
    assert (
        "NOTE: no caption_datasets.zip: test images are COCO's own of val"
        in capsys.readouterr().out
    ) is not karpathy
    found = captioned.parts(data_dir / "MM/coco", {"test": 6, "public": 28})
    ids = {name: {int(path.stem[-12:]) for path in part.paths} for name, part in found.items()}
    assert not ids["test"] & ids["public"] and all(number > 1000 for number in ids["test"])
    if karpathy:
        assert {number % 4 for number in ids["test"]} == {1, 2} and {
            n % 4 for n in ids["public"] if n > 1000
        } <= {3}
    for part in found.values():
        for path, captions in zip(part.paths, part.captions, strict=True):
            assert captions == tuple(f"caption {k} of {int(path.stem[-12:])}" for k in range(5))
            assert path.suffix == (".png" if year == 2017 else ".jpg")
    (manifest,) = _manifests(data_dir)
    assert manifest["counts"]["found"] == {
        "images": 42,
        "captions": 252,
        "karpathy": 42 if karpathy else 0,
    }


def test_coco_captions_leaves_out_and_says_what_no_run_reads(archives, data_dir, capsys):
    """Captions that are empty, and images without any; images that both parts list are of the test
    set alone.
    """
    miniature.coco_captions(archives, karpathy=False)

    def change(document):
        for annotation in document["annotations"]:
            if annotation["image_id"] == 3 or annotation["id"] == 50:
                annotation["caption"] = " "
        document["images"].append(
            document["images"][0] | {"id": 1001, "file_name": "COCO_val2014_000000001001.jpg"}
        )

    _change_captions(archives, change)
    assert (
        _run(
            "coco-captions",
            "--archives",
            archives,
            "--data-dir",
            data_dir,
            "--public",
            "30",
            "--test",
            "12",
        )
        == 0
    )
    said = capsys.readouterr().out
    assert (
        "NOTE: 6 captions are empty or too long" in said
        and "public images: 30 asked for, 29 got" in said
    )
    assert "NOTE: 1 images are listed for train and for val; they count for val alone" in said
    found = captioned.parts(data_dir / "MM/coco", {"test": 12, "public": 29})
    kept = {
        int(path.stem[-12:]): own
        for part in found.values()
        for path, own in zip(part.paths, part.captions, strict=True)
    }
    assert kept.keys() == ({*range(1, 31)} - {3}) | {*range(1001, 1013)}
    assert kept[5] == tuple(f"caption {k} of 5" for k in range(1, 6)) and 1001 in {
        int(path.stem[-12:]) for path in found["test"].paths
    }


def test_coco_captions_without_a_split_that_could_be_had_are_refused(archives, data_dir, capsys):
    miniature.coco_captions(archives, karpathy=False)
    (archives / "val2014.zip").unlink()
    command = [
        "coco-captions",
        "--archives",
        archives,
        "--data-dir",
        data_dir,
        "--public",
        "9",
        "--test",
        "6",
    ]
    for options, why in (
        ([], "images could not be had"),
        (["--skip-missing"], "coco-captions: no test image could be had"),
    ):
        assert _run(*command, *options) == 2
        assert why in capsys.readouterr().err and not _manifests(data_dir)


def _change_captions(
    archives: Path, change: Callable[[dict], object], file: str = "captions_train2014.json"
) -> None:
    """Change one of the documents in its archive."""
    path = archives / (
        "caption_datasets.zip" if file == "dataset_coco.json" else "annotations_trainval2014.zip"
    )
    with opened(path) as members:
        documents = {name: content.read() for name, content in members}
    (name,) = (name for name in documents if name.endswith(file))
    document = json.loads(documents[name])
    changed = change(document)
    documents[name] = changed if isinstance(changed, bytes) else json.dumps(document).encode()
    miniature.write_zip(path, documents)


def _with(kind: str, **fields: object) -> Callable[[dict], None]:
    return lambda document: document[kind][3].update(fields)


_SPLIT = "dataset_coco.json"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_with("annotations", caption=7), "number 3 of its annotations has 7 for caption"),
        (
            _with("annotations", caption="a \ud800 word"),
            "number 3 of its annotations has 'a .*' for caption",
        ),
        (_with("annotations", id=300), "of its annotations has the id 300 of another"),
        (_with("annotations", id=True), "number 3 of its annotations has True for id"),
        (_with("annotations", image_id=77), "is of image 77, which it does not list"),
        (_with("annotations", image_id=1001), "is of image 1001, which it does not list"),
        (_with("images", id=1), "number 3 of its images has the id 1 of another"),
        (_with("images", id="4"), "number 3 of its images has '4' for id"),
        (_with("images", file_name=None), "number 3 of its images has None for file_name"),
        (
            _with("images", file_name="../../etc/x.jpg"),
            r"it holds '../../etc/x.jpg', as the name of a file",
        ),
        (_with("images", file_name="..\\x.jpg"), "as the name of a file"),
        (
            _with("images", file_name="COCO_train2014_000000000001.jpg"),
            "image 4 has the file 'COCO_train.*1.jpg' of image 1",
        ),
        (_with("images", file_name="x.txt"), "image 4 has 'x.txt' for file_name"),
        (_with("images", width=-20), "number 3 of its images has -20 for width"),
        (_with("images", width=21), "an image of 20 x 14 px, recorded as 21 x 14"),
        (lambda d: d["images"].__setitem__(3, 4), "number 3 of its images is no record"),
        (lambda d: d.pop("images"), "lacks a list of images"),
        (
            lambda d: d.update(images=[], annotations=[]),
            "no image of the split train or restval has a caption",
        ),
        (lambda d: b'{"images": [], "annotations": "\xff"}', "not JSON .*can't decode byte 0xff"),
        (lambda d: b"[7]", "holds a list, not an object"),
        (
            (_SPLIT, _with("images", split="tset")),
            "dataset_coco.json: number 3 of its images has 'tset' for split",
        ),
        (
            (_SPLIT, _with("images", split=["test"])),
            "number 3 of its images has .*test.* for split",
        ),
        ((_SPLIT, _with("images", cocoid=1)), "number 3 of its images has the cocoid 1 of another"),
        (
            (_SPLIT, lambda d: [image.update(split="val") for image in d["images"]]),
            "no image of the split test has a caption",
        ),
        ((_SPLIT, lambda d: b"\xff\xfe"), "dataset_coco.json: not JSON"),
    ],
)
def test_coco_captions_names_what_is_damaged(archives, data_dir, capsys, change, why):
    """In one line, and nothing is put in place."""
    miniature.coco_captions(archives)
    file, change = change if isinstance(change, tuple) else ("captions_train2014.json", change)
    if "restval" in why:
        _change_captions(
            archives, lambda d: [image.update(split="test") for image in d["images"]], _SPLIT
        )
    _change_captions(archives, change, file)
    assert (
        _run(
            "coco-captions",
            "--archives",
            archives,
            "--data-dir",
            data_dir,
            "--public",
            "30",
            "--test",
            "4",
        )
        == 2
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and re.search(why, line)
    assert _manifests(data_dir) == []


def test_voc(archives, data_dir):
    miniature.voc(archives)
    assert _run("voc", "--archives", archives, "--data-dir", data_dir, *SMALL["voc"]) == 0
    seen: set[str] = set()
    for split, n in (("train", 10), ("val", 3), ("test", 6)):
        for client in range(3):
            coco = COCO(str(data_dir / "MLC_setup" / split / f"client_{client}.json"))
            assert len(coco.imgs) == n and len(coco.cats) == 20
            for image in coco.imgs.values():
                number = int(Path(image["file_name"]).stem.split("_")[1])
                assert (number >= 40) == (split == "test")
                assert (image["width"], image["height"]) == (32, 24)
                found = {a["category_id"]: a for a in coco.imgToAnns[image["id"]]}
                assert found.keys() == {1 + number % 20, 15}  # neither the rim nor a single pixel
                small = np.asarray(
                    Image.fromarray(miniature.voc_mask(number)).resize(
                        (32, 24), Image.Resampling.NEAREST
                    )
                )
                for category, annotation in found.items():
                    assert np.array_equal(coco.annToMask(annotation), small == category)
            seen |= {Path(image["file_name"]).stem for image in coco.imgs.values()}
    users = _stems(data_dir, *(f"MLC_setup/images/{split}" for split in ("train", "val", "test")))
    assert (
        set(users) == seen and len(users) == len(seen) == 3 * (10 + 3) + 6
    )  # one test set for the three, each of its images once
    public = set(_stems(data_dir, "MLC_setup/public_Pascal"))
    assert len(public) == 75 - 3 * (10 + 3) - 20 and not public & seen  # nor what else val.txt has
    samples, classes = TASKS["MLC"].read(data_dir, 2, "test", Pixels(32))
    assert len(classes) == 20 and samples.targets.sum(1).max() <= 2
    assert read_public(data_dir / "MLC_setup/public_Pascal", len(public), Pixels(32)).shape[
        0
    ] == len(public)
    # the public set alone, later, spares the users' images all the same
    assert _run("voc", "--archives", archives, "--data-dir", data_dir, "--seed", "5") == 0
    again = set(_stems(data_dir, "MLC_setup/public_Pascal"))
    assert len(again) == len(public) and not again & seen


SEGMENTING = ["--train-size", "3", "--pool", "6", "--val", "2", "--test", "3"]


def _stems(data_dir: Path, *folders: str) -> list[str]:
    return [path.stem for folder in folders for path in (data_dir / folder).glob("*.??g")]


def test_voc_masks_are_read_as_they_are(archives, data_dir):
    """Every pixel, specks too; the rim counts nowhere."""
    miniature.voc(archives)
    assert (
        _run("voc", "--archives", archives, "--data-dir", data_dir, "--parts", "ss", *SEGMENTING)
        == 0
    )
    sizes = {"train": 6, "val": 2, "test": 3}
    for split, n in sizes.items():
        for client in range(2):
            coco = COCO(str(data_dir / "semseg_setup" / split / f"client_{client}.json"))
            names = [coco.imgs[i]["file_name"] for i in sorted(coco.imgs)]
            numbers = [int(Path(name).stem.split("_")[1]) for name in names]
            assert len(names) == n and {number >= 40 for number in numbers} == {
                split == "test"
            }  # of val.txt
            samples, classes = TASKS["SS"].read(data_dir, client, split, Pixels(40))
            assert classes == tuple(range(1, 21))
            for number, target in zip(numbers, samples.targets, strict=True):
                columns = np.arange(40) * 2  # of the nearest pixels, in 60 rows and 80 columns
                rows = np.arange(40) * 3 // 2
                assert np.array_equal(target.numpy(), miniature.voc_mask(number)[rows][:, columns])
                assert (target == IGNORED).any() and (target == 15).any()
                assert (target[0, 0] == 20) == (number % 3 == 0)
    stems = _stems(data_dir, *(f"semseg_setup/images/{split}" for split in sizes))
    assert len(set(stems)) == len(stems) == 2 * (6 + 2) + 3


def test_voc_users_share_test_images_alone(archives, data_dir, capsys):
    miniature.voc(archives)
    together = [
        "--parts",
        "mlc,ss,public",
        "--train-size",
        "2",
        "--pool",
        "3",
        "--val",
        "1",
        "--test",
        "3",
        "--public",
        "35",
    ]
    command = ["voc", "--archives", archives, "--data-dir", data_dir]
    learning = [
        f"{setup}/images/{split}"
        for setup in ("MLC_setup", "semseg_setup")
        for split in ("train", "val")
    ]
    assert _run(*command, *together, "--size", "32") == 0
    stems = _stems(data_dir, *learning, "MLC_setup/public_Pascal")
    assert len(set(stems)) == len(stems) == 75 - 20  # all but those of val.txt
    assert "also SS users'" not in capsys.readouterr().out

    alone = data_dir / "alone"
    command = ["voc", "--archives", archives, "--data-dir", alone]
    assert (
        _run(
            *command,
            "--clients",
            "3",
            "--train-size",
            "2",
            "--pool",
            "3",
            "--val",
            "1",
            "--test",
            "3",
        )
        == 0
    )
    users = _stems(alone, *learning)
    capsys.readouterr()
    assert _run(*command, "--parts", "ss", *SEGMENTING) == 0
    stems = _stems(alone, *learning)
    assert len(set(stems)) == len(stems) == len(users) + 2 * (6 + 2)
    assert (
        "NOTE: 16 of the users' images are also in MLC_setup/public_Pascal"
        in capsys.readouterr().out
    )
    assert _run(*command, "--parts", "public", "--public", "27") == 0
    assert not set(_stems(alone, "MLC_setup/public_Pascal")) & set(stems)


def test_a_small_vocs_public_set_has_the_masks_users_images_last(archives, data_dir, capsys):
    """None of an MLC user or of val.txt, and as many of the SS users' as are lacking: the manifest
    says how many.
    """
    miniature.voc(archives, unmasked=4)
    sizes = [
        "--train-size",
        "2",
        "--pool",
        "5",
        "--val",
        "2",
        "--test",
        "3",
    ]  # 3 x 7 and 2 x 7 of 40
    assert (
        _run(
            "voc",
            "--archives",
            archives,
            "--data-dir",
            data_dir,
            "--parts",
            "mlc,ss,public",
            *sizes,
            "--public",
            "20",
        )
        == 0
    )
    public = set(_stems(data_dir, "MLC_setup/public_Pascal"))
    masked = set(_stems(data_dir, "semseg_setup/images/train", "semseg_setup/images/val"))
    assert len(public) == 20 and len(public & masked) == 20 - 5 - 4
    assert not public & set(_stems(data_dir, "MLC_setup/images/train", "MLC_setup/images/val"))
    assert all(int(stem[-6:]) not in range(40, 60) for stem in public)
    assert "NOTE: 11 of the 20 public images are also SS users'" in capsys.readouterr().out
    rows = json.loads((data_dir / "MLC_setup/manifest.json").read_text())["sizes"]
    assert {"what": "public, also SS users'", "holders": 1, "asked": 11, "got": 11} in rows
    assert {"what": "MLC test, 3 users' one", "holders": 1, "asked": 3, "got": 3} in rows


def test_small_makes_what_its_data_sets_commands_make(archives, data_dir, capsys, monkeypatch):
    """Flickr30k, which is given out after a form, may be lacking; another may not."""
    for task in SIZES:
        monkeypatch.setitem(SIZES, task, Sizes(users=2, local=5, pool=6, val=2, test=4))
    monkeypatch.setattr(voc, "TASKS", SIZES)
    for make in (miniature.cifar10, miniature.cifar100, miniature.voc):
        make(archives)
    small = ["small", "--archives", archives, "--data-dir", data_dir]
    assert _run(*small) == 2
    assert "yahoo_answers_csv.tar.gz" in capsys.readouterr().err
    miniature.topics(archives, "yahoo_answers_csv", 3, 10)
    miniature.topics(archives, "ag_news_csv", 2, 4)
    assert _run(*small) == 0
    said = capsys.readouterr().out
    assert (
        said.count("nothing to do") == 4
        and "flickr30k: NOT PREPARED" in said
        and not (data_dir / "TC/flicker_public").exists()
    )
    miniature.flickr30k(archives)
    assert _run(*small) == 0
    assert "NOT PREPARED" not in capsys.readouterr().out
    own = {
        "voc": ["--parts", "mlc,ss,public"],
        "flickr30k": [],
        "cifar10": ["--test", "2000"],
        "cifar10-lt": ["--per-class", "500"],
    }
    for command in ([name, *options] for name, options in own.items()):
        assert _run(*command, "--archives", archives, "--data-dir", data_dir) == 0
        assert "nothing to do" in capsys.readouterr().out


def test_an_option_that_a_command_has_gained_makes_nothing_anew(archives, data_dir, capsys):
    miniature.voc(archives)
    command = ["voc", "--archives", archives, "--data-dir", data_dir]
    assert _run(*command) == 0
    for path in data_dir.rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        del manifest["request"]["parts"]
        path.write_text(json.dumps(manifest))
    capsys.readouterr()
    assert _run(*command) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert _run(*command, "--parts", "ss", *SEGMENTING) == 0


def test_what_another_command_made_meanwhile_is_not_replaced(
    archives, data_dir, capsys, monkeypatch
):
    miniature.voc(archives)

    def report(run):
        write_texts(data_dir / "MLC_setup/train/client_0.json", ["another's"], [0])

    monkeypatch.setattr(build, "_report", report)
    assert _run("voc", "--archives", archives, "--data-dir", data_dir, *SMALL["voc"]) == 2
    assert "MLC_setup holds files that this command did not write" in capsys.readouterr().err
    assert b"another's" in (data_dir / "MLC_setup/train/client_0.json").read_bytes()
    assert _manifests(data_dir) == []


def test_a_list_that_is_no_text_is_named(archives, data_dir, capsys):
    miniature.write_zip(
        archives / "tiny-imagenet-200.zip",
        {"tiny-imagenet-200/val/val_annotations.txt": b"a.JPEG\t\xff\n"},
    )
    miniature.write_tar(
        archives / "VOCtrainval_11-May-2012.tar",
        {"VOC2012/ImageSets/Segmentation/train.txt": b"\xff"},
    )
    for make in (miniature.flickr30k, miniature.imagenet_lt):
        make(archives)
    miniature.write_tar(
        archives / "flickr30k.tar.gz", {"results_20130124.token": b"0.jpg#0\t\xff\n"}
    )
    (archives / "ImageNet_LT_train.txt").write_bytes(b"\xff 0\n")
    lists = {"tiny-imagenet": "val/val_annotations.txt", "voc": "Segmentation/train.txt"}
    lists |= {
        "flickr30k": "flickr30k.tar.gz: results_20130124.token",
        "imagenet-lt": "ImageNet_LT_train.txt",
    }
    for name, member in lists.items():
        assert _run(name, "--archives", archives, "--data-dir", data_dir) == 2
        assert f"{member}: not UTF-8" in capsys.readouterr().err


def test_two_runs_do_not_meet_and_a_killed_ones_scraps_go(archives, data_dir, capsys):
    miniature.tiny_imagenet(archives)
    command = ["tiny-imagenet", "--archives", archives, "--data-dir", data_dir]
    killed, others = data_dir / ".tiny-imagenet-12345678", data_dir / ".tiny-imagenet-mine"
    for folder in (killed, others):
        (folder / "new").mkdir(parents=True)
    with FileLock(data_dir / ".tiny-imagenet.lock"):
        assert _run(*command) == 2
    assert "another `data_prep tiny-imagenet` is at work here" in capsys.readouterr().err
    assert _run(*command) == 0
    assert not killed.exists() and (others / "new").exists()


def test_nobody_elses_files_are_replaced(archives, data_dir, capsys):
    miniature.coco(archives)
    miniature.voc(archives)
    assert _run("coco", "--archives", archives, "--data-dir", data_dir, *SMALL["coco"]) == 0
    before = _tree(data_dir)
    assert _run("voc", "--archives", archives, "--data-dir", data_dir, *SMALL["voc"]) == 2
    assert (
        "MLC_setup holds files made by `data_prep coco`; --force replaces them"
        in capsys.readouterr().err
    )
    assert _tree(data_dir) == before
    assert (
        _run("voc", "--archives", archives, "--data-dir", data_dir, *SMALL["voc"], "--force") == 0
    )
    assert (data_dir / "MLC_setup/public_COCO").is_dir()

    own = data_dir / "IC/CIFAR10/train/client_0.pkl"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine")
    miniature.cifar10(archives)
    assert _run("cifar10", "--archives", archives, "--data-dir", data_dir, *SMALL["cifar10"]) == 2
    assert "holds files that this command did not write" in capsys.readouterr().err
    assert own.read_bytes() == b"mine"


def test_flickr30k(archives, data_dir):
    miniature.flickr30k(archives)
    assert (
        _run("flickr30k", "--archives", archives, "--data-dir", data_dir, *SMALL["flickr30k"]) == 0
    )
    folder = data_dir / "TC/flicker_public"
    captions = load_pickle(folder / "image_file_name_to_caption.pkl")
    assert captions.keys() == {path.name for path in (folder / "images").iterdir()}
    assert len(captions) == 8
    for name, said in captions.items():
        assert said == [f"Caption {k} of\u2028 {Path(name).stem} –\x85 naïve ." for k in range(5)]
    assert read_public(folder / "images", 8, Pixels(16)).shape == (8, 3, 16, 16)


@pytest.mark.parametrize(
    ("name", "folder", "classes"), [("yahoo", "yahoo_qa", 10), ("ag-news", "ag_news", 4)]
)
def test_topics(archives, data_dir, name, folder, classes):
    MAKE[name](archives)
    assert _run(name, "--archives", archives, "--data-dir", data_dir, *SMALL[name]) == 0
    seen: set[str] = set()
    for split, n in (("train", 100), ("val", 80), ("test", 30)):
        for client in range(2):
            content = load_pickle(data_dir / "TC" / folder / split / f"client_{client}.pkl")
            assert len(content["texts"]) == len(content["labels"]) == n
            assert np.ptp(np.bincount(content["labels"], minlength=classes)) <= 1
            for text, label in zip(content["texts"], content["labels"], strict=True):
                source, number = text.split()[:2]
                assert source == ("test" if split == "test" else "train")
                assert int(number) % classes == label
                body = (
                    f"line\nnext {number}\nnuclear"
                    if name == "yahoo"
                    else f"line next {number} nuclear"
                )
                assert text.startswith(f'{source} {number} "quoted", title {body}')
            assert not seen & set(content["texts"])
            seen |= set(content["texts"])


@pytest.mark.parametrize("name", ["cifar10", "food101"])
def test_a_pool_is_one_file_a_split_beside_the_users_own(archives, data_dir, name):
    MAKE[name](archives)
    for command in (name, f"{name}-pool"):
        assert _run(command, "--archives", archives, "--data-dir", data_dir, *SMALL[command]) == 0
    folder = data_dir / f"IC/{name.upper()}_pool"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "manifest.json",
        *(f"{split}/client_0.pkl" for split in ("train", "val", "test")),
    }
    everything = [
        image.tobytes()
        for images in _rows(data_dir, f"{name.upper()}_pool").values()
        for image in images
    ]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize(("name", "folder"), [("food101", "FOOD101"), ("caltech101", "CALTECH101")])
def test_photo_classes(archives, data_dir, name, folder):
    MAKE[name](archives)
    assert _run(name, "--archives", archives, "--data-dir", data_dir, *SMALL[name]) == 0
    rows = _rows(data_dir, folder)
    assert {split for split, _ in rows} == {"train", "val", "test"}
    assert all(images.shape[1:] == (16, 16, 3) for images in rows.values())
    everything = [image.tobytes() for images in rows.values() for image in images]
    assert len(set(everything)) == len(everything)
    task = ImageClassification("two", folder=f"IC/{folder}", n_classes=2)
    for split, client in rows:
        assert len(task.read(data_dir, client, split, Pixels(16))[0]) == len(rows[split, client])
    # the first class's pictures are those of the keys 0.., of Caltech's the second: its background
    # is none
    first = 0 if name == "food101" else 1000
    of_first = {
        np.asarray(
            Image.open(io.BytesIO(miniature.picture(first + i, 30, 20))).resize(
                (16, 16), Image.Resampling.BICUBIC
            )
        ).tobytes()
        for i in range(40)
    }
    for split, client in rows:
        labels = load_pickle(data_dir / "IC" / folder / split / f"client_{client}.pkl")["labels"]
        assert [image.tobytes() in of_first for image in rows[split, client]] == [
            label == 0 for label in labels
        ]


@pytest.mark.parametrize("again", ["test.txt", "train.txt"])
def test_an_image_that_food101_lists_twice_is_named(archives, data_dir, capsys, again):
    """One row would be filled, and the other hold whatever the memory held."""
    miniature.food101(archives)
    path = archives / "food-101.tar.gz"
    with opened(path) as files:
        members = {name: file.read() for name, file in files}
    members[f"food-101/meta/{again}"] += b"\nwaffles/7"  # of train.txt
    miniature.write_tar(path, members)
    assert _run("food101", "--archives", archives, "--data-dir", data_dir, *SMALL["food101"]) == 2
    assert (
        f"{path}: train.txt with test.txt: more than once, 1 images, such as waffles/7"
        in capsys.readouterr().err
    )
    assert _manifests(data_dir) == []


def test_an_image_that_caltech101_holds_twice_is_named(archives, data_dir, capsys):
    images = {
        f"{folder}/Faces/{i}.jpg": miniature.picture(i) for folder in ("a", "b") for i in range(40)
    }
    miniature.write_tar(inner := archives / "101_ObjectCategories.tar.gz", images)
    miniature.write_zip(
        archives / "caltech-101.zip", {f"caltech-101/{inner.name}": inner.read_bytes()}
    )
    assert (
        _run("caltech101", "--archives", archives, "--data-dir", data_dir, *SMALL["caltech101"])
        == 2
    )
    assert (
        f"caltech-101.zip: {inner.name}: more than once, 40 images, such as Faces/0.jpg"
        in capsys.readouterr().err
    )


def test_tiny_imagenet(archives, data_dir):
    miniature.tiny_imagenet(archives)
    assert _run("tiny-imagenet", "--archives", archives, "--data-dir", data_dir) == 0
    folder = data_dir / "tiny_imagenet"
    assert sorted(p.relative_to(folder).as_posix() for p in folder.glob("val/*/*")) == [
        "val/n00000001/val_0.JPEG", "val/n00000001/val_2.JPEG", "val/n00000002/val_1.JPEG", "val/n00000002/val_3.JPEG",
    ]  # fmt: skip
    assert len(list(folder.glob("train/*/*.JPEG"))) == 6
    assert (folder / "wnids.txt").exists() and (folder / "words.txt").exists()


def test_tiny_imagenet_without_class_folders_is_refused(archives, data_dir, capsys):
    for name in ("train/x.JPEG", "tiny-imagenet-200/train/x.JPEG"):
        miniature.write_zip(archives / "tiny-imagenet-200.zip", {name: miniature.picture(0)})
        assert _run("tiny-imagenet", "--archives", archives, "--data-dir", data_dir) == 2
        assert (
            f"{name}: " in (said := capsys.readouterr().err)
            and "is not the name of a class" in said
        )


@pytest.mark.parametrize(
    ("name", "classes", "each"), [("cifar10", 10, (15, 3)), ("cifar100", 100, (3, 3))]
)
def test_a_long_tailed_cifar_is_the_whole_archive(archives, data_dir, name, classes, each):
    MAKE[name](archives)
    assert _run(f"{name}-lt", "--archives", archives, "--data-dir", data_dir) == 0
    found = labelled_sets.read(data_dir, f"{name}_lt")
    assert found.train.classes == tuple(f"class {c}" for c in range(classes))
    row = 0  # in the archive, whose pixels and labels are drawn from it
    for images, n in zip((found.train, found.test), each, strict=True):
        assert np.bincount(images.labels).tolist() == [n] * classes
        for label, image in zip(
            images.labels, images.samples(range(len(images))).inputs, strict=True
        ):
            assert np.array_equal(
                image.flatten().numpy(),
                np.random.RandomState(row).randint(0, 256, 3072).astype(np.uint8),
            )
            assert label == row % classes
            row += 1


def test_fewer_of_a_class_are_drawn_from_the_seed(archives, data_dir, capsys):
    miniature.cifar10(archives)

    def drawn(seed, each):
        command = [
            "cifar10-lt",
            "--archives",
            archives,
            "--data-dir",
            data_dir,
            "--per-class",
            each,
            "--seed",
            seed,
        ]
        assert _run(*command) == 0
        train = labelled_sets.read(data_dir, "cifar10_lt").train
        assert np.bincount(train.labels).tolist() == [min(each, 15)] * 10
        return [image.numpy().tobytes() for image in train.samples(range(len(train))).inputs]

    many, few, others = drawn(0, 9), drawn(0, 4), drawn(1, 4)
    assert few == [image for image in many if image in set(few)] and set(others) != set(few)
    capsys.readouterr()
    drawn(0, 20)
    assert "NOTE: train, the rarest class: 20 asked for, 15 got" in capsys.readouterr().out


def test_a_cifar_archive_without_names_of_the_classes_is_refused(archives, data_dir, capsys):
    for meta, why in (
        ({}, "lacks meta"),
        ({"meta": pickle.dumps({"fine_label_names": ["one"]})}, "not the names of 100 classes"),
    ):
        batch = pickle.dumps(
            {"data": np.zeros((100, 3072), np.uint8), "fine_labels": list(range(100))}
        )
        members = {
            f"cifar-100-python/{name}": content
            for name, content in ({"train": batch, "test": batch} | meta).items()
        }
        miniature.write_tar(archives / "cifar-100-python.tar.gz", members)
        assert _run("cifar100-lt", "--archives", archives, "--data-dir", data_dir) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "folder", "classes"),
    [
        ("imagenet-lt", "imagenet_lt", [f"n0000000{c}" for c in range(3)]),
        ("inaturalist", "inaturalist", [f"Plantae/{c}" for c in range(3)]),
    ],
)
def test_lists_lead_to_the_users_images(
    archives, data_dir, tmp_path, name, folder, classes, monkeypatch
):
    """Which may lie elsewhere, and are neither copied nor touched, whatever becomes of what was
    written.
    """
    images = tmp_path / "images"
    MAKE[name](images)
    lists = [images / archive.name for archive in CATALOGUE[name].archives]
    for path in lists:
        path.rename(archives / path.name)
    before = _tree(images)
    monkeypatch.chdir(tmp_path)
    command = [name, "--archives", archives, "--data-dir", data_dir]
    assert _run(*command, "--images", "images") == 0
    found = labelled_sets.read(data_dir, folder, 14)
    assert list(found.train.classes) == classes
    for read, path, sizes in zip(
        (found.train, found.test), lists, ([4, 3, 2], [2, 2, 2]), strict=True
    ):
        assert np.bincount(read.labels).tolist() == sizes
        rows = [line.split() for line in (archives / path.name).read_text().splitlines()]
        assert read.labels.tolist() == [int(label) for _, label in rows]
        assert torch.equal(
            read.samples(range(len(rows))).inputs,
            Pixels(14).load([images / image for image, _ in rows]),
        )

    assert _run(*command, "--images", images, "--per-class", "2") == 0
    assert labelled_sets.read(data_dir, folder, 14).train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    moved = images.rename(tmp_path / "moved")
    assert _run(*command, "--images", moved, "--per-class", "2") == 0
    assert labelled_sets.read(data_dir, folder, 14).train.samples([5]).inputs.shape == (
        1,
        3,
        14,
        14,
    )
    shutil.rmtree(data_dir)
    assert _tree(moved) == before


def test_images_that_moved_with_their_lists_are_linked_anew(archives, data_dir):
    """The manifest, which does not name the folder, is the same."""
    miniature.imagenet_lt(archives)
    assert _run("imagenet-lt", "--archives", archives, "--data-dir", data_dir) == 0
    moved = archives.rename(archives.with_name("moved"))
    assert _run("imagenet-lt", "--archives", moved, "--data-dir", data_dir) == 0
    assert (data_dir / "FedLT/imagenet_lt/images").resolve() == moved


def test_listed_images_that_are_missing_are_counted_and_not_fetched(
    server, archives, data_dir, capsys
):
    miniature.imagenet_lt(archives)
    server.files = {path.name: path.read_bytes() for path in archives.glob("*.txt")}
    assert _run("imagenet-lt", "--base-url", server.url, "--data-dir", data_dir) == 2
    error = capsys.readouterr().err
    assert (
        "lacks 9 of the 9 images of ImageNet_LT_train.txt, such as train/n00000000/train_0.JPEG"
        in error
    )
    assert (
        "licensed, get them from https://image-net.org/download and say with --images FOLDER"
        in error
    )
    assert not [path for path, *_ in server.log if path.endswith("JPEG")]
    assert (
        _run("imagenet-lt", "--base-url", server.url, "--data-dir", data_dir, "--images", archives)
        == 0
    )


@pytest.mark.parametrize(
    ("train", "why"),
    [
        (
            "train/a/0.JPEG 0\ntrain/b/0.JPEG\n",
            "ImageNet_LT_train.txt: line 2: 'train/b/0.JPEG' is not a path and a label",
        ),
        ("train/a/0.JPEG zero\n", "ImageNet_LT_train.txt: line 1: "),
        ("", "ImageNet_LT_train.txt: line 1: '' is not a path and a label"),
        (
            "a/0 0\nb/0 2\nb/1 2\n",
            "ImageNet_LT_train.txt: no image has the label 1, the largest is 2",
        ),
        ("a/0 0\nb/0 2\n", "ImageNet_LT_train.txt: line 2: the label 2 in a list of 2 images"),
        (
            "a/0 0\nb/0 999999999\n",
            "ImageNet_LT_train.txt: line 2: the label 999999999 in a list of 2 images",
        ),
        (
            "a/0 0\nb/0 99999999999\n",
            "ImageNet_LT_train.txt: line 2: 'b/0 99999999999' is not a path and a label",
        ),
        (f"a/0 {'9' * 5000}\n", "ImageNet_LT_train.txt: line 1: 'a/0 999"),
        (
            "../0.JPEG 0\n",
            "ImageNet_LT_train.txt: refused: it holds '../0.JPEG', a name that leaves its folder",
        ),
        ("/0.JPEG 0\n", "ImageNet_LT_train.txt: refused: it holds '/0.JPEG'"),
        (
            "train/n00000000/train_0.JPEG 0\n",
            "ImageNet_LT_train.txt: no image has the label 2, but ImageNet_LT_test.txt has it",
        ),
    ],
)
def test_a_list_that_is_none_is_named(archives, data_dir, capsys, train, why):
    miniature.imagenet_lt(archives)
    (archives / "ImageNet_LT_train.txt").write_text(train)
    assert _run("imagenet-lt", "--archives", archives, "--data-dir", data_dir) == 2
    assert why in capsys.readouterr().err
    assert _manifests(data_dir) == []


# --- the command line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line_that_names_the_file(archives, data_dir, capsys, monkeypatch):
    MAKE["ag-news"](archives)

    def write(self, content, real=Path.write_bytes):
        return real(Path("/dev/full") if ".pkl" in self.name else self, content)

    monkeypatch.setattr(Path, "write_bytes", write)
    assert _run("ag-news", "--archives", archives, "--data-dir", data_dir, *SMALL["ag-news"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "TC/ag_news/train/client_0.pkl: No space left on device" in error


@pytest.mark.parametrize(
    "error", [ValueError("a\n  b"), FloatingPointError("a b"), SourceError("a\nb"), OSError("a\nb")]
)
def test_every_mistake_is_one_line(data_dir, capsys, monkeypatch, error):
    def plan(*arguments):
        raise error

    monkeypatch.setattr(command_line, "plan", plan)
    assert _run("cifar10", "--data-dir", data_dir, "--dry-run") == 2
    assert capsys.readouterr().err == "error: a b\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_is_no_mistake(capsys, arguments):
    assert _run(*arguments) == 0
    assert "tiny-imagenet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["cifar11"], "No such command"),
        (["cifar10", "--parts", "mlc"], "No such option: --parts"),  # which another data set takes
        (["cifar10", "--seed", "x"], "Invalid value for"),
        (["coco-captions", "--edition", "2015"], "--edition 2015: 2014 or 2017 is expected"),
        (["coco", "--parts", "mlc,sss"], "'sss' is none of mlc, ss, public"),
        (["voc", "--parts", "sss"], "'sss' is none of mlc, ss, public"),
        (
            ["cifar10", "--base-url", "ftp://x"],
            "--base-url ftp://x: http://HOST, https://HOST or file://",
        ),
        (["cifar10", "--base-url", "http://[x"], "--base-url http://[x: not an address"),
        (["cifar10", "--base-url", "http://x:port"], "--base-url http://x:port: not an address"),
        (["cifar10", "--base-url", "http:///x"], "--base-url http:///x: http://HOST"),
        (["cifar10", "--archives", "/nowhere"], "no such folder"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, capsys, arguments, why):
    assert _run(*arguments, "--data-dir", tmp_path / "data") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and len(error.splitlines()) == 1
    assert why in error


@every_data_set
def test_help_lists_the_options_that_a_data_set_takes_and_no_other(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert _run(name, "--help") == 0
    listed = re.findall(r"^\W*--([a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    common = ["data-dir", "base-url", "archives", "dry-run", "allow-subset", "force"]
    assert listed == [
        *common,
        *(option.name.replace("_", "-") for option in CATALOGUE[name].takes),
        "help",
    ]


def test_imports_only_go_up_the_list_of_wings():
    """The list is in the package's docstring."""
    wings = re.findall(r"^    (\w+)/?  ", data_prep.__doc__, re.MULTILINE)
    package = Path(data_prep.__file__).parent
    assert set(wings) == {
        path.stem for path in package.iterdir() if path.suffix == ".py" or list(path.glob("*.py"))
    } - {"__init__"}
    for path in package.rglob("*.py"):
        own = path.relative_to(package).with_suffix("").parts[0]
        known = wings[: wings.index(own) + 1] if own in wings else []
        assert set(re.findall(r"(?:from|import) data_prep\.(\w+)", path.read_text())) <= set(
            known
        ), path


# --- real archives

REAL_RUNS = {
    "cifar10": [],
    "cifar100": ["--alpha", "0.1", "--clients", "3"],
    "coco": ["--train-size", "20", "--test", "40", "--size", "128"],
    "coco-captions": ["--edition", "2017", "--public", "50", "--test", "100"],
    "voc": ["--parts", "mlc,ss,public"],
    "flickr30k": ["--size", "64", "--public", "300"],
    "yahoo": [],
    "ag-news": [],
    "food101": ["--size", "32"],
    "caltech101": ["--size", "32"],
    "tiny-imagenet": [],
    "cifar10-lt": [],
    "cifar100-lt": ["--per-class", "50"],
}
_QUICK = {"yahoo", "ag-news"}


@pytest.mark.skipif(
    not REAL.is_dir(), reason=f"no archives at {REAL}, which FEDMUSCLE_ARCHIVES names"
)
@pytest.mark.parametrize(
    "name",
    [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in REAL_RUNS],
)
def test_real_archives(data_dir, name, capsys):
    assert _run(name, "--archives", REAL, "--data-dir", data_dir, *REAL_RUNS[name]) == 0
    assert "SUBSET" in capsys.readouterr().out
    for manifest in _manifests(data_dir):
        assert manifest["whole"] and not manifest["official"]
    for folder, task in (("CIFAR10", "IC10"), ("CIFAR100", "IC100")):
        for split, client in _rows(data_dir, folder):
            assert len(TASKS[task].read(data_dir, client, split, Pixels(32))[0]) > 0
    for path in (data_dir / "MLC_setup").glob("*/client_*.json"):
        samples, classes = TASKS["MLC"].read(
            data_dir, int(path.stem[-1]), path.parent.name, Pixels(32)
        )
        assert len(classes) == {"coco": 80, "voc": 20}[name]
        assert samples.targets.sum(1).min() >= 1
    for folder in (data_dir / "FedLT").glob("*/"):
        found = labelled_sets.read(data_dir, folder.name)
        assert found.train.classes[:2] in {("airplane", "automobile"), ("apple", "aquarium_fish")}
        for images, n in ((found.train, 5000), (found.test, 4000)):
            assert len(images) == n and np.ptp(np.bincount(images.labels)) == 0
    shutil.rmtree(data_dir)


def test_the_skeleton_has_every_folder_that_the_library_reads(tmp_path, capsys):
    """And the original README's; a data set's command then writes into it as into no folder."""
    assert _run("skeleton", "--data-dir", tmp_path) == 0
    made = {Path(line) for line in capsys.readouterr().out.split()}
    assert made == {
        path for path in tmp_path.rglob("*") if path.is_dir() and not any(path.iterdir())
    }
    assert all(
        (tmp_path / task.folder / split).is_dir()
        for task in TASKS.values()
        for split in ("train", "val", "test")
    )
    assert all((tmp_path / folder).is_dir() for folder in PUBLIC_SETS.values())
