"""COCO's images with their captions: CreamFL's public pairs and test set. Only the images that are
needed are fetched.

Test images are of Karpathy's split "test", public images of "train" and "restval". Without
Karpathy's file, test images are of COCO's val and public images of its train. An image keeps its
first five captions: the authors' 566,435 captions are five of each of 113,287 images.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from data_prep.datasets.catalogue import described
from data_prep.datasets.coco import gather
from data_prep.io.archives import needed, plain_name
from data_prep.io.build import Run
from data_prep.io.entry import Archive, Entry, SourceError
from data_prep.io.image_files import keep
from data_prep.io.writers import write_captions
from fedmuscle_lib.core.errors import shown
from fedmuscle_lib.core.files import parse_json, put
from fedmuscle_lib.data.captioned import KARPATHY, SPLITS, TEST
from fedmuscle_lib.data.public import IMAGE_SUFFIXES, caption_fault

ENTRIES = (described("coco-captions"),)
EACH = 5  # captions of an image
_PARTS = {
    "test": (TEST,),
    "public": ("train", "restval"),
}  # splits by the option that says how many of their images are written
_SPLIT_FILE = "dataset_coco.json"


def edition(entry: Entry, options: dict) -> Entry:
    """Return the entry with the archives of the edition that the options ask for; raises
    SourceError if there is none.
    """
    if options["edition"] == 2014:
        return entry
    if options["edition"] == 2017:
        return replace(entry, archives=(*described("coco").archives, entry.archives[-1]))
    raise SourceError(f"--edition {options['edition']}: 2014 or 2017 is expected")


@dataclass(frozen=True)
class _Captioned:
    """An image with the captions that a run reads.

    Attributes:
        archive: without ``.zip``, such as train2014.
        name: of the file in it.
        url: its official address.
        sides: width and height in pixels.
        split: Karpathy's, or COCO's own: "train" or "test".
    """

    id: int
    archive: str
    name: str
    url: str
    sides: tuple[int, int]
    split: str
    captions: tuple[str, ...]


def write(run: Run) -> None:
    """Write the data set of a run; raises SourceError or DataError if annotations are damaged, a
    split is empty, or images are lacking.
    """
    images = _images(run)
    chosen: list[_Captioned] = []
    for option, splits in _PARTS.items():
        own = sorted(
            (image for image in images if image.split in splits), key=lambda image: image.id
        )
        if not own:
            raise SourceError(
                f"{run.entry.name}: no image of the split {' or '.join(splits)} has a caption"
            )
        drawn = run.rng(option).permutation(len(own))[: run.options[option]]
        run.sizes.append(
            {
                "what": f"{option} images",
                "holders": 1,
                "asked": run.options[option],
                "got": len(drawn),
            }
        )
        chosen += [own[i] for i in drawn]

    by_file, kept = (
        {(image.archive, image.name): image for image in chosen},
        dict[str, _Captioned](),
    )

    def take(file: tuple[str, str], content: bytes) -> None:
        image = by_file[file]
        name, _ = keep(
            content, image.name, [run.folder / "images"], run.options.get("size"), image.sides
        )
        kept[name] = image

    gather(run, {file: image.url for file, image in by_file.items()}, take)
    for option, splits in _PARTS.items():
        if not any(image.split in splits for image in kept.values()):
            raise SourceError(f"{run.entry.name}: no {option} image could be had")
    whole = sorted(kept.items())
    write_captions(run.folder, {name: list(image.captions) for name, image in whole})
    split = [{"filename": name, "cocoid": image.id, "split": image.split} for name, image in whole]
    put(run.folder / KARPATHY, json.dumps({"dataset": "coco", "images": split}).encode())


def _images(run: Run) -> list[_Captioned]:
    """Return the images that have a caption and a split; count what the archives hold."""
    annotations, *bulk, karpathy = run.entry.archives
    path, parts = run.archive(annotations), [archive.name.removesuffix(".zip") for archive in bulk]
    documents = _documents(path, parts)
    splits = _splits(run, karpathy)
    records: dict[int, tuple[str, dict]] = {}
    captions: dict[int, dict[int, str]] = {}  # by image and their own id
    owners: dict[str, int] = {}  # of file names without suffix
    listed = unfit = 0
    for part, document in documents.items():
        name, here = f"{path}: captions_{part}.json", {image["id"] for image in document["images"]}
        for image in document["images"]:
            file = PurePosixPath(plain_name(image["file_name"], name))
            if file.suffix.lower() not in IMAGE_SUFFIXES:
                raise SourceError(
                    f"{name}: image {image['id']} has {shown(file.name)} for file_name, which is no"
                    " image's"
                )
            if owners.setdefault(file.stem, image["id"]) != image["id"]:
                raise SourceError(
                    f"{name}: image {image['id']} has the file {shown(file.name)} of image"
                    f" {owners[file.stem]}"
                )
            records[image["id"]] = part, image  # val comes last
        for annotation in document["annotations"]:
            if annotation["image_id"] not in here:
                raise SourceError(
                    f"{name}: caption {annotation['id']} is of image {annotation['image_id']},"
                    " which it does not list"
                )
            listed += 1
            if caption_fault(annotation["caption"]):
                unfit += 1
            else:
                captions.setdefault(annotation["image_id"], {})[annotation["id"]] = annotation[
                    "caption"
                ].strip()
    run.found = {
        "images": len(records),
        "captions": listed,
        "karpathy": len(splits.keys() & records.keys()),
    }
    if twice := sum(len(document["images"]) for document in documents.values()) - len(records):
        run.note(f"{twice:,} images are listed for train and for val; they count for val alone")
    if unfit:
        run.note(
            f"{unfit:,} captions are empty or too long; they are left out",
            "captions left out: empty or too long",
            unfit,
        )
    own = {parts[0]: "train", parts[1]: TEST}
    return [
        _Captioned(
            id=number,
            archive=part,
            name=image["file_name"],
            url=image["coco_url"],
            sides=(image["width"], image["height"]),
            split=splits.get(number, "") if splits else own[part],
            captions=tuple(text for _, text in sorted(captions[number].items())[:EACH]),
        )
        for number, (part, image) in records.items()
        if number in captions
    ]


def _documents(path: Path, parts: list[str]) -> dict[str, dict[str, list[dict]]]:
    """Return the images and captions of each part, with the fields that are read."""
    fields = {
        "images": {
            "id": _number,
            "file_name": _text,
            "coco_url": _text,
            "width": _number,
            "height": _number,
        },
        "annotations": {"id": _number, "image_id": _number, "caption": _text},
    }
    files, found = needed(path, {f"captions_{part}.json" for part in parts}), {}
    for part in parts:
        content, where = files[f"captions_{part}.json"]
        document = parse_json(content, where)
        found[part] = {
            kind: _records(document, kind, "id", own, where) for kind, own in fields.items()
        }
    return found


def _splits(run: Run, archive: Archive) -> dict[int, str]:
    """Return Karpathy's split of each image by its id; nothing, and say so, if the source lacks his
    archive.
    """
    if not run.source.official and run.source.size(archive) is None:
        run.note(f"no {archive.name}: test images are COCO's own of val, and not Karpathy's")
        return {}
    content, where = needed(run.archive(archive), {_SPLIT_FILE})[_SPLIT_FILE]
    records = _records(
        parse_json(content, where),
        "images",
        "cocoid",
        {"cocoid": _number, "split": SPLITS.__contains__},
        where,
    )
    return {record["cocoid"]: record["split"] for record in records}


def _records(
    document: Mapping[str, Any],
    kind: str,
    key: str,
    fields: Mapping[str, Callable[[Any], bool]],
    name: str,
) -> list[dict]:
    """Return a list of a JSON document, whose records have these fields.

    Args:
        key: the field that names a record, and no other.
        fields: whether a value can be one of the field's.

    Raises:
        SourceError: naming the record, the field and the value.
    """
    records, seen = document.get(kind), set[Any]()
    if not isinstance(records, list):
        raise SourceError(f"{name}: lacks a list of {kind}")
    for row, record in enumerate(records):
        where = f"{name}: number {row} of its {kind}"
        if not isinstance(record, dict):
            raise SourceError(f"{where} is no record")
        for field, fits in fields.items():
            if not fits(record.get(field)):
                raise SourceError(f"{where} has {shown(record.get(field))} for {field}")
        if record[key] in seen:
            raise SourceError(f"{where} has the {key} {record[key]} of another")
        seen.add(record[key])
    return records


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _text(value: object) -> bool:
    """Whether a value is a text without half a character, which no file could hold."""
    return isinstance(value, str) and (
        value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
    )
