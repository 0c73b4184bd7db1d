"""A communication round drawn: users on one side of the wire, the server on the other, and what has
crossed so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from fedmuscle_lib.core.style import housed

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # of the users, one after the other
_WAITING = "#999999"
_USERS, _WIRE, _SERVER = (0.0, 4.6), 6.2, (7.8, 10.0)  # from left to right


@housed
def a_round(
    users: Mapping[int, Sequence[str]],
    up: Mapping[int, str],
    down: Mapping[int, str],
    server: Sequence[str] = (),
    public: Sequence[str] = (),
) -> Figure:
    """One row a user: a box with what stays there, and two arrows across the wire; an arrow without
    a message is a dotted one, with "?".

    Args:
        users: number -> lines of the user's box, the first one as its title.
        up: number -> what the user has sent.
        down: number -> what the server has answered.
        server: lines of the server's box.
        public: lines of the public set's box below the users, from which an arrow leads to each,
            the first one as its title.
    """
    bottom = -0.94 if public else 0.0
    figure, ax = plt.subplots(figsize=(8.6, 0.4 + 1.15 * (len(users) - bottom)))
    for row, (number, (title, *lines)) in enumerate(users.items()):
        y, colour = len(users) - row - 0.5, _COLOURS[row % len(_COLOURS)]
        _box(ax, _USERS, (y - 0.44, y + 0.44), colour)
        ax.text(0.12, y + 0.36, title, color=colour, weight="bold", va="top")
        ax.text(0.12, y + 0.13, "\n".join(lines), fontsize=8, va="top", linespacing=1.3)
        _crossing(ax, y + 0.14, up.get(number), _USERS[1], _SERVER[0], colour)
        _crossing(ax, y - 0.24, down.get(number), _SERVER[0], _USERS[1], colour)
    _box(ax, _SERVER, (0.06, len(users) - 0.06), "black")
    ax.text(_SERVER[0] + 0.15, len(users) - 0.14, "server", weight="bold", va="top")
    ax.text(
        _SERVER[0] + 0.15,
        len(users) - 0.4,
        "\n".join(server),
        fontsize=8,
        va="top",
        linespacing=1.4,
    )
    ax.axvline(_WIRE, color=_WAITING, linewidth=0.8, linestyle=":", zorder=0)
    ax.set_title("users: what is in these boxes stays there", loc="left", color=_WAITING)
    ax.text(_WIRE, len(users) + 0.03, "the wire", color=_WAITING, ha="center", va="bottom")
    if public:
        _public(ax, public, len(users))
    ax.set(xlim=(-0.4 if public else -0.02, 10.02), ylim=(bottom, len(users)))
    ax.set_axis_off()
    return figure


def _public(ax: Axes, lines: Sequence[str], users: int) -> None:
    _box(ax, _USERS, (-0.86, -0.06), "black")
    ax.text(0.12, -0.14, lines[0], weight="bold", va="top")
    ax.text(0.12, -0.37, "\n".join(lines[1:]), fontsize=8, va="top", linespacing=1.3)
    ax.plot([0, -0.25, -0.25], [-0.46, -0.46, users - 0.5], color="black", linewidth=1)
    for row in range(users):
        ax.annotate(
            "",
            (0, row + 0.5),
            (-0.25, row + 0.5),
            arrowprops={"arrowstyle": "->", "color": "black", "shrinkA": 0},
        )


def _box(ax: Axes, x: tuple[float, float], y: tuple[float, float], colour: str) -> None:
    corner, size = (x[0] + 0.06, y[0] + 0.06), (x[1] - x[0] - 0.12, y[1] - y[0] - 0.12)
    ax.add_patch(
        FancyBboxPatch(
            corner, *size, boxstyle="round,pad=0.06", facecolor="white", edgecolor=colour
        )
    )


def _crossing(
    ax: Axes, y: float, message: str | None, start: float, end: float, colour: str
) -> None:
    """An arrow from one side to the other with its message above it."""
    look = {
        "color": colour if message else _WAITING,
        "linestyle": "-" if message else ":",
        "arrowstyle": "->",
        "linewidth": 1.4,
    }
    ax.annotate("", (end, y), (start, y), arrowprops={**look, "shrinkA": 3, "shrinkB": 3})
    text = message or "?"
    ax.text(
        _WIRE,
        y + 0.03,
        text,
        fontsize=8,
        ha="center",
        va="bottom",
        color="black" if message else _WAITING,
        backgroundcolor="white",
    )
