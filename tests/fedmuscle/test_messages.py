"""A server takes the message that it asked for once, from whom it asked, and keeps a copy."""

import pytest
import torch
from torch.nn.functional import normalize

from fedmuscle_lib.core.errors import Diverged, RefusedMessage
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.fedmuscle.server import Server

B, D = 8, 4
BATCH = Batch(2, 0, 1, B)
Z = normalize(torch.randn(B, D, generator=torch.Generator().manual_seed(0)), dim=1)


@pytest.fixture
def server() -> Server:
    one = Server((2, 5), others=1, dim=D, address=(0,))
    one.open(BATCH)
    return one


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (None, "as a NoneType, not as a tensor"),
        (Z.numpy(), "as a ndarray"),
        (Z.long(), "as torch.int64; floating-point numbers"),
        (Z[:-1], r"of shape \(7, 4\); \(8, 4\) is expected"),
        (torch.where(torch.arange(D) == 1, torch.nan, Z), "not finite"),
        (1.1 * Z, "norm 1.1, not 1"),
        (torch.zeros_like(Z), r"norm 0, not 1 \(row 0 of round 3, CL epoch 1, batch 2\)"),
    ],
)
def test_what_is_no_representation_is_refused_and_leaves_no_trace(server, sent, why):
    with pytest.raises(RefusedMessage, match=f"^user 5 sent .*{why}") as refused:
        server.receive(5, BATCH, sent)
    assert isinstance(refused.value, Diverged) == (why == "not finite") and not server.uplink
    server.receive(5, BATCH, Z)
    with pytest.raises(RefusedMessage, match="twice for round 3, CL epoch 1, batch 2"):
        server.receive(5, BATCH, Z)


def test_another_batch_and_another_user_are_refused(server):
    with pytest.raises(RefusedMessage, match="the open batch is round 3, CL epoch 1, batch 2"):
        server.receive(5, Batch(2, 0, 0, B), Z)
    with pytest.raises(RefusedMessage, match=r"7 is not of this federation of \(2, 5\)"):
        server.receive(7, BATCH, Z)
    with pytest.raises(RefusedMessage, match="user 5 sent no representations for round 3"):
        server.current(5)


def test_what_a_user_changes_afterwards_changes_nothing(server):
    sent = Z.clone()
    server.receive(5, BATCH, sent)
    sent.fill_(torch.nan)
    assert torch.equal(server.current(5), Z)
    server.give(2, 0, message := torch.zeros(B)).fill_(torch.nan)
    assert not message.any()
