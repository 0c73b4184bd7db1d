"""The federation of a run before its first round: data read, models initialised from the seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedmuscle_lib.core.errors import DataError, prefixed, remark
from fedmuscle_lib.core.randomness import seeded
from fedmuscle_lib.data.encodings import Encoding, Pixels, Tokens
from fedmuscle_lib.data.partition import matched_partitions
from fedmuscle_lib.data.public import PUBLIC_SETS, read_public
from fedmuscle_lib.data.samples import MOSTLY, Samples, draw_local, share_in
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Federation, Reading
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import User, task_of
from fedmuscle_lib.models import (
    FrozenStates,
    architecture_of,
    checkpoint_folder,
    load_backbone,
    load_tokenizer,
    model_type,
)
from fedmuscle_lib.tasks import TASKS, Head

# Settings that are options of a user's model, in the order in which a saved user has them.
_REPRESENTATION = ("proj_dim", "rank", "lora_alpha", "lora_layers", "lora_blocks")
_REST = ("head_hidden", "head_on", "pooling", "precision")
_LEAK = "user %d: most samples of %s are also in %s: it is tested on what it learns from"


def build(settings: Settings) -> Federation:
    """Read what the users need and put them and their server together.

    What the settings' algorithm ignores is not read here either.

    Raises:
        DataError, OSError: the data or a checkpoint is missing or damaged; the message names the
            file.
        ValueError: a user's checkpoint can't do its task; the message names the user.
    """
    algorithm = algorithms.get(settings.algorithm)
    reads = Reading(settings, algorithm)
    public: dict[Encoding, Tensor] = {}  # once for all users who read it alike
    states = FrozenStates()
    clients = []
    for user in settings.members:
        task = task_of(user)
        checkpoint = checkpoint_of(settings, user)
        backbone = load_backbone(checkpoint, reads.device)
        kind = architecture_of(checkpoint)
        if _head(reads, user) not in kind.heads or task.reads != kind.reads:
            raise ValueError(
                f"user {user.number}: {checkpoint} is a {model_type(checkpoint)}, which can't do"
                f" {task.name}"
            )
        encoding = encoding_of(settings, user, backbone)
        train, evaluation, classes = local_data(settings, user, encoding)
        if encoding not in public:
            folder = reads.data_dir / PUBLIC_SETS[reads.public] if settings.sees_public else None
            samples = (
                read_public(folder, reads.public_size, encoding) if folder else train.inputs[:0]
            )
            public[encoding] = samples.to(reads.device)
        if share_in(evaluation.inputs, public[encoding], _filler(encoding)) > MOSTLY:
            tests = task.file(reads.data_dir, user.client, reads.split)
            remark(_LEAK, user.number, tests, reads.data_dir / PUBLIC_SETS[reads.public])
        place = prefixed(f"user {user.number}", ValueError, ValueError)
        with place, seeded("weights", reads.seed, user.number):
            options = model_options(reads, user)
            model = kind(
                backbone, task.n_outputs(classes), lora_dropout=reads.lora_dropout, **options
            )
        clients.append(
            Client(
                user,
                task,
                model.to(reads.device),
                classes,
                train.to(reads.device),
                evaluation.to(reads.device),
                public[encoding],
                states,
                reads,
                "separate" if "optimisers" in algorithm.ignores else reads.optimisers,
            )
        )
    numbers = [user.number for user in settings.members]
    others = None if "others" in algorithm.ignores else settings.others
    return Federation(clients, Server(numbers, others, reads.proj_dim, (reads.seed,)))


def checkpoint_of(settings: Settings, user: User) -> Path:
    """Path of the user's checkpoint."""
    return checkpoint_folder(settings.models_path, settings.backbones[user.model])


def model_options(reads: Reading | Settings, user: User) -> dict[str, Any]:
    """Return what the user's ``UserModel`` is made with, beside its backbone and the width of its
    outputs, as JSON values.
    """
    return {"head": _head(reads, user)} | {
        name: reads.of(user, name) for name in (*_REPRESENTATION, *_REST)
    }


def _head(reads: Reading | Settings, user: User) -> Head:
    """The kind of the user's head: its task's, but one layer where two are left at one."""
    usual = TASKS[user.task].head
    return "linear" if usual == "two layers" and reads.of(user, "head_layers") == 1 else usual


def encoding_of(settings: Settings, user: User, backbone: PreTrainedModel) -> Encoding:
    """Encoding of the inputs of the user's model; raises ValueError if the side of its images is
    none that the model reads.
    """
    checkpoint = checkpoint_of(settings, user)
    kind = architecture_of(checkpoint)
    if kind.reads == "texts":
        return Tokens(
            load_tokenizer(checkpoint),
            min(settings.text_length, backbone.config.max_position_embeddings),
        )
    decodes = TASKS[user.task].head == "decoder"
    name = "mask_size" if decodes else "image_size"
    if kind.stride is None and not decodes:  # the checkpoint's config fixes the side
        return Pixels(backbone.config.image_size)
    side = getattr(settings, name)
    if side % (kind.stride or 1):
        raise ValueError(
            f"{name}: {side} is no multiple of {kind.stride}, as the {kind.__name__} of user"
            f" {user.number} needs it"
        )
    return Pixels(side)


def _filler(encoding: Encoding) -> int:
    """Return what stands behind the end of a text; pixels have no end."""
    return int(encoding.tokenizer.pad_token_id) if isinstance(encoding, Tokens) else 0


def local_data(
    settings: Settings, user: User, encoding: Encoding
) -> tuple[Samples, Samples, tuple[int, ...]]:
    """The user's D^n, its evaluation samples, and the ids of its classes."""
    task, split = task_of(user), settings.split
    given = (
        (settings.root_train_image_folder, settings.root_val_image_folder)
        if user.task == "MLC"
        else (None, None)
    )
    (pool, classes), (evaluation, other) = (
        task.read(settings.data_dir, user.client, name, encoding, images)
        for name, images in zip(("train", split), given, strict=True)
    )
    if (classes, pool.names) != (other, evaluation.names):
        raise DataError(
            f"user {user.number}: the categories of client_{user.client} differ between train and"
            f" {split}"
        )
    n = user.train_samples
    try:
        if user.sharers:
            pool, evaluation = _share(settings, user, pool, evaluation)
        if n > len(pool):
            raise ValueError(
                f"a local training set of {n} was asked for, the file holds {len(pool)} samples"
            )
    except ValueError as error:
        raise DataError(
            f"user {user.number}, {task.file(settings.data_dir, user.client, 'train')}: {error};"
            " the setting train_samples asks for fewer"
        ) from None
    if settings.local_draw == "fixed":
        train = pool.take(torch.arange(n))
    else:
        train = draw_local(pool, n, settings.seed, user.number, balanced=not user.sharers)
    if share_in(evaluation.inputs, pool.inputs, _filler(encoding)) > MOSTLY:
        files = (task.file(settings.data_dir, user.client, name) for name in (split, "train"))
        remark(_LEAK, user.number, *files)
    return train, evaluation, classes


def _share(settings: Settings, user: User, *pools: Samples) -> tuple[Samples, ...]:
    """The user's part of its task's training and evaluation pools; raises ValueError where these
    are too small.
    """
    assert user.sharers
    train, evaluation = (pool.targets.numpy() for pool in pools)
    address = ("pool", settings.seed, user.task)
    parts = matched_partitions(
        train, evaluation, len(user.sharers), settings.alpha, user.train_samples, *address
    )
    own = user.sharers.index(user.number)
    return tuple(
        pool.take(torch.from_numpy(rows[own])) for pool, rows in zip(pools, parts, strict=True)
    )
