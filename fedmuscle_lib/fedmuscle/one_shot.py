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
from fedmuscle_lib.fedmuscle.build import checkpoint_of, encoding_of
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.models import FrozenStates, few_shot, untrained
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
    pupils = [user for user in settings.members if user.task == _TASK and user.folder is None]
    like = TASKS[_TASK].reads, TASKS[_TASK].head
    checkpoints = {
        settings.backbones[user.model]: user
        for user in settings.members
        if pupils and (TASKS[user.task].reads, TASKS[user.task].head) == like
    }
    try:
        return {name: _accuracy(settings, user, pupils) for name, user in checkpoints.items()}
    except (DataError, OSError) as error:
        _log.warning("one-shot accuracy is not measured: %s", error)
        return {}


def _accuracy(settings: Settings, user: User, pupils: Sequence[User]) -> float:
    options = {"pooling": settings.pooling, "precision": settings.precision}
    model = untrained(checkpoint_of(settings, user), settings.device, **options)
    encoding = encoding_of(settings, replace(user, task=_TASK), model.backbone)

    def read(split: str) -> Samples:
        """The images of all ``pupils``, as the user's model reads them."""
        parts = [
            TASKS[_TASK].read(settings.data_dir, pupil.client, split, encoding)[0]
            for pupil in pupils
        ]
        inputs, targets = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("inputs", "targets")
        )
        return Samples(inputs, targets)

    def features(samples: Samples) -> Samples:
        states = FrozenStates().of(model, samples.inputs.to(settings.device)).take(slice(None))
        return Samples(model.features(states).cpu(), samples.targets)

    pool, tests = features(read("train")), read(settings.split)
    few = features(draw_local(tests, min(TESTS, len(tests)), "test"))
    return few_shot(pool, few, n=len(pool.targets.unique()))
