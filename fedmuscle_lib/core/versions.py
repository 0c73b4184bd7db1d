"""Versions of the arithmetic: what a stored run's address holds in place of the code that computed
it.

A version is raised by hand when a number changes that the class, or the core, computes. A
docstring, a rename or a check changes none and throws no stored run away, nor does rounding. Tests
of fingerprints fail where a number moved and the version did not. Code that has no fingerprint
there, such as a user's own algorithm, has its source in the address instead.
"""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from fedmuscle_lib.core.files import digest

PACKAGE = Path(__file__).parents[1]
GUARDED = Path(__file__).with_name("fingerprinted.txt")
CORE = 1  # what every run computes by: data, draws, client, server, the loss, the round
# Raised when numbers move by rounding alone, since a sum is taken in another order. It is in no
# address: runs of two such values agree as runs on two kinds of processor do. 2: SegFormer's
# decoder takes its products where the maps are small. 3: small layers with LoRA take one. 4: large
# ones do too.
ROUNDING = 4


class Versioned:
    """A class whose arithmetic has a version.

    Attributes:
        version: raised by hand when a number that this class computes changes.
        origin: SHA-256 of the source file as it was when the class was made, or the one that the
            class states; empty where there is none, as in a notebook's cell.
    """

    version: ClassVar[int] = 1
    origin: ClassVar[str] = ""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "origin" not in vars(cls):
            path = Path(getattr(sys.modules.get(cls.__module__), "__file__", None) or "")
            known = cls.__module__ != "__main__" and path.is_file()
            cls.origin = digest(path) if known else ""


def versions(*classes: type) -> dict[str, str]:
    """Versions of classes and of what they refine, by name; with the source where no fingerprint
    guards the module.

    Raises:
        ValueError: a class is defined in no file, so that nobody could tell two versions of it
            apart.
    """
    found = {}
    for each in dict.fromkeys(base for cls in classes for base in cls.__mro__):
        if not issubclass(each, Versioned) or "origin" not in vars(each) or each is Versioned:
            continue
        version = str(vars(each).get("version", 1))  # its own: one that it inherits is its base's
        if each.__module__ in guarded():
            found[each.__name__] = version
        elif each.origin:
            found[f"{each.__module__}.{each.__name__}"] = f"{version} {each.origin}"
        else:
            raise ValueError(
                f"{each.__name__} is defined in a notebook's cell or at a prompt, where a change of"
                " it can't be noticed: save it as a module, an algorithm as"
                f" fedmuscle_lib/fedmuscle/algorithms/{each.__name__.lower()}.py (%%writefile does"
                " it from a cell)"
            )
    return found


@lru_cache(maxsize=1)
def guarded() -> frozenset[str]:
    """Modules whose arithmetic has a committed fingerprint (``tests/fingerprints.py``)."""
    return frozenset(GUARDED.read_text(encoding="utf8").split())


# SHA-256 of the library as it was imported; an edit afterwards does not change it.
SOURCE = hashlib.sha256(
    b"".join(
        path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes()
        for path in sorted(PACKAGE.rglob("*.py"))
    )
).hexdigest()
