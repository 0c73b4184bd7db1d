"""What can go wrong in any federation."""

from __future__ import annotations

import re

_MEMORY = re.compile("allocate|out of memory|not enough memory|size calculation overflowed", re.IGNORECASE)  # in torch's and numpy's words


def out_of_memory(error: BaseException) -> bool:
    """Whether the memory was too small, whichever library says so."""
    return isinstance(error, MemoryError) or isinstance(error, RuntimeError) and bool(_MEMORY.search(str(error)))


class Diverged(ValueError):
    """A party's training gives no finite numbers any more; the text names the party.

    Attributes:
        address: of the run, where it is known.
    """

    address: str = ""

    def within(self, place: str) -> None:
        """Add to the text where it happened, such as "round 3", unless it says so already."""
        if place not in str(self):
            self.args = (f"{self} ({place})",)


class RefusedMessage(ValueError):
    """A party sent something else than the server asked for; the text names the party."""


class NotFinite(RefusedMessage, Diverged):
    """A party sent numbers that are not finite."""
