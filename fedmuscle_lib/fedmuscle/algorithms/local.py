"""Local training, the baseline of every Delta, and the controls that leave the pretrained backbone
as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from fedmuscle_lib.fedmuscle.algorithms.algorithm import (
    NO_ALIGNMENT,
    Algorithm,
    ClientSide,
    Federation,
)

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client


class LocalTraining(Algorithm):
    """Section 6.1: "each user's model is trained individually". Public data are never looked at."""

    name, label = "local", "Local training"
    communicates = False
    ignores: ClassVar[tuple[str, ...]] = (
        "public",
        "public_size",
        "public_batch_size",
        "cl_epochs",
        *NO_ALIGNMENT,
    )


@dataclass(frozen=True)
class _Freeze(ClientSide):
    """Train the head alone from here on."""

    def __call__(self, client: Client) -> None:
        client.model.freeze_representation()


class HeadOnly(LocalTraining):
    """Control: the pretrained backbone stays as it is and only the prediction head learns, so
    nothing can be forgotten.
    """

    name, label, source = "head_only", "Head only", "control"
    heads = (
        "two layers",
        "linear",
        "decoder",
    )  # a language model's is the pretrained one and is never trained

    def begin(self, federation: Federation) -> None:
        for client in federation.clients:
            client.do(_Freeze())


@dataclass(frozen=True)
class _FitProbe(ClientSide):
    """Freeze the representation, and put a linear layer fitted to the features of D^n in place of
    the head.
    """

    def __call__(self, client: Client) -> None:
        from fedmuscle_lib.models import (
            linear_probe,
        )  # where the model is, its libraries are loaded

        model, data = client.model, client.train
        model.freeze_representation()
        features = model.features(client.read(data.inputs, torch.arange(len(data))))
        model.head = linear_probe(
            features, data.targets, client.task.loss, client.task.n_outputs(client.classes)
        )
        model.head_on = "features"


class Probe(LocalTraining):
    """Control: logistic regression on the features of the pretrained backbone, fitted once, before
    the first round.

    It says what local training starts from, and has no learning rate, no epochs and no head to
    choose. The rounds pass without a step; they are there so that curves can show it beside the
    others.
    """

    name, label, source = "probe", "Logistic probe", "control"
    heads = ("two layers", "linear")  # a decoder reads four maps, not pooled features
    ignores = (*LocalTraining.ignores, "local_epochs", "epochs", "refit")

    def begin(self, federation: Federation) -> None:
        for client in federation.clients:
            client.do(_FitProbe())

    def local_phase(self, client: Client, round: int) -> float:
        return math.nan
