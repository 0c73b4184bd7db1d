"""Every data set's command, from tiny archives in the official layout to what the library reads."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import miniature_archives as miniature
import numpy as np
import pytest
from loopback import Loopback, serving
from PIL import Image
from pycocotools.coco import COCO

from data_prep.__main__ import main
from data_prep.datasets import CATALOGUE, coco, voc
from data_prep.datasets.partition import SIZES, Sizes
from data_prep.io import build, fetch
from fedmuscle_lib.data import captioned
from fedmuscle_lib.data import labelled_sets as labelled_sets
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.pickles import load_pickle
from fedmuscle_lib.data.public import read_public
from fedmuscle_lib.tasks import TASKS, ImageClassification
from fedmuscle_lib.tasks.segmentation import IGNORED

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # pycocotools, numpy 2
Prepare = Callable[..., str]

# a data set's archives, and options that fit them
SETS: dict[str, tuple[Callable[[Path], None], str]] = {
    "cifar10": (miniature.cifar10, "--train-size 5 --val 20 --test 20 --public 60"),
    "cifar100": (miniature.cifar100, "--train-size 10 --val 40 --test 100 --public 60"),
    "coco": (miniature.coco, "--train-size 4 --pool 6 --val 2 --test 6 --public 10"),
    "coco-captions": (miniature.coco_captions, "--public 28 --test 6 --size 16"),
    "voc": (
        miniature.voc,
        "--clients 3 --train-size 4 --pool 10 --val 3 --test 6 --size 32",
    ),
    "flickr30k": (miniature.flickr30k, "--public 8 --size 16"),
    "yahoo": (
        lambda folder: miniature.topics(folder, "yahoo_answers_csv", 3, 10),
        "--train-size 10 --val 80 --test 30",
    ),
    "ag-news": (
        lambda folder: miniature.topics(folder, "ag_news_csv", 2, 4),
        "--train-size 10 --val 80 --test 30",
    ),
    "food101": (
        miniature.food101,
        "--train-size 5 --val 2 --size 16 --clients 2 --alpha 0.1",
    ),
    "caltech101": (miniature.caltech101, "--train-size 3 --val 2 --size 16 --clients 2"),
    "tiny-imagenet": (miniature.tiny_imagenet, ""),
    "cifar10-lt": (miniature.cifar10, "--per-class 9"),
    "cifar100-lt": (miniature.cifar100, ""),
    "imagenet-lt": (miniature.imagenet_lt, "--per-class 3"),
    "inaturalist": (miniature.inaturalist, "--per-class 3"),
    "cifar10-pool": (miniature.cifar10, "--train-size 30 --val 20 --test 30"),
    "cifar100-pool": (miniature.cifar100, "--train-size 30 --val 20 --test 30"),
    "food101-pool": (miniature.food101, "--train-size 9 --val 4 --size 16"),
    "caltech101-pool": (miniature.caltech101, "--train-size 6 --val 4 --size 16"),
}


@pytest.fixture
def data_dir(tmp_path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def prepare(archives, data_dir, capsys) -> Prepare:
    """Run a data set's command on its tiny archives, and return what it prints."""

    def run(name: str, options: str = "", *, make: bool = True, code: int = 0) -> str:
        if make:
            SETS[name][0](archives)
        # the last of an option's values counts, so these may override
        given = dict(zip(*[iter(SETS[name][1].split())] * 2, strict=True))
        further = options.split()
        given |= dict(zip(further[::2], further[1::2], strict=True))
        source = {} if "--base-url" in given else {"--archives": str(archives)}
        line = {"--data-dir": str(data_dir)} | source | given
        assert main([name, *(part for pair in line.items() for part in pair)]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return run


def _tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def _manifests(data_dir: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(data_dir.rglob("manifest.json"))]


def _stems(data_dir: Path, *folders: str) -> list[str]:
    return [path.stem for folder in folders for path in (data_dir / folder).glob("*.??g")]


# --- every command


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_run_is_whole_says_that_it_is_a_subset_and_is_not_done_twice(
    prepare, data_dir, name, assert_usual_rights
):
    said = prepare(name)
    assert_usual_rights(data_dir)
    assert "SUBSET OR ANOTHER EDITION" in said and CATALOGUE[name].terms in said
    for manifest in _manifests(data_dir):
        assert (manifest["dataset"], manifest["whole"], manifest["official"]) == (name, True, False)
        assert manifest["counts"]["found"].keys() <= CATALOGUE[name].counts.keys()
        assert str(data_dir.parent) not in json.dumps(manifest)
    assert not list(data_dir.glob(f".{name}-*"))  # what was written aside
    before = _tree(data_dir)
    said = prepare(name, make=False)
    assert "there already, whole; nothing to do" in said and _tree(data_dir) == before


@pytest.mark.parametrize("name", ["cifar100", "coco-captions", "voc", "food101", "ag-news"])
def test_a_cut_off_archive_is_named(prepare, archives, data_dir, name):
    SETS[name][0](archives)
    path = archives / CATALOGUE[name].archives[0].name
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    error = prepare(name, make=False, code=2)
    assert f"{path}: a damaged archive" in error and len(error.splitlines()) == 1
    assert _manifests(data_dir) == []


def test_another_file_under_an_archives_name_is_named(prepare, archives):
    path = archives / "cifar-10-python.tar.gz"
    miniature.write_tar(path, {"readme.txt": b"x"})
    assert f"{path}: lacks data_batch_1" in prepare("cifar10", make=False, code=2)
    path.write_bytes(b"<html>not found</html>")
    assert f"{path}: a damaged archive" in prepare("cifar10", make=False, code=2)
    assert "yahoo_answers_csv.tar.gz: no such archive" in prepare("yahoo", make=False, code=2)


def test_a_dry_run_says_what_it_would_fetch_and_touches_nothing(data_dir, capsys):
    assert main(["voc", "--data-dir", str(data_dir), "--dry-run"]) == 0
    (archive,) = CATALOGUE["voc"].archives
    assert f"{archive.bytes:,} bytes from {archive.url}" in capsys.readouterr().out
    assert not data_dir.exists()


def test_an_interrupted_run_leaves_nothing_that_looks_whole(
    prepare, archives, data_dir, monkeypatch
):
    """Stopped before anything is moved, and between two places; then the same command completes
    it.
    """
    moved: list[object] = []

    def once(*arguments, real=build._move):
        if moved:
            raise KeyboardInterrupt
        moved.append(arguments)
        real(*arguments)

    def at_once(run):
        raise KeyboardInterrupt

    for name, stop, whole in (("_report", at_once, 0), ("_move", once, 1)):
        with monkeypatch.context() as patch:
            patch.setattr(build, name, stop)
            prepare("coco", code=130)
        assert sum(manifest["whole"] for manifest in _manifests(data_dir)) == whole
    prepare("coco")
    assert [manifest["whole"] for manifest in _manifests(data_dir)] == [True] * 3


def test_nobody_elses_files_are_replaced(prepare, data_dir):
    prepare("coco")
    before = _tree(data_dir)
    error = prepare("voc", code=2)
    assert "MLC_setup holds files made by `data_prep coco`; --force replaces them" in error
    own = data_dir / "IC/CIFAR10/train/client_0.pkl"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine")
    assert "holds files that this command did not write" in prepare("cifar10", code=2)
    outside = data_dir.parent / "outside"
    outside.mkdir()
    (data_dir / "TC").symlink_to(outside)
    assert "behind a link, which is left alone" in prepare("yahoo", code=2)
    assert own.read_bytes() == b"mine" and list(outside.iterdir()) == []
    own.unlink()
    found = _tree(data_dir)
    assert {name: found.get(name) for name in before} == before


def test_a_file_that_somebody_added_to_a_data_sets_folder_is_kept(prepare, data_dir):
    prepare("tiny-imagenet")
    (data_dir / "tiny_imagenet/notes.txt").write_text("mine")
    assert "1 more than its manifest says" in prepare("tiny-imagenet", code=2)


# --- archives


def test_an_archive_is_compared_with_the_sums_beside_it(prepare, archives):
    sums = archives / "SHA256SUMS"
    sums.write_text(f"{'0' * 64}  ./another.tar\n")
    assert "the SHA256SUMS beside it does not name it" in prepare("ag-news")
    sums.write_text(f"{'0' * 64}  ./ag_news_csv.tar.gz\n")
    assert "its SHA-256 is not the one of SHA256SUMS" in prepare("ag-news", "--seed 1", code=2)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("cifar100", "MD5 is not the official eb9058c3a382ffc7106e4002c42a8d85"),
        ("ag-news", "size is not the official 11,784,419 bytes"),
    ],
)
def test_an_archive_in_the_place_of_a_download_must_be_the_official_one(
    data_dir, capsys, name, why
):
    (data_dir / "archives").mkdir(parents=True)
    SETS[name][0](data_dir / "archives")
    command = [name, "--data-dir", str(data_dir), *SETS[name][1].split()]
    assert main(command) == 2 and f"its {why}" in capsys.readouterr().err
    assert main([*command, "--allow-subset"]) == 0
    assert _manifests(data_dir)[0]["official"] is False


def test_code_in_a_cifar_pickle_never_runs(prepare, archives):
    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {archives / 'ran'}",)

    batch = pickle.dumps({"data": Payload()}, protocol=2)
    members = {"cifar-100-python/train": batch, "cifar-100-python/test": batch}
    miniature.write_tar(archives / "cifar-100-python.tar.gz", members)
    prepare("cifar100", make=False, code=2)
    assert not (archives / "ran").exists()


# --- what is written


@pytest.mark.parametrize(
    ("name", "task", "users"), [("cifar10", "IC10", 1), ("cifar100", "IC100", 2)]
)
def test_cifar(prepare, data_dir, name, task, users):
    """An image is the row of its number: the archive's bytes, and the label that belongs to it."""
    prepare(name)
    folder = data_dir / "IC" / name.upper()
    source = {
        np.random.RandomState(i).randint(0, 256, 3072).astype(np.uint8).tobytes(): i
        for i in range(600)
    }
    seen = []
    for split in ("train", "val", "test"):
        for client in range(users):
            samples, classes = TASKS[task].read(data_dir, client, split, Pixels(32))
            for image, label in zip(samples.inputs, samples.targets.tolist(), strict=True):
                number = source[image.numpy().tobytes()]
                assert number % len(classes) == label
                assert (number >= {"IC10": 150, "IC100": 300}[task]) == (split == "test")
                seen.append(number)
    public = read_public(folder / "public", 60, Pixels(32))
    seen += [source[image.numpy().tobytes()] for image in public]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(("name", "classes", "each"), [("cifar10", 10, 9), ("cifar100", 100, 3)])
def test_a_long_tailed_cifar_keeps_so_many_of_a_class(prepare, data_dir, name, classes, each):
    prepare(f"{name}-lt")
    found, _ = labelled_sets.read(data_dir, f"{name}_lt")
    assert found.classes == tuple(f"class {c}" for c in range(classes))
    assert np.bincount(found.labels).tolist() == [each] * classes


@pytest.mark.parametrize("size", [160, 10])
def test_coco(prepare, data_dir, size):
    prepare("coco", f"--size {size}")
    scale, stems = min(1, size / 20), []
    for folder, clients in (("MLC_setup", 3), ("semseg_setup", 2)):
        for split, n in (("train", 6), ("val", 2), ("test", 6)):
            for client in range(clients):
                found = COCO(str(data_dir / folder / split / f"client_{client}.json"))
                assert len(found.imgs) == n
                for image in found.imgs.values():
                    path = data_dir / folder / "images" / split / image["file_name"]
                    stems.append(path.stem)
                    with Image.open(path) as file:
                        assert file.size == (image["width"], image["height"])
                        assert image["width"] == 20 * scale
                    own = found.imgToAnns[image["id"]]
                    assert [a["category_id"] - 1 for a in own] == [
                        (image["id"] + k) % 3 for k in range(3)
                    ]
                    for annotation in own:
                        assert annotation["bbox"] == [4 * scale, 2 * scale, 8 * scale, 6 * scale]
                        mask = found.annToMask(annotation)
                        assert mask.sum() == 48 * scale**2 == annotation["area"]
    public = _stems(data_dir, "MLC_setup/public_COCO")
    assert len(public) == 10 and len({*public, *stems}) == len(public) + len(stems)
    samples, classes = TASKS["MLC"].read(data_dir, 1, "train", Pixels(16))
    assert classes == (1, 2, 3) and samples.targets.shape == (6, 3)


def test_a_polygon_of_two_points_is_left_out_and_counted():
    line, area = [1, 1, 5, 5], [4, 2, 12, 2, 12, 8]
    objects = [{"segmentation": given} for given in ([line, area], [line], [area], {"counts": []})]
    instances = {"annotations": objects}
    assert coco._without_lines(instances) == 2
    assert [one["segmentation"] for one in instances["annotations"]] == [
        [area],
        [area],
        {"counts": []},
    ]


def test_coco_parts_of_two_runs_are_disjoint(prepare, data_dir):
    prepare("coco", "--parts mlc,ss")
    users = _stems(
        data_dir,
        *(
            f"{room}/images/{split}"
            for room in ("MLC_setup", "semseg_setup")
            for split in ("train", "val")
        ),
    )
    prepare("coco", "--parts public --seed 1", make=False)
    public = _stems(data_dir, "MLC_setup/public_COCO")
    assert len(public) == 10 and not {*public} & {*users}
    assert "--parts: 'mcl' is none of mlc, ss, public" in prepare("coco", "--parts mcl", code=2)


def test_coco_gives_the_papers_users_what_the_paper_says():
    """With as many annotated images as the official archives have: 117,266 and 4,952."""
    train, test = (
        [{"id": start + i} for i in range(n)] for start, n in ((0, 117_266), (10**6, 4_952))
    )
    run = SimpleNamespace(
        options={"seed": 0, "public": None}, sizes=[], rng=lambda: np.random.default_rng(0)
    )
    users, public = coco._divide(run, train, test, train)
    sizes = {(part, split): len(records) for (part, split, _), records in users.items()}
    assert len(public) == 5000 and sizes == {
        ("mlc", "train"): 2000, ("mlc", "val"): 500, ("mlc", "test"): 1000,
        ("ss", "train"): 2000, ("ss", "val"): 500, ("ss", "test"): 3000,
    }  # fmt: skip
    drawn = [record["id"] for records in [*users.values(), public] for record in records]
    assert len(set(drawn)) == len(drawn)


@pytest.fixture
def server(monkeypatch) -> Iterator[Loopback]:
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with serving() as state:
        yield state


def test_coco_images_come_one_by_one_and_what_is_missing_later(prepare, server, archives, data_dir):
    miniature.coco(archives, zips=False)
    server.files = {
        path.relative_to(archives).as_posix(): path.read_bytes()
        for path in archives.rglob("*")
        if path.is_file()
    }
    wanted = [name for name in server.files if name.startswith("train2017")]
    gone = {name: server.files.pop(name) for name in wanted[::7]}
    server.files[wanted[1]] = b"no image at all"
    options = f"--base-url {server.url} --public 20"
    error = prepare("coco", options, make=False, code=2)
    assert "images could not be had" in error and "run the same command again" in error
    assert _manifests(data_dir) == []
    server.log.clear()
    server.files |= gone | {wanted[1]: miniature.picture(2)}
    prepare("coco", options, make=False)
    fetched = {path for path, *_ in server.log if path.endswith(".jpg")}
    assert fetched <= {*gone, wanted[1]}  # no image that was there already


@pytest.mark.parametrize(("year", "karpathy"), [(2014, True), (2017, False)])
def test_coco_captions(prepare, archives, data_dir, year, karpathy):
    """Test images are of the test split and public ones of the others, whether Karpathy's or
    COCO's own.
    """
    miniature.coco_captions(archives, year, karpathy=karpathy)
    said = prepare("coco-captions", f"--edition {year}", make=False)
    assert ("no caption_datasets.zip: test images are COCO's own" in said) is not karpathy
    found = captioned.parts(data_dir / "MM/coco", {"test": 6, "public": 28})
    ids = {name: {int(path.stem[-12:]) for path in part.paths} for name, part in found.items()}
    assert not ids["test"] & ids["public"] and all(number > 1000 for number in ids["test"])
    if karpathy:
        assert {number % 4 for number in ids["test"]} == {1, 2}
    for part in found.values():
        for path, captions in zip(part.paths, part.captions, strict=True):
            assert captions == tuple(f"caption {k} of {int(path.stem[-12:])}" for k in range(5))


def test_voc(prepare, data_dir):
    """MLC labels are the classes of the masks: neither the rim nor a single pixel."""
    prepare("voc")
    tested = [data_dir / f"MLC_setup/test/client_{client}.json" for client in range(3)]
    assert len({path.read_bytes() for path in tested}) == 1  # on the same images
    for split, n in (("train", 10), ("val", 3), ("test", 6)):
        for client in range(3):
            found = COCO(str(data_dir / f"MLC_setup/{split}/client_{client}.json"))
            assert len(found.imgs) == n and len(found.cats) == 20
            for image in found.imgs.values():
                number = int(Path(image["file_name"]).stem.split("_")[1])
                assert (number >= 40) == (split == "test")  # of val.txt
                mask = Image.fromarray(miniature.voc_mask(number))
                small = np.asarray(mask.resize((32, 24), Image.Resampling.NEAREST))
                own = {a["category_id"]: a for a in found.imgToAnns[image["id"]]}
                assert own.keys() == {1 + number % 20, 15}
                for category, annotation in own.items():
                    assert np.array_equal(found.annToMask(annotation), small == category)
    users = _stems(data_dir, *(f"MLC_setup/images/{split}" for split in ("train", "val", "test")))
    public = _stems(data_dir, "MLC_setup/public_Pascal")
    assert len(public) == 75 - 3 * (10 + 3) - 20 and not {*public} & {*users}


def test_voc_masks_are_read_as_they_are(prepare, data_dir):
    """Every pixel, specks too; the rim counts nowhere. MLC's and SS's users share no image."""
    prepare("voc", "--parts mlc,ss --pool 4 --val 1 --test 3 --size 160")
    samples, classes = TASKS["SS"].read(data_dir, 0, "train", Pixels(40))
    assert classes == tuple(range(1, 21))
    found = COCO(str(data_dir / "semseg_setup/train/client_0.json"))
    names = [found.imgs[i]["file_name"] for i in sorted(found.imgs)]
    columns, rows = np.arange(40) * 2, np.arange(40) * 3 // 2  # of 80 columns and 60 rows
    for name, target in zip(names, samples.targets, strict=True):
        mask = miniature.voc_mask(int(Path(name).stem.split("_")[1]))
        assert np.array_equal(target.numpy(), mask[rows][:, columns])
        assert (target == IGNORED).any()
    folders = [
        f"{room}/images/{split}"
        for room in ("MLC_setup", "semseg_setup")
        for split in ("train", "val")
    ]
    stems = _stems(data_dir, *folders)
    assert len(set(stems)) == len(stems) == 6 * (4 + 1)


def test_a_small_vocs_public_set_has_the_masks_users_images_last(prepare, archives, data_dir):
    miniature.voc(archives, unmasked=4)
    options = "--parts mlc,ss,public --clients 2 --pool 5 --val 2 --test 3 --public 20"
    said = prepare("voc", options, make=False)
    public = {*_stems(data_dir, "MLC_setup/public_Pascal")}
    masked = {*_stems(data_dir, "semseg_setup/images/train", "semseg_setup/images/val")}
    assert len(public) == 20 and len(public & masked) == 20 - 16
    assert not public & {*_stems(data_dir, "MLC_setup/images/train", "MLC_setup/images/val")}
    assert "NOTE: 4 of the 20 public images are also SS users'" in said


def test_flickr30k(prepare, data_dir):
    prepare("flickr30k")
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
def test_topics(prepare, data_dir, name, folder, classes):
    prepare(name)
    seen: set[str] = set()
    for split, n in (("train", 100), ("val", 80), ("test", 30)):
        for client in range(2):
            content = load_pickle(data_dir / "TC" / folder / split / f"client_{client}.pkl")
            assert len(content["texts"]) == len(content["labels"]) == n
            assert np.ptp(np.bincount(content["labels"], minlength=classes)) <= 1
            for text, label in zip(content["texts"], content["labels"], strict=True):
                source, number = text.split()[:2]
                assert int(number) % classes == label
                mark = "\n" if name == "yahoo" else " "
                body = f"line{mark}next {number}{mark}nuclear"
                assert text.startswith(f'{source} {number} "quoted", title {body}')
            assert not seen & set(content["texts"])
            seen |= set(content["texts"])


def test_rows_without_a_text_are_left_out_and_counted(prepare, archives, data_dir):
    rows = "".join(f'"{1 + i % 4}","{"" if i % 10 == 0 else i}"\n' for i in range(200)).encode()
    members = {f"ag_news_csv/{split}.csv": rows for split in ("train", "test")}
    miniature.write_tar(archives / "ag_news_csv.tar.gz", members)
    said = prepare("ag-news", "--train-size 4 --pool 20 --val 0 --test 100", make=False)
    assert "rows that were drawn have no text" in said
    texts = load_pickle(data_dir / "TC/ag_news/test/client_0.pkl")["texts"]
    assert "" not in texts and 80 < len(texts) < 100


def test_a_row_that_is_none_is_named(prepare, archives):
    members = {f"ag_news_csv/{split}.csv": b'"1","a"\n"5","b"\n' for split in ("train", "test")}
    miniature.write_tar(archives / "ag_news_csv.tar.gz", members)
    assert "train.csv, line 2: not a row" in prepare("ag-news", make=False, code=2)


@pytest.mark.parametrize(("name", "first"), [("food101", 0), ("caltech101", 1000)])
def test_photo_classes(prepare, data_dir, name, first):
    """The first class's images have the keys from ``first``; Caltech's background is none."""
    prepare(name)
    task = ImageClassification("two", folder=f"IC/{name.upper()}", n_classes=2)
    of_first = set()
    for i in range(40):
        with Image.open(io.BytesIO(miniature.picture(first + i, 30, 20))) as image:
            of_first.add(np.asarray(image.resize((16, 16), Image.Resampling.BICUBIC)).tobytes())
    seen = []
    for split in ("train", "val", "test"):
        for client in range(2):
            samples, _ = task.read(data_dir, client, split, Pixels(16))
            images = [image.permute(1, 2, 0).numpy().tobytes() for image in samples.inputs]
            assert [image in of_first for image in images] == (samples.targets == 0).tolist()
            seen += images
    assert len(set(seen)) == len(seen)


def test_tiny_imagenet(prepare, data_dir):
    prepare("tiny-imagenet")
    folder = data_dir / "tiny_imagenet"
    found = sorted(path.relative_to(folder).as_posix() for path in folder.glob("val/*/*"))
    assert found == [f"val/n0000000{c}/val_{i}.JPEG" for c, i in ((1, 0), (1, 2), (2, 1), (2, 3))]
    assert len(list(folder.glob("train/*/*.JPEG"))) == 6


@pytest.mark.parametrize(
    ("name", "folder"), [("imagenet-lt", "imagenet_lt"), ("inaturalist", "inaturalist")]
)
def test_lists_lead_to_images_that_are_not_copied(prepare, archives, data_dir, name, folder):
    prepare(name)
    found, _ = labelled_sets.read(data_dir, folder, 16)
    assert np.bincount(found.labels).tolist() == [3, 3, 2]
    assert found.samples([0, 5]).inputs.shape == (2, 3, 16, 16)
    assert (data_dir / "FedLT" / folder / "images").resolve() == archives
    for image in archives.glob("*/**/*.*"):
        image.unlink()
    error = prepare(name, "--seed 1", make=False, code=2)
    assert "the images are licensed" in error and "--images FOLDER" in error


def test_too_few_images_for_a_training_set_say_so(prepare):
    error = prepare("coco", "--train-size 200 --pool 400", code=2)
    assert "has 75 samples for 3 x 200 for MLC train, 2 x 200 for SS train" in error


def test_small_makes_what_its_data_sets_commands_make(archives, data_dir, capsys, monkeypatch):
    """Flickr30k, which is given out after a form, may be lacking; another may not."""
    for task in SIZES:
        monkeypatch.setitem(SIZES, task, Sizes(users=2, local=5, pool=6, val=2, test=4))
    monkeypatch.setattr(voc, "TASKS", SIZES)
    small = ["small", "--archives", str(archives), "--data-dir", str(data_dir)]
    for name in ("cifar10", "cifar100", "voc"):
        SETS[name][0](archives)
    assert main(small) == 2 and "yahoo_answers_csv.tar.gz" in capsys.readouterr().err
    for name in ("yahoo", "ag-news"):
        SETS[name][0](archives)
    assert main(small) == 0
    said = capsys.readouterr().out
    assert said.count("nothing to do") == 4 and "flickr30k: NOT PREPARED" in said
