"""FedLoGe's second step: realigned heads, and predictions that know which classes a client has.

Everything returns new tensors. The shared head is every client's, and nothing here changes it.
Letters: ``c`` classes, ``d`` dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor


def local_realignment(shared: Tensor, private: Tensor) -> Tensor:
    """Scale each row of the shared head by the norm of the client's own row: (c, d).

    Args:
        shared: (c, d), weight of the head g that all clients average; its rows are not normalised
            first.
        private: (c, d), weight of the client's head l_k, whose norms follow the client's class
            frequencies.

    Source:
        FedLoGe, Local Adaptive Feature Realignment; the bias stays the shared head's.
    """
    return shared * torch.linalg.vector_norm(private, dim=1, keepdim=True)


def global_realignment(shared: Tensor, norm: float = 1.7) -> Tensor:
    """Give each row of the shared head the same norm: (c, d). A row of zeros stays one.

    Args:
        shared: (c, d).
        norm: a constant of the authors' code. The bias stays, so the norm weighs features against
            it.

    Source:
        FedLoGe, Global Adaptive Feature Realignment.
    """
    return norm * torch.nn.functional.normalize(shared, dim=1)


def masked(logits: Tensor, present: Tensor) -> Tensor:
    """Return the logits with those of absent classes at minus infinity, so that no absent class is
    ever predicted.

    The authors set absent rows of the weight to -1e10 instead, which lets an absent class win
    wherever a feature is negative, and only ties where all are 0.

    Args:
        logits: (n, c).
        present: (c,), whether the client has samples of the class.
    """
    return logits.masked_fill(~present, -torch.inf)
