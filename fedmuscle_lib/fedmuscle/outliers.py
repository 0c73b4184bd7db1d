"""Agreement of users on what public samples have in common: by this a server sees, without labels,
a user that is broken or colludes.

A user is compared with each other user on every batch. What counts is its upper median over the
others, which a minority of users that say the same to deceive can't move: each of them agrees with
the others of its kind, and with less than half of all.

- ``agreement``: debiased CKA of their Gram matrices. It needs no common space, so honest users
  agree before they were ever aligned: they look at the same images. Of unrelated matrices, such as
  shuffled rows or noise, its expectation is 0.
- ``retrieval``: the share of a batch's other samples that are less similar to the user's vector of
  a sample than that sample's own vector is. It begins at chance, 1/2, rises while users are
  aligned, and falls where a user turns away from the others, which CKA, blind to signs, does not
  see.
- ``spread``: mean squared distance from the batch's mean vector; 0 for a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

MEASURES = ("agreement", "retrieval", "spread")
FEWEST = 128  # samples in a round; on fewer, chance alone may pass a limit
# rounds in a row, after which there is a warning; on `small`, an honest user with texts looks
# unrelated for up to four
LASTING = 5
# Measured on `mini` in the first round, before and while users are aligned for the first time (seed
# 100, batches of 32): honest users of Setup 1 have an agreement of 0.41 to 0.47, a retrieval of
# 0.60 to 0.65 and a spread of 0.69 to 0.79, those of Setup 2 with texts and masks at least 0.19 and
# 0.52. A user with shuffled rows, noise or a constant has an agreement of -0.02 to 0.02; one that
# sends the negative of its own or the others' mean vectors a retrieval of 0 to 0.41, and below 0.24
# in the second round. In `setup1_unequal` (seed 0, notebook `hostile`) the others align with such a
# negative, and nothing looks wrong: 0.61, then up to 0.97.
UNRELATED, OPPOSED, CONSTANT = 0.1, 0.45, 0.05


def measured(z: Tensor) -> Tensor:
    """Return each user's MEASURES on one batch, (3, n).

    Args:
        z: (n, b, d), representations of b >= 4 samples by n >= 2 users, rows of unit norm.
    """
    n, b, _ = z.shape
    similarity = torch.einsum("nid,mjd->nmij", z, z)  # (n, n, b, b)
    own = similarity.diagonal(dim1=2, dim2=3).unsqueeze(-1)  # (n, n, b, 1)
    ahead = (
        (own - similarity).sign().sum(-1)
    )  # (n, n, b): of how many samples, less those it is behind; its tie with itself is 0
    retrieval = (b - 1 + ahead).mean(-1) / (
        2 * (b - 1)
    )  # (n, n); a tie counts half, as chance would
    spread = 1 - z.mean(1).square().sum(-1)  # (n,)
    gram = similarity.diagonal().permute(2, 0, 1).double()  # (n, b, b)
    return torch.stack(
        [_upper_median(_debiased_cka(gram)), _upper_median(retrieval).double(), spread.double()]
    )


def _debiased_cka(gram: Tensor) -> Tensor:
    """``objectives.cka`` of each two of n Gram matrices (n, b, b), all at once: (n, n)."""
    n, b, _ = gram.shape
    gram = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    flat, rows = gram.flatten(1), gram.sum(1)  # (n, b^2), (n, b)
    whole = rows.sum(1, keepdim=True)  # (n, 1)
    hsic = (flat @ flat.T + whole @ whole.T / ((b - 1) * (b - 2)) - 2 * rows @ rows.T / (b - 2)) / (
        b * (b - 3)
    )
    own = hsic.diagonal().clamp(min=0).sqrt()
    return torch.where(
        own.outer(own) > 1e-9, hsic / own.outer(own).clamp(min=1e-9), 0
    )  # a constant is related to nothing


def _upper_median(pairs: Tensor) -> Tensor:
    """Of each row of (n, n) without its diagonal: (n,)."""
    n = len(pairs)
    others = pairs[~torch.eye(n, dtype=torch.bool, device=pairs.device)].view(n, n - 1)
    return others.kthvalue((n - 1) // 2 + 1, dim=1).values


def suspicion(of: Mapping[str, float]) -> str:
    """Return in plain words what looks wrong with a user who has these MEASURES; empty if nothing
    does.
    """
    if of["spread"] < CONSTANT:
        return "look constant"
    if of["agreement"] < UNRELATED:
        return "look unrelated to the other users'"
    if of["retrieval"] < OPPOSED:
        return "are turned away from the other users'"
    return ""


def suspicions(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], str]:
    """Return what is wrong, by round and user, in the order of the rows.

    Args:
        rows: of round, user, measure and value, as in ``Server.measures`` and a history's table of
            this name.
    """
    found: dict[tuple[int, int], dict[str, float]] = {}
    for row in rows:
        if row["measure"] in MEASURES:
            found.setdefault((int(row["round"]), int(row["user"])), {})[row["measure"]] = float(
                row["value"]
            )
    return {
        key: words
        for key, of in found.items()
        if of.keys() == set(MEASURES) and (words := suspicion(of))
    }


def lasting(rows: Iterable[Mapping[str, Any]], round: int) -> dict[str, list[int]]:
    """Return the users that have looked wrong for LASTING rounds with ``round``, and not longer, by
    what is wrong.

    Args:
        rows: as in :func:`suspicions`.
    """
    last = suspicions(row for row in rows if row["round"] >= round - LASTING)
    found: dict[str, list[int]] = {}
    for (_, user), words in ((key, words) for key, words in last.items() if key[0] == round):
        rounds = {at for (at, other), same in last.items() if (other, same) == (user, words)}
        if rounds == set(range(round - LASTING + 1, round + 1)):
            found.setdefault(words, []).append(user)
    return found


def remark(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence on the users that looked wrong, and in how many rounds; empty if none did.

    Args:
        rows: as in :func:`suspicions`.
    """
    found = Counter((user, words) for (_, user), words in suspicions(rows).items())
    said = [
        f"of user {user} {words} in {rounds} round{'s' * (rounds > 1)}"
        for (user, words), rounds in sorted(found.items())
    ]
    return f"The representations {', '.join(said)}." if said else ""
