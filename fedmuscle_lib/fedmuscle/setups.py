"""Users of the setups: Appendices G and H of the paper as data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedmuscle_lib.tasks import TASKS, Task


@dataclass(frozen=True)
class User:
    """One user of a setup.

    Attributes:
        number: the paper's user number, from 1.
        model: the paper's name of its foundation model; a profile says which checkpoint that is.
        task: the paper's abbreviation, a key of ``fedmuscle_lib.tasks``.
        client: index of its files, ``client_<client>``, in the data set of its task.
        train_samples: size of its local training set (Appendix G).
        folder: its own, in place of its task's below the data directory; None in the paper's
            setups.
        classes: how many its own folder has, of a task that is told; None for as many as its task
            has.
        sharers: numbers of the users who divide a pool of samples (setting ``alpha``), itself among
            them; None if its files are its own.
    """

    number: int
    model: str
    task: str
    client: int
    train_samples: int
    folder: str | None = None
    classes: int | None = None
    sharers: tuple[int, ...] | None = None


def task_of(user: User) -> Task:
    """The user's task, on its own folder and classes where it has them, or on its task's pool."""
    task = TASKS[user.task]
    if user.folder is not None:
        task = replace(task, folder=user.folder, own=True)
    elif user.sharers:
        task = replace(task, folder=f"{task.folder}_pool")
    return task if user.classes is None else replace(task, n_classes=user.classes)  # type: ignore[call-arg]  # the settings' check


_SETUP1 = (
    # Appendix H: "Users 1, 2, and 3 perform the MLC task using ViT-Base, ViT-Small, and ViT-Large,
    # respectively. Users 4 and 5 perform the IC100 task using ViT-Base and ViT-Small, respectively.
    # User 6 performs the IC10 task using ViT-Tiny." Appendix G: 200, 100 and 50 training samples
    # for a user with MLC, IC100 and IC10.
    User(1, "ViT-Base", "MLC", 0, 200),
    User(2, "ViT-Small", "MLC", 1, 200),
    User(3, "ViT-Large", "MLC", 2, 200),
    User(4, "ViT-Base", "IC100", 0, 100),
    User(5, "ViT-Small", "IC100", 1, 100),
    User(6, "ViT-Tiny", "IC10", 0, 50),
)
_SETUP2 = (
    *_SETUP1,
    # "Users 7 and 8 perform the SS task using SegFormer-B0 and SegFormer-B1, respectively. Users 9
    # and 10 perform the TC task using BERT-Base and DistilBERT-Base, respectively." 1000 and 100
    # training samples for a user with SS and TC.
    User(7, "SegFormer-B0", "SS", 0, 1000),
    User(8, "SegFormer-B1", "SS", 1, 1000),
    User(9, "BERT-Base", "TC", 0, 100),
    User(10, "DistilBERT-Base", "TC", 1, 100),
)
_NONIID = tuple(
    # Section 6.2: "users 1-3 perform IC100, users 4-6 perform IC10, users 7-9 perform ICF, and
    # users 10-12 perform ICC. For those performing the same task, the local data samples are
    # divided across them [...] All users have 100 training samples [...] users 1, 4, 7, and 10 use
    # ViT-Base, users 2, 5, 8, and 11 use ViT-Small, and users 3, 6, 9, and 12 use ViT-Tiny."
    User(first + k, model, task, 0, 100, sharers=(first, first + 1, first + 2))
    for first, task in ((1, "IC100"), (4, "IC10"), (7, "ICF"), (10, "ICC"))
    for k, model in enumerate(("ViT-Base", "ViT-Small", "ViT-Tiny"))
)

SETUPS: dict[str, tuple[User, ...]] = {
    "setup1": _SETUP1,
    # not the paper's: its users with ViTs whose patch embedding is a frozen convolutional network
    # (Dosovitskiy et al. 2021, section 3.1)
    "setup1_vit": tuple(replace(user, model=f"Hybrid {user.model}") for user in _SETUP1),
    # not the paper's: users 2, 5 and 6 have models that know less than the others'
    "setup1_unequal": tuple(
        replace(user, model=f"weak {user.model}") if user.number in {2, 5, 6} else user
        for user in _SETUP1
    ),
    # not the paper's: its users with ViTs that were pretrained with the CLS token as their feature
    "setup1_cls": tuple(replace(user, model=f"CLS {user.model}") for user in _SETUP1),
    "setup2": _SETUP2,
    # not the paper's: a user who generates text, which the README's package lists, beside Setup2's
    "setup2_generation": (*_SETUP2, User(11, "GPT-2", "TG", 0, 100)),
    "setup_noniid": _NONIID,  # Table 4's
}
