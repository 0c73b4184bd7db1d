"""The algorithms by name.

One module each; a new module in this folder registers itself, and nothing else changes.
"""

from __future__ import annotations

from fedmuscle_lib.core.registry import import_modules
from fedmuscle_lib.fedmuscle.algorithms.algorithm import (
    PHASES,
    Algorithm,
    Federation,
    IgnoredSetting,
    Phase,
    Reading,
)

import_modules(__name__)
names, get = Algorithm.names, Algorithm.get
