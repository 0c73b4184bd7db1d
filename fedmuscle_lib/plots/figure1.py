"""Figure 1, an overview of FedMuscle: ``docs/figure1.svg``."""

from __future__ import annotations

from matplotlib.figure import Figure

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.style import save
from fedmuscle_lib.fedmuscle.setups import SETUPS
from fedmuscle_lib.plots.round_diagram import a_round


def figure1() -> Figure:
    """Figure 1: users of Setup2 with different models and tasks align their representations of one
    public set by the Muscle loss.
    """
    tasks = {
        1: "objects of an image",
        6: "classes of images",
        7: "segmentation of images",
        9: "topics of texts",
    }
    users = {
        user.number: [
            f"user {user.number}: {user.model}",
            f"task: {tasks[user.number]} ({user.task})",
            "labelled data of its own",
            "backbone, LoRA, projection, head",
        ]
        for user in SETUPS["setup2"]
        if user.number in tasks
    }
    up, down = (
        dict.fromkeys(users, "Z, a vector a sample"),
        dict.fromkeys(users, "the loss's gradient in Z"),
    )
    server = [
        "has the users' Z,",
        "draws M others for",
        "each user and computes",
        "the Muscle loss",
    ]
    return a_round(
        users,
        up,
        down,
        server,
        [
            "public set, without labels",
            "all users see the same samples:",
            "images, or captions of them",
        ],
    )


if __name__ == "__main__":
    save(figure1(), ROOT / "docs", "figure1")
