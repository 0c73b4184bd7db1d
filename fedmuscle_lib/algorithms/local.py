"""Local training, the baseline of every Delta, and the control that trains the head alone."""

from __future__ import annotations

from fedmuscle_lib.algorithms.base import NO_ALIGNMENT, Algorithm, Federation


class LocalTraining(Algorithm):
    """Section 6.1: "each user's model is trained individually". Public data are never looked at."""

    name, label = "local", "Local training"
    communicates = False
    ignores = ("public", "public_size", "public_batch_size", "cl_epochs", *NO_ALIGNMENT)

    def communicate(self, federation: Federation, round: int) -> None:
        return None


class HeadOnly(LocalTraining):
    """Control: the pretrained backbone stays as it is and only the prediction head learns, so nothing can be forgotten."""

    name, label, source = "head_only", "Head only", "control"

    def begin(self, federation: Federation) -> None:
        for client in federation.clients:
            client.freeze_representation()
