"""Flickr30k: the public set of Setup2, images with their captions."""

from __future__ import annotations

import pickle
from pathlib import PurePosixPath

from data_prep.datasets.catalogue import described
from data_prep.datasets.partition import fit, outcome, public_part
from data_prep.io.archives import contents, opened, plain_name, text_of
from data_prep.io.build import Run
from data_prep.io.entry import SourceError
from data_prep.io.image_files import keep
from fedmuscle_lib.core.files import put

ENTRIES = (described("flickr30k"),)
_TOKENS = "results_20130124.token"


def write(run: Run) -> None:
    """Write the data set of a run.

    Raises:
        SourceError: captions or images are missing or damaged.
    """
    image_archive, caption_archive = (run.archive(archive) for archive in run.entry.archives)
    captions: dict[str, list[str]] = {}
    for name, content in contents(caption_archive, lambda path: path.name == _TOKENS).items():
        lines = text_of(content, name, caption_archive).split("\n")  # splitlines would also break at marks inside a caption
        for image, tab, caption in (line.partition("\t") for line in lines):
            if tab:
                captions.setdefault(plain_name(image.rpartition("#")[0], caption_archive), []).append(caption.strip())
    with opened(image_archive) as members:
        names = sorted({PurePosixPath(name).name for name, _ in members} & captions.keys())
    if not names:
        raise SourceError(f"{image_archive}: no image that {caption_archive.name}'s {_TOKENS} has captions of")
    run.found = {"images": len(names)}
    part = public_part(run.options)
    (public,) = fit([part], len(names))
    run.sizes.append(outcome(part, public))
    chosen = set(run.rng().permutation(names)[:public].tolist())
    kept = {}
    with opened(image_archive) as members:
        for name, file in members:
            image = PurePosixPath(name).name
            if image in chosen:
                name, _ = keep(file.read(), plain_name(image, image_archive), [run.folder / "images"], run.options.get("size"))
                kept[name] = captions[image]
    put(run.folder / "image_file_name_to_caption.pkl", pickle.dumps(dict(sorted(kept.items())), protocol=4))
