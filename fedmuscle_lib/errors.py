"""What can go wrong in any federation."""

from __future__ import annotations


class Diverged(ValueError):
    """A party's training gives no finite numbers any more; the text names the party.

    Attributes:
        address: of the run, where it is known.
    """

    address: str = ""
