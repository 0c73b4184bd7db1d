"""One colour and marker per algorithm in every figure, and one colour per arm that stands in
several.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedmuscle_lib.core.style import Look, looks
from fedmuscle_lib.runs.history import algorithm_of

# Okabe and Ito's colours, some of Tol's, and others far from them, also as protanopes and
# deuteranopes see them. Eighteen are more than colour alone can tell apart, so no two share a
# marker.
STYLES: dict[str, Look] = {
    "local": ("#555555", "o"),
    "fedmuscle": ("#0072B2", "D"),
    "gramian": ("#E69F00", "s"),
    "pairwise": ("#009E73", "^"),
    "shuffled": ("#CC79A7", "X"),
    "frozen_peers": ("#56B4E9", "P"),
    "self": ("#D55E00", "v"),
    "head_only": ("#999933", "h"),
    "probe": ("#117733", (6, 1, 0)),
    "anchored": ("#882255", ">"),
    "directed": ("#B8860B", (5, 1, 0)),
    "sage": ("#332288", "<"),
    "fedhenn": ("#EE6677", "p"),
    "cofed": ("#994F00", "*"),
    "feddf": ("#1A85FF", "d"),
    "own_teacher": ("#78909C", (3, 1, 0)),
    "fedrcl": ("#000000", (4, 1, 0)),
    "simclr": ("#AA4499", (8, 1, 0)),
    "pseudo_labeling": ("#661100", (4, 1, 45)),
}
# Arms that stand in several figures; each has its algorithm's marker.
_ARMS = {
    "local, tuned": "#E6007A",
    "fedmuscle, tuned": "#8800CC",
    "anchored, tuned": "#C18B70",
    "fedrcl, authors' values": "#1A1AE6",
}


def styles(arms: Iterable[str]) -> dict[str, Look]:
    """Colour and marker of each arm of a figure."""
    return looks(
        arms,
        STYLES | {arm: (colour, STYLES[algorithm_of(arm)][1]) for arm, colour in _ARMS.items()},
    )
