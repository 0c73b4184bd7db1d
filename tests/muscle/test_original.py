"""The calls of the original code's README: its three-encoder example runs, and says what equation
(3) says.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from fedmuscle_lib import compute_alpha, muscle_loss


class Encoder(nn.Module):
    """An encoder of the example, whose call the README writes ``model(batch, projection=True)``."""

    def __init__(self, width: int, d: int) -> None:
        super().__init__()
        self.body, self.projection = nn.Linear(12, width), nn.Linear(width, d)

    def forward(self, batch: torch.Tensor, projection: bool) -> torch.Tensor:
        return self.projection(torch.tanh(self.body(batch)))


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def test_the_three_encoder_example_runs_as_it_stands():
    torch.manual_seed(0)
    B, d, tau, tau_prime, device = 8, 16, 0.20, 0.15, torch.device("cpu")
    model_A, model_B, model_C = (Encoder(width, d) for width in (24, 16, 32))
    optimizer_A, optimizer_B, optimizer_C = (
        torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model_A, model_B, model_C)
    )
    batch, losses = torch.randn(B, 12), []
    for _ in range(20):
        with torch.no_grad():
            rep_A = F.normalize(model_A(batch, projection=True), dim=-1)
            rep_B = F.normalize(model_B(batch, projection=True), dim=-1)
            rep_C = F.normalize(model_C(batch, projection=True), dim=-1)
        alpha_A = compute_alpha([rep_A, rep_B, rep_C], tau, tau_prime, device)
        alpha_B = compute_alpha([rep_B, rep_A, rep_C], tau, tau_prime, device)
        alpha_C = compute_alpha([rep_C, rep_A, rep_B], tau, tau_prime, device)
        assert alpha_A.shape == (B, B, B)
        rep_A_live = F.normalize(model_A(batch, projection=True), dim=-1)
        loss_A = muscle_loss([rep_A_live, rep_B, rep_C], alpha_A, tau, device)
        optimizer_A.zero_grad(), loss_A.backward(), optimizer_A.step()
        rep_B_live = F.normalize(model_B(batch, projection=True), dim=-1)
        loss_B = muscle_loss([rep_B_live, rep_A, rep_C], alpha_B, tau, device)
        optimizer_B.zero_grad(), loss_B.backward(), optimizer_B.step()
        rep_C_live = F.normalize(model_C(batch, projection=True), dim=-1)
        loss_C = muscle_loss([rep_C_live, rep_A, rep_B], alpha_C, tau, device)
        optimizer_C.zero_grad(), loss_C.backward(), optimizer_C.step()
        losses.append([loss_A.item(), loss_B.item(), loss_C.item()])
    assert all(last < first / 2 for first, last in zip(losses[0], losses[-1], strict=True))


@pytest.mark.parametrize("others", [1, 2, 3])
def test_both_calls_have_one_value_and_one_gradient(others):
    """Before ``normalize``, as the README's cosine similarities and the library's products differ
    only along a row.
    """
    raw = unit(5, 7) * 3
    peers = [unit(5, 7, seed=1 + k) for k in range(others)]
    found = []
    for call in (
        lambda z: muscle_loss(
            [z, *peers], compute_alpha([z.detach(), *peers], 0.2, 0.15, "cpu"), 0.2, "cpu"
        ),
        lambda z: muscle_loss(z, peers, 0.2, 0.15),
    ):
        leaf = raw.clone().requires_grad_()
        loss = call(F.normalize(leaf, dim=-1))
        loss.backward()
        found.append((loss.detach(), leaf.grad))
    assert_close(found[0], found[1])


def test_alpha_is_of_the_pairs_without_the_anchor():
    """The README's invariants: nothing of the anchor is in it, and with a single other there is no
    pair.
    """
    a, b, c = (unit(4, 6, seed=seed) for seed in range(3))
    alpha = compute_alpha([a, b, c], 0.2, 0.15, "cpu")
    assert_close(alpha[2, 1, 3], -(1 / 0.15 - 1 / 0.2) * (b[1] @ c[3]))
    assert torch.equal(alpha, compute_alpha([c, b, c], 0.2, 0.15, "cpu"))
    assert not compute_alpha([a, b], 0.2, 0.15, "cpu").any()


def test_a_table_of_other_members_is_refused():
    a, b, c = (unit(4, 6, seed=seed) for seed in range(3))
    with pytest.raises(
        ValueError,
        match=r"alpha: compute_alpha gives a table of \(4, 4, 4\) for 3 members, got one of \(4, 4\)",
    ):
        muscle_loss([a, b, c], compute_alpha([a, b], 0.2, 0.15), 0.2, "cpu")
