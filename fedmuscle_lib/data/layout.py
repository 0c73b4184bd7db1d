"""The README's layout of ``data_dir``, which `python -m data_prep` writes.

<task>/<split>/client_<i>.pkl or .json      a user's samples; split is train, val or test
<task>/images/<split>/*                     images that COCO files name
<public set>/* or <public set>/images/*     public images; captions stand beside images/
<folder>/manifest.json                      what data_prep wrote there
"""

from __future__ import annotations

from pathlib import Path

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import MANIFEST, read_json


def refuse_unfinished(folder: Path) -> None:
    """Check that ``data_prep`` finished the folder. A folder without a manifest is the user's own
    and passes.

    Raises:
        DataError: naming the folder; the command that writes it was interrupted. Or naming the
            manifest; it can't be read.
    """
    path = folder / MANIFEST
    if path.exists() and read_json(path).get("whole") is False:
        raise DataError(
            f"{folder}: the command that writes it was interrupted ({MANIFEST}); run it again"
        )
