"""One-shot accuracy: how well the frozen features of the users' checkpoints tell classes apart by
one image of each.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.data.samples import Samples, draw_local
from fedmuscle_lib.fedmuscle.build import encoding_of
from fedmuscle_lib.fedmuscle.dependencies import SPLITS, checkpoint_of
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.models import FrozenStates, UserModel, few_shot, untrained
from fedmuscle_lib.tasks import TASKS

_log = logging.getLogger("fedmuscle")
_TASK = "IC100"  # whose classes are told apart
TESTS = 1500  # test images


@fixed_state()
def one_shot(settings: Settings) -> dict[str, float]:
    """Accuracy in per cent, by checkpoint, of the nearest class mean with one image of each class
    of IC100.

    Measured for every checkpoint of users who classify images, on features that are read and pooled
    as in a run. The training sets (:func:`few_shot`) and the tests are drawn from the images of all
    users with IC100. Empty if nobody has IC100, and, with a warning, if the data or a checkpoint
    can't be read, as where only shipped runs are shown.
    """
    task, pupils = (
        TASKS[_TASK],
        [user for user in settings.members if user.task == _TASK and user.folder is None],
    )
    alike = [
        user
        for user in settings.members
        if (TASKS[user.task].reads, TASKS[user.task].head) == (task.reads, task.head)
    ]
    checkpoints = {settings.backbones[user.model]: user for user in alike if pupils}
    try:
        return {
            checkpoint: _accuracy(settings, user, pupils)
            for checkpoint, user in checkpoints.items()
        }
    except (DataError, OSError) as error:
        _log.warning("one-shot accuracy is not measured: %s", error)
        return {}


def _accuracy(settings: Settings, user: User, pupils: Sequence[User]) -> float:
    model = untrained(
        checkpoint_of(settings, user),
        settings.device,
        pooling=settings.pooling,
        precision=settings.precision,
    )
    train, test = (
        _read(settings, user, model, pupils, split)
        for split in ("train", SPLITS[settings.evaluate_on])
    )
    few = draw_local(test, min(TESTS, len(test)), "test")
    pool, few = (_features(model, samples, settings.device) for samples in (train, few))
    return few_shot(pool, few, n=len(pool.targets.unique()))


def _read(
    settings: Settings, user: User, model: UserModel, pupils: Sequence[User], split: str
) -> Samples:
    """The images of all ``pupils``, as the user's model reads them."""
    encoding = encoding_of(settings, replace(user, task=_TASK), model.backbone)
    parts = [
        TASKS[_TASK].read(settings.data_dir, pupil.client, split, encoding)[0] for pupil in pupils
    ]
    return Samples(
        torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
    )


def _features(model: UserModel, samples: Samples, device: str) -> Samples:
    states = FrozenStates().of(model, samples.inputs.to(device)).take(slice(None))
    return Samples(model.features(states).cpu(), samples.targets)
