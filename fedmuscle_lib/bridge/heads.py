"""Heads on the features of a trained user, and their accuracies by how often the user sees a class.
The features stay fixed.

Letters: ``n`` samples, ``c`` classes, ``d`` width of the features.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.data.long_tail import groups
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.realign import global_realignment
from fedmuscle_lib.models import UserModel, linear_probe

VERSION = 1  # raised when a head, a group or an accuracy is computed otherwise
HEADS = {
    "own": "The head that the user trained with its backbone.",
    "own, realigned": "The same, but the rows of its last layer have one norm, their mean.",
    "linear": (
        "A linear layer fitted to the standardised features of the local training set (logistic"
        " regression)."
    ),
    "linear, realigned": "The same, but its rows have one norm, their mean.",
}
_BATCH = 256  # samples at once


def evaluate(
    model: UserModel, train: Samples, test: Samples, classes: int
) -> Iterator[dict[str, Any]]:
    """Yield the accuracy of each of ``HEADS`` over all classes and over each group of
    :func:`classes_by_frequency`.

    Args:
        model: of a trained user, such as ``load_user(folder).model``; it is left in evaluation
            mode.
        train: the user's local training set; targets are labels, (n,).
        test: what it is tested on.
        classes: c.

    Yields:
        head, group, classes (of the group), samples (of the training set), tested (samples of the
        test set), value (per cent). A group that is empty or not tested is left out.
    """
    counts = train.targets.bincount(minlength=classes).cpu()
    members = {ALL: tuple(range(classes))} | classes_by_frequency(counts)
    for head, outputs in _outputs(model, train, test, classes).items():
        hits = (outputs.argmax(1) == test.targets).double()
        for group, own in members.items():
            tested = torch.isin(test.targets, test.targets.new_tensor(own))
            if tested.any():
                sizes = {
                    "classes": len(own),
                    "samples": int(counts[list(own)].sum()),
                    "tested": int(tested.sum()),
                }
                yield {
                    "head": head,
                    "group": group,
                    **sizes,
                    "value": 100 * float(hits[tested].mean()),
                }


@fixed_state()
def _outputs(model: UserModel, train: Samples, test: Samples, classes: int) -> dict[str, Tensor]:
    """The outputs (n, c) of each of ``HEADS`` for the test set."""
    model.eval()
    known, new = (_features(model, samples.inputs) for samples in (train, test))
    mean, std = known.mean(0), known.std(0, correction=0)
    std = torch.where(std > 0, std, 1.0)
    linear = linear_probe((known - mean) / std, train.targets, cross_entropy, classes)
    with torch.no_grad():
        scaled = (new - mean) / std
        found = (
            model.head(new),
            realigned(model.head)(new),
            linear(scaled),
            realigned(linear)(scaled),
        )
    return dict(zip(HEADS, found, strict=True))


@torch.no_grad()
def _features(model: UserModel, inputs: Tensor) -> Tensor:
    """Return what the model's head reads, (n, d)."""
    return torch.cat([model.read_by_head(model.features(part)) for part in inputs.split(_BATCH)])


def realigned(head: nn.Module) -> nn.Module:
    """A copy of the head whose last layer's rows all have the mean of their norms; the bias stays.

    FedLoGe's global realignment. The constant of its code, 1.7, is of its own heads; the mean
    leaves the bias the weight that it had.

    Args:
        head: a linear layer, or layers of which the last is one.

    Raises:
        ValueError: the last layer is not linear.
    """
    head = copy.deepcopy(head)
    last = head[-1] if isinstance(head, nn.Sequential) else head
    if not isinstance(last, nn.Linear):
        raise ValueError(
            f"a {type(last).__name__} has no row for each class that could be realigned"
        )
    with torch.no_grad():
        last.weight.copy_(global_realignment(last.weight, float(last.weight.norm(dim=1).mean())))
    return head


def classes_by_frequency(counts: Tensor) -> dict[str, tuple[int, ...]]:
    """Divide classes into "head", "middle" and "tail" by the user's own samples of each, as
    ``data.long_tail.groups`` does.

    Few samples make many ties. Classes with as many samples as one in a rarer group belong to that
    group.

    Args:
        counts: (c,), not all 0.
    """
    divided = groups(counts[None].numpy())
    rarest = {
        int(counts[c]): name for name, members in divided.items() for c in members
    }  # of a tie, the last group stays
    return {
        name: tuple(c for c, count in enumerate(counts.tolist()) if rarest[count] == name)
        for name in divided
    }
