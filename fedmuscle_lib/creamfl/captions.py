"""The captioned sets of a run: public pairs, the pairs of clients, and the server's test set."""

from __future__ import annotations

from typing import Any

from fedmuscle_lib.data.captioned import Captioned, parts

SETS = ("test", "public", "pairs")


def sets(settings: Any) -> list[str]:
    """The names of those that a run reads: without clients with pairs it has none for them."""
    return [name for name in SETS if name != "pairs" or name in settings.kinds_of_clients]


def captioned(settings: Any) -> dict[str, Captioned]:
    """Return the sets by name; those of one folder are disjoint.

    Args:
        settings: of the run.

    Raises:
        DataError: a folder is missing, damaged or too small; the message names it.
    """
    names = sets(settings)
    folders = dict.fromkeys(getattr(settings, f"{name}_folder") for name in names)
    found: dict[str, Captioned] = {}
    for folder in folders:
        own = {
            name: getattr(settings, f"{name}_size")
            for name in names
            if getattr(settings, f"{name}_folder") == folder
        }
        found |= parts(settings.data_dir / folder, own)
    return found
