"""What the readers of all tasks share, and the public sets. Knows no task: each reads its users' files itself (``fedmuscle_lib.tasks``).

Images become uint8 pixels and texts token ids, as the user's model reads them. No file is executed: pickles go through
``fedmuscle_lib.pickles``.
"""

from __future__ import annotations

from fedmuscle_lib.data.coco import Annotation, Instances
from fedmuscle_lib.data.encodings import NO_WORD, Encoding, Modality, Pixels, Tokens, Words
from fedmuscle_lib.data.layout import refuse_unfinished
from fedmuscle_lib.data.long_tail import class_sizes, keep_long_tail
from fedmuscle_lib.data.pickled import Pickled
from fedmuscle_lib.data.public import PUBLIC_SETS, read_public
from fedmuscle_lib.data.samples import MOSTLY, Samples, draw_local, first_local, share_in
from fedmuscle_lib.pickles import DataError, NoFile

__all__ = [
    "MOSTLY",
    "NO_WORD",
    "PUBLIC_SETS",
    "Annotation",
    "DataError",
    "Encoding",
    "Instances",
    "Modality",
    "NoFile",
    "Pickled",
    "Pixels",
    "Samples",
    "Tokens",
    "Words",
    "class_sizes",
    "draw_local",
    "first_local",
    "keep_long_tail",
    "read_public",
    "refuse_unfinished",
    "share_in",
]
