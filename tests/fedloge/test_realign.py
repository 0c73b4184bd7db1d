"""Realigned heads and masks."""

from __future__ import annotations

import torch

from fedmuscle_lib.fedloge.realign import global_realignment, masked


def heads() -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(0)
    return torch.randn(5, 8, generator=draws), torch.randn(5, 8, generator=draws)


def test_global_realignment_keeps_directions_and_equals_norms():
    shared, _ = heads()
    before = shared.clone()
    realigned = global_realignment(shared, 1.7)
    torch.testing.assert_close(realigned.norm(dim=1), torch.full((5,), 1.7))
    torch.testing.assert_close(torch.cosine_similarity(realigned, shared), torch.ones(5))
    assert torch.equal(shared, before)


def test_an_absent_class_never_wins_where_a_mask_of_rows_would_let_it():
    shared, _ = heads()
    present = torch.tensor([True, False, True, True, False])
    features = torch.randn(200, 8, generator=torch.Generator().manual_seed(1))  # negative ones, too
    rows_masked = shared.where(present[:, None], torch.tensor(-1e10))
    assert not present[(features @ rows_masked.T).argmax(1)].all()
    winners = masked(features @ shared.T, present).argmax(1)
    assert present[winners].all()
    for logits, winner in zip(features @ shared.T, winners, strict=True):
        assert logits[winner] == logits[present].max()
