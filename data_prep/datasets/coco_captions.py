"""COCO's images with their captions: CreamFL's public pairs and test set. Only the images that are
needed are fetched.

Test images are of Karpathy's split "test", public images of "train" and "restval". Without
Karpathy's file, test images are of COCO's val and public images of its train. An image keeps its
first five captions: the authors' 566,435 captions are five of each of 113,287 images.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from data_prep.datasets.catalogue import described
from data_prep.datasets.coco import gather
from data_prep.io.archives import needed
from data_prep.io.build import Run
from data_prep.io.entry import Archive, Entry, SourceError
from data_prep.io.image_files import keep
from data_prep.io.writers import write_captions
from fedmuscle_lib.core.files import parse_json, put
from fedmuscle_lib.data.captioned import KARPATHY, TEST
from fedmuscle_lib.data.client_files import text_fault

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
    files = needed(path, {f"captions_{part}.json" for part in parts})
    documents = {part: parse_json(*files[f"captions_{part}.json"]) for part in parts}
    splits = _splits(run, karpathy)
    records: dict[int, tuple[str, dict]] = {}
    captions: dict[int, dict[int, str]] = {}  # by image and their own id
    listed = unfit = 0
    for part, document in documents.items():
        for image in document["images"]:
            records[image["id"]] = part, image  # val comes last
        for annotation in document["annotations"]:
            listed += 1
            if text_fault(annotation["caption"]):
                unfit += 1
            else:
                own = captions.setdefault(annotation["image_id"], {})
                own[annotation["id"]] = annotation["caption"].strip()
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
    own_splits = {parts[0]: "train", parts[1]: TEST}
    return [
        _Captioned(
            id=number,
            archive=part,
            name=image["file_name"],
            url=image["coco_url"],
            sides=(image["width"], image["height"]),
            split=splits.get(number, "") if splits else own_splits[part],
            captions=tuple(text for _, text in sorted(captions[number].items())[:EACH]),
        )
        for number, (part, image) in records.items()
        if number in captions
    ]


def _splits(run: Run, archive: Archive) -> dict[int, str]:
    """Return Karpathy's split of each image by its id; nothing, and say so, if the source lacks his
    archive.
    """
    if not run.source.official and run.source.size(archive) is None:
        run.note(f"no {archive.name}: test images are COCO's own of val, and not Karpathy's")
        return {}
    document = parse_json(*needed(run.archive(archive), {_SPLIT_FILE})[_SPLIT_FILE])
    return {record["cocoid"]: record["split"] for record in document["images"]}
