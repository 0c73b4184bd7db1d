"""The lesson on a communication round: what its text claims is so, and its answers follow from
messages that the server counts.
"""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from lesson import LESSONS, assert_answers, assert_shows_what_it_kept
from torch.nn import functional as F

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.muscle import make_reply

LESSON = LESSONS / "5_a_round.ipynb"
MEASURED = """
import json
print(json.dumps({
    "moments": moments,
    "same picture": [(a - b).norm(dim=-1).mean().item() for z in (start, seen(users)) for a, b in [(z[0], z[1])]],
    "newcomer": [[share[4, other] for share in shares] for other in (1, 2, 3)],
}))
"""


# --- executed


def test_the_lesson_executes_and_shows_what_it_kept(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


def test_users_come_to_agree_and_gain_nothing_by_it(measured):
    before, after = measured["same picture"]
    assert after < 0.7 * before
    alone, after, refitted = measured["moments"].values()
    assert after[0] < alone[0] and after[1] < alone[1] and after[2] > alone[2]
    assert (
        refitted[0] < alone[0] + 1.05
        and refitted[1] < alone[1] + 1.05
        and refitted[2] > alone[2] - 0.05
    )
    for shares in measured["newcomer"]:
        assert shares[-1] > 20 > 10 * 100 / 128, "user 4 finds its place, far above chance"


# --- the answers


def a_users_round(public: int, d: int, size: int) -> tuple[int, int]:
    """Bytes up and down of one user of three in one round, as the server counts them."""
    server, z = (
        Server([1, 2, 3], others=2, dim=d, address=()),
        F.normalize(torch.randn(3, size, d), dim=2),
    )
    for position in range(public // size):
        server.open(batch := Batch(0, 0, position, size))
        server.receive(1, batch, z[0])
        server.send(1, make_reply("gradient", z[0], z[1:]))
    return server.uplink[0, 1], server.downlink[0, 1]


def whose_gradient(body: torch.nn.Module, head: torch.nn.Module) -> str:
    z = F.normalize(body(torch.rand(32, 4)), dim=1)
    make_reply("gradient", z.detach(), F.normalize(torch.randn(2, 32, 3), dim=2)).loss(z).backward()
    (moved,) = (
        name for name, part in {"body": body, "head": head}.items() if part.weight.grad is not None
    )
    return moved


def complaint(message: torch.Tensor) -> str:
    server = Server([1, 2, 3, 4], others=2, dim=16, address=())
    server.open(batch := Batch(0, 0, 0, 32))
    with pytest.raises(RefusedMessage) as refused:
        server.receive(4, batch, message)
    return next(word for word in ("shape", "norm") if word in str(refused.value))


def test_the_answers_follow_from_messages_that_the_server_counts(capsys):
    up, down = a_users_round(public=256, d=256, size=32)
    known = {
        "what the server learns from fit": (
            "losses" if Server([1], others=1, dim=16, address=()).uplink else "nothing"
        ),
        "shape of what a user sends": (
            32,
            a_users_round(32, 16, 32)[0] // 32 // torch.empty(1).nbytes,
        ),
        "what align changes": whose_gradient(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)),
        "bytes of a round with d = 256": (up, down),
        "rounds for the bytes of one network": torch.empty(3_400_000, device="meta").nbytes // up,
        "why a message is refused": complaint(2 * torch.eye(32, 16) + 1),
        "sets of two others": len(list(combinations({1, 2, 3, 4} - {4}, 2))),
    }
    assert_answers(LESSON, known, capsys, near=0)
    assert (up, down) == (262_144, 262_176)
