"""One-shot accuracy: how well the frozen features of the users' checkpoints tell classes apart by
one image of each.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.nn.functional import normalize

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.data.samples import Samples, draw_local
from fedmuscle_lib.fedmuscle.build import checkpoint_of, encoding_of
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.models import FrozenStates, untrained
from fedmuscle_lib.tasks import TASKS

_log = logging.getLogger("fedmuscle")
_TASK = "IC100"  # whose classes are told apart
TESTS = 1500  # test images
DRAWS = 20  # training sets


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


def few_shot(pool: Samples, test: Samples, n: int) -> float:
    """Accuracy in per cent of the nearest class mean: the mean over 20 training sets of ``n``
    samples, drawn from the pool as a user's are.

    Features are centred on the training set's mean and of unit norm. Nothing is trained and nothing
    has to be chosen.

    Args:
        pool, test: inputs are features, (samples, width), and targets labels.

    Raises:
        DataError: the pool is smaller than ``n``.
    """
    drawn = (draw_local(pool, n, "worth", seed) for seed in range(DRAWS))
    return sum(nearest_class_mean(train, test) for train in drawn) / DRAWS


def nearest_class_mean(train: Samples, test: Samples) -> float:
    """Accuracy in per cent on ``test`` of the class whose mean in ``train`` is nearest."""
    centre = train.inputs.mean(0)
    x, y = (normalize(samples.inputs - centre, dim=1) for samples in (train, test))
    classes = train.targets.unique()
    means = torch.stack([x[train.targets == c].mean(0) for c in classes])
    return 100 * (classes[torch.cdist(y, means).argmin(1)] == test.targets).double().mean().item()
