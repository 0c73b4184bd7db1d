"""Reading back what was written, as runs read it: a set that no run could read is found here, and
not in an experiment.
"""

from __future__ import annotations

from pathlib import Path

from data_prep.io.entry import SourceError
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import read_json
from fedmuscle_lib.data import captioned, labelled_sets
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.coco import Instances
from fedmuscle_lib.data.encodings import Pixels, Words
from fedmuscle_lib.data.public import CAPTIONS, PUBLIC_SETS, images_of, read_public

_SMALL = Pixels(1)  # each image is decoded, and little of it kept
_SEGMENTED = "semseg_setup"  # whose users need masks


def read_back(root: Path) -> None:
    """Read users' files, public sets, captioned folders and labelled sets below ``root``.

    The layout is that of ``fedmuscle_lib.data.layout``. Validation and test files without samples,
    which were asked for or noted, are left out.

    Raises:
        SourceError: naming a file below ``root`` that no run could read.
    """
    try:
        for path in sorted(root.rglob("client_*.pkl")):
            _read_pickled(path)
        for path in sorted(root.rglob("client_*.json")):
            _read_instances(path)
        for folder in (root / name for name in PUBLIC_SETS.values()):
            if folder.is_dir() and (n := len(images_of(folder))):
                read_public(folder, n, _SMALL)
                if (folder / CAPTIONS).exists():
                    read_public(folder, n, Words())
        for folder in sorted((root / "MM").glob("*/")):
            _read_captioned(folder)
        for folder in sorted((root / labelled_sets.FOLDER).glob("*/")):
            labelled_sets.read(root, folder.name, _SMALL.size)
    except DataError as error:
        raise SourceError(
            f"{str(error).removeprefix(f'{root}/')}: no run could read what was written; nothing is"
            " put in place"
        ) from None


def _read_captioned(folder: Path) -> None:
    paths = images_of(folder)
    tests = len(captioned.test_images(folder, paths) or ())
    sizes = {captioned.TEST: tests, "others": len(paths) - tests}
    for part in captioned.parts(
        folder, {name: size for name, size in sizes.items() if size}
    ).values():
        part.encoded(_SMALL)
        part.encoded(Words())


def _read_pickled(path: Path) -> None:
    content = Pickled(path, "labels")
    if path.parent.name != "train" and not content.content["labels"]:
        return
    n = len(content.texts() if "texts" in content.content else content.images())
    content.labels(n, 1 + max(content.content["labels"]), path.parts[-3])


def _read_instances(path: Path) -> None:
    if path.parent.name != "train" and not read_json(path).get("images"):
        return
    Instances(path, masks=_SEGMENTED in path.parts).load(
        path.parents[1] / "images" / path.parent.name, _SMALL
    )
