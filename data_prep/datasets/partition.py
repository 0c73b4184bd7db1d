"""Division of an archive between users: disjoint parts, class-balanced or by Dirichlet(alpha),
drawn from a seed.

A user's training file is a pool, from which each seed of an experiment draws a local training set
of Appendix G's size. By default the pool is ten times as large (for SS, twice); a smaller archive
yields a smaller pool, but never less than one training set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from data_prep.datasets.catalogue import FACTS, OPTIONS
from data_prep.io.build import Place, Run
from data_prep.io.entry import Entry, SourceError

T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """Users of a task, and samples of each: Appendix G's training (``local``) and test sets, our
    pool and validation set.
    """

    users: int
    local: int
    pool: int
    val: int
    test: int

    def __post_init__(self) -> None:
        if min(self.users, self.local, self.pool) < 1 or min(self.val, self.test) < 0:
            raise SourceError(
                f"sizes: at least one user with one training sample, and no negative count ({self})"
            )
        if self.pool < self.local:
            raise SourceError(
                f"--pool {self.pool} is smaller than a local training set of {self.local};"
                " --train-size N asks for less"
            )


SIZES = {task: Sizes(**sizes) for task, sizes in FACTS["sizes"].items()}
PUBLIC_SIZE = 5000  # Section 6.1: "The size of the shared public dataset is set to 5000"

# the options of a command that divides its samples here
SEED, ALPHA, CLIENTS, *SAMPLES = (
    OPTIONS[name] for name in ("seed", "alpha", "clients", "train_size", "pool", "val", "test")
)


def pool_of(entry: Entry) -> Entry:
    """Return the entry of a data set's pool, one file a split, which the users of the non-IID
    setting divide when they run.
    """
    return replace(
        entry,
        name=f"{entry.name}-pool",
        title=f"{entry.display_name}: a pool that users of the non-IID setting divide.",
        folder=f"{entry.folder}_pool",
        takes=tuple(
            option for option in entry.takes if option not in (ALPHA, CLIENTS, OPTIONS["public"])
        ),
        facts=entry.facts | {"task": "pool"},
    )


@dataclass(frozen=True)
class Part:
    """A demand on an archive.

    Attributes:
        what: its name in reports.
        asked: samples for each holder.
        holders: the number of users, or 1 for the public set.
        least: the fewest samples that a holder can use.
        explicit: the count is from the command line, not a default.
        first_share: the share of the archive that it may take before the other parts are served;
            less than 1 only for one holder.
    """

    what: str
    asked: int
    holders: int = 1
    least: int = 0
    explicit: bool = False
    first_share: float = 1.0


def fit(parts: Sequence[Part], available: int) -> list[int]:
    """Return the number of samples for each holder of each part.

    Four tiers are served in turn: the least that each part can use, the counts from the command
        line, the defaults up to their first
    shares, and the rest of the defaults. The first tier that exceeds the archive is scaled down
    evenly, and later tiers get nothing.

    Raises:
        SourceError: the archive has fewer samples than the parts need at least.
    """
    needed = sum(part.least * part.holders for part in parts)
    if needed > available:
        wants = ", ".join(
            f"{part.holders} x {part.least} for {part.what}" for part in parts if part.least
        )
        raise SourceError(
            f"the archive has {available} samples for {wants}: {needed} are needed; --train-size N"
            " asks for less"
        )
    got = [min(part.least, part.asked) for part in parts]
    for tier in (
        [part.asked * part.explicit for part in parts],
        [
            (
                part.asked
                if part.first_share == 1
                else min(part.asked, int(available * part.first_share))
            )
            for part in parts
        ],
        [part.asked for part in parts],
    ):
        missing = [max(0, target - g) for target, g in zip(tier, got, strict=True)]
        room = available - sum(g * part.holders for part, g in zip(parts, got, strict=True))
        total = sum(m * part.holders for m, part in zip(missing, parts, strict=True))
        got = [
            g + (m if total <= room else m * room // total)
            for g, m in zip(got, missing, strict=True)
        ]
        if total > room:
            break
    return got


def shares(n_classes: int, users: int, alpha: float | None, rng: np.random.Generator) -> np.ndarray:
    """Return each user's class weights, (users, n_classes): even, or each class divided between the
    users by Dirichlet(alpha).
    """
    if alpha is None:
        return np.full((users, n_classes), 1 / n_classes)
    weights = (
        rng.dirichlet([alpha] * users, size=n_classes).T + 1e-9
    )  # no user is without any class
    return weights / weights.sum(1, keepdims=True)


def divide(
    labels: np.ndarray, sizes: Sequence[int], weights: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Draw disjoint rows: ``sizes[h]`` for holder h, with classes as close to ``weights[h]`` as the
    remaining samples allow.

    Args:
        labels: (n,) class of each row, 0 .. n_classes - 1; all equal if classes don't matter.
        weights: (holders, n_classes), rows that sum to 1.

    Raises:
        SourceError: the sizes add up to more than ``n``.
    """
    if sum(sizes) > len(labels):
        raise SourceError(f"{sum(sizes)} samples were asked for, there are {len(labels)}")
    stock = [list(rng.permutation(np.flatnonzero(labels == c))) for c in range(weights.shape[1])]
    asked = np.asarray(sizes, dtype=np.int64)
    lacking = (
        weights * asked[:, None] + rng.random(weights.shape) * 1e-6
    )  # by class; the noise decides ties
    empty = np.array([not rows for rows in stock])
    out: list[list[int]] = [[] for _ in asked]
    for turn in range(asked.max(initial=0)):  # by turns, so that a scarce class is shared
        for holder in np.flatnonzero(asked > turn):
            c = np.where(empty, -np.inf, lacking[holder]).argmax()
            out[holder].append(stock[c].pop())
            lacking[holder, c] -= 1
            empty[c] = not stock[c]
    return [rng.permutation(np.array(rows, dtype=np.int64)) for rows in out]


@dataclass(frozen=True)
class Division:
    """Rows of the train archive (``train`` and ``val`` for each user, and ``public``) and of the
    test archive (``test``).
    """

    train: list[np.ndarray]
    val: list[np.ndarray]
    test: list[np.ndarray]
    public: np.ndarray
    sizes: list[dict]

    def users(self) -> Iterator[tuple[str, str, np.ndarray]]:
        """For each user and split: its file without suffix (``train/client_0``), the archive
        ("train" or "test"), and its rows there.
        """
        for split, archive, users in (
            ("train", "train", self.train),
            ("val", "train", self.val),
            ("test", "test", self.test),
        ):
            for client, rows in enumerate(users):
                yield f"{split}/client_{client}", archive, rows


def division(
    task: str,
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    options: dict,
    rng: np.random.Generator,
) -> Division:
    """Divide the archives of a task between its users, and a public set if the options have one;
    all parts are disjoint.

    Args:
        task: a key of ``SIZES``.
        options: the command's, of which ``alpha`` and the sizes are read.

    Raises:
        SourceError: a user would get less than Appendix G's local training set.
    """
    sizes = sized(task, options)
    n_classes = int(max(train_labels.max(initial=0), test_labels.max(initial=0))) + 1
    weights = shares(n_classes, sizes.users, options.get("alpha"), rng)
    parts = [*user_parts(sizes, options), public_part(options)]
    pool, val, n_public = fit(parts, len(train_labels))
    test_part = Part("test", sizes.test, sizes.users)
    (test,) = fit([test_part], len(test_labels))
    rows = divide(
        train_labels,
        [pool] * sizes.users + [val] * sizes.users,
        np.concatenate([weights, weights]),
        rng,
    )
    left = np.setdiff1d(np.arange(len(train_labels)), np.concatenate(rows))
    return Division(
        train=rows[: sizes.users],
        val=rows[sizes.users :],
        test=divide(test_labels, [test] * sizes.users, weights, rng),
        public=rng.permutation(left)[:n_public],
        sizes=[
            outcome(part, got)
            for part, got in zip([*parts, test_part], [pool, val, n_public, test], strict=True)
            if part.asked
        ],
    )


def of_each_class(split: str, labels: np.ndarray, run: Run) -> np.ndarray:
    """Return ascending rows of a split: of each class as many as the option ``per_class`` says, or
    all; print and note what that gives.
    """
    asked, rng = run.options.get("per_class"), run.rng(split)
    rank = np.empty(len(labels), np.int64)  # of a row among those of its class, in a random order
    for c in np.unique(labels):
        rows = np.flatnonzero(labels == c)
        rank[rows] = rng.permutation(len(rows))
    kept = np.flatnonzero(rank < (asked or len(labels)))
    sizes = np.unique(labels[kept], return_counts=True)[1]
    each = f"{sizes.max():,}" if np.ptp(sizes) == 0 else f"{sizes.min():,} to {sizes.max():,}"
    run.say(
        f"{run.entry.name}: {split}: {len(kept):,} images, {each} of each of {len(sizes):,} classes"
    )
    if asked:
        run.sizes.append(outcome(Part(f"{split}, the rarest class", asked), int(sizes.min())))
    return kept


def photo_places(public: str) -> dict[str, Place]:
    """Return the folders of users and of a public set of photographs, by part."""
    mlc = Place("MLC_setup", ("train", "val", "test", "images"))
    return {"mlc": mlc, "ss": Place("semseg_setup"), "public": Place(f"MLC_setup/{public}")}


def photo_users(
    run: Run,
    train: Sequence[T],
    test: Sequence[T],
    parts: Collection[str],
    rng: np.random.Generator,
    *,
    beside: Part | None = None,
    tasks: Mapping[str, Sizes] = SIZES,
    one_test: bool = False,
) -> tuple[dict[tuple[str, str, int], list[T]], int]:
    """Divide images between the users of multi-label classification ("mlc") and segmentation
    ("ss"), if among ``parts``; note the sizes.

    Training and validation sets are disjoint and come from ``train``. So do the SS users' test
    sets, since COCO's ``test`` is too small for two with Appendix G's 3000; the MLC users' come
    from ``test``. All are disjoint, unless ``one_test`` is given.

    Args:
        beside: a further demand on ``train``, such as the public set.
        tasks: the tasks' sizes, by Appendix G's abbreviations.
        one_test: all users of a task have one test set, drawn from ``test``.

    Returns:
        Images by part, split and client, in the order of the lists; and the number for ``beside``.

    Raises:
        SourceError: a user would get less than a local training set.
    """
    sizes = {
        part: sized(part.upper(), run.options, tasks) for part in ("mlc", "ss") if part in parts
    }
    demands = [(part, demand) for part in sizes for demand in user_parts(sizes[part], run.options)]
    if (
        "ss" in sizes and not one_test
    ):  # never explicit: in a small archive, --test N must not take everybody's validation images
        demands.append(("ss", Part("test", sizes["ss"].test, sizes["ss"].users)))
    asked = [replace(demand, what=f"{part.upper()} {demand.what}") for part, demand in demands]
    asked += [beside] if beside else []
    got = fit(asked, len(train))
    run.sizes += [outcome(part, n) for part, n in zip(asked, got, strict=True) if part.asked]

    def dealt(
        photos: Sequence[T], holders: list[tuple[str, str, int, int]]
    ) -> dict[tuple[str, str, int], list[T]]:
        rows = divide(
            np.zeros(len(photos), int), [n for *_, n in holders], np.ones((len(holders), 1)), rng
        )
        return {
            (part, split, client): [photos[i] for i in sorted(r)]
            for (part, split, client, _), r in zip(holders, rows, strict=True)
        }

    users = dealt(
        train,
        [
            (part, d.what, client, n)
            for (part, d), n in zip(demands, got, strict=False)
            for client in range(d.holders)
        ],
    )
    for part in [part for part in sizes if one_test or part == "mlc"]:
        size = sizes[part]
        demand = Part(
            f"{part.upper()} test, {size.users} users' one" if one_test else "MLC test",
            size.test,
            1 if one_test else size.users,
        )
        (n,) = fit([demand], len(test))
        run.sizes.append(outcome(demand, n))
        users |= dealt(test, [(part, "test", client, n) for client in range(demand.holders)])
        users |= {
            (part, "test", client): users[part, "test", 0]
            for client in range(demand.holders, size.users)
        }
    return users, got[-1] if beside else 0


def photo_folders(
    run: Run, users: Mapping[tuple[str, str, int], Iterable[T]], public: Iterable[T], places: dict
) -> dict[T, set[Path]]:
    """Return for each image the folders below ``run.root`` that it goes to; ``places`` are those of
    :func:`photo_places`.
    """
    folders: dict[T, set[Path]] = {}
    for (part, split, _), photos in users.items():
        for photo in photos:
            folders.setdefault(photo, set()).add(run.root / places[part].folder / "images" / split)
    for photo in public:
        folders.setdefault(photo, set()).add(run.root / places["public"].folder)
    return folders


def user_parts(sizes: Sizes, options: dict) -> list[Part]:
    """Return the users' demands on a train archive: pools and validation sets."""
    return [
        Part("train", sizes.pool, sizes.users, sizes.local, options.get("pool") is not None),
        Part("val", sizes.val, sizes.users, explicit=options.get("val") is not None),
    ]


def public_part(options: dict) -> Part:
    """Return the demand for the public set; none if the options have no ``public``, ``PUBLIC_SIZE``
    if it is None.
    """
    asked = options.get("public", 0)
    return Part(
        "public",
        PUBLIC_SIZE if asked is None else asked,
        explicit=asked is not None,
        first_share=0.5,
    )


def outcome(part: Part, got: int) -> dict:
    """Return a row of the manifest's table of sizes: asked for, and got."""
    return {"what": part.what, "holders": part.holders, "asked": part.asked, "got": got}


def sized(task: str, options: dict, tasks: Mapping[str, Sizes] = SIZES) -> Sizes:
    """Return a task's sizes as the options change them; pool and validation set stay in proportion
    to the training set.
    """
    sizes = tasks[task]
    local = options.get("train_size") or sizes.local
    given = {key: options[key] for key in ("pool", "val", "test") if options.get(key) is not None}
    in_proportion = {key: getattr(sizes, key) * local // sizes.local for key in ("pool", "val")}
    return replace(
        sizes, users=options.get("clients") or sizes.users, local=local, **in_proportion | given
    )
