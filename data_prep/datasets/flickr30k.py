"""Flickr30k: the public set of Setup2, images with their captions."""

from __future__ import annotations

from itertools import dropwhile
from pathlib import PurePosixPath

from data_prep.datasets.catalogue import described
from data_prep.datasets.partition import fit, outcome, public_part
from data_prep.io.archives import needed, opened, text_of
from data_prep.io.build import Run
from data_prep.io.entry import SourceError
from data_prep.io.image_files import keep
from data_prep.io.writers import write_captions
from fedmuscle_lib.data.client_files import text_fault

ENTRIES = (described("flickr30k"),)
_TOKENS = "results_20130124.token"


def write(run: Run) -> None:
    """Write the data set of a run; raises SourceError if captions or images are missing or
    damaged.
    """
    image_archive, caption_archive = (run.archive(archive) for archive in run.entry.archives)
    captions: dict[str, list[str]] = {}
    lines = text_of(*needed(caption_archive, {_TOKENS})[_TOKENS]).split(
        "\n"
    )  # splitlines would also break at marks inside a caption
    for image, tab, caption in (line.partition("\t") for line in lines):
        if tab:
            captions.setdefault(image.rpartition("#")[0], []).append(caption.strip())
    with opened(image_archive) as members:
        names = sorted({PurePosixPath(name).name for name, _ in members} & captions.keys())
    if not names:
        raise SourceError(
            f"{image_archive}: no image that {caption_archive.name}'s {_TOKENS} has captions of"
        )
    run.found = {"images": len(names)}
    part = public_part(run.options)
    (public,) = fit([part], len(names))
    run.sizes.append(outcome(part, public))
    chosen = {
        name: list(dropwhile(text_fault, captions[name]))
        for name in run.rng().permutation(names)[:public].tolist()
    }
    if unfit := sum(
        len(captions[name]) - len(own) for name, own in chosen.items()
    ):  # a reader takes the first of an image's captions
        without = sum(not own for own in chosen.values())
        note = (
            f"{unfit:,} captions are empty or too long; they are left out, and {without:,} images"
            " that have no other"
        )
        run.note(note, "captions left out: empty or too long", unfit)
    kept = {}
    with opened(image_archive) as members:
        for name, file in members:
            image = PurePosixPath(name).name
            if chosen.get(image):
                folders = [run.folder / "images"]
                name, _ = keep(file.read(), image, folders, run.options.get("size"))
                kept[name] = chosen[image]
    write_captions(run.folder, dict(sorted(kept.items())))
