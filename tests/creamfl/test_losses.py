"""The losses, by hand and by their definitions."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss, normalize, softplus

from fedmuscle_lib.creamfl.algorithms import get
from fedmuscle_lib.creamfl.algorithms.creamfl_muscle import members
from fedmuscle_lib.creamfl.losses import (
    ClassHead,
    PairHead,
    global_local,
    inter_modal,
    intra_modal,
)
from fedmuscle_lib.muscle import muscle_loss

B, D = 6, 5


def units(*shape: int, seed: int = 0) -> torch.Tensor:
    return normalize(
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64),
        dim=-1,
    )


def algorithm(name: str, **options: float):
    return get(name)(SimpleNamespace(own_options=options))


def test_the_soft_contrast_is_a_sum_over_all_pairs_and_both_directions():
    head, images, texts = PairHead(), torch.eye(2), torch.eye(2)
    apart = 15 - 15 * math.sqrt(2)
    by_hand = 2 * (2 * softplus(torch.tensor(-2 * 15.0)) + 2 * softplus(torch.tensor(2 * apart)))
    assert head(images, texts).item() == pytest.approx(by_hand.item())
    assert head(images, texts.flip(0)).item() > 100


def test_the_class_loss_has_a_margin_and_clips_class_weights():
    head = ClassHead(2, 2)
    head.weight.data = torch.tensor([[1.0, -3.0], [-2.0, 1.0]])
    z, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    own = cross_entropy(torch.tensor([[128.0 - 4, -256.0]]), labels)
    of_weights = cross_entropy(torch.eye(2), torch.arange(2))  # what is below 0 counts as 0
    assert head(z, labels).item() == pytest.approx((own + 0.5 * of_weights).item())


def test_the_inter_modal_contrast_is_over_all_public_pairs():
    z, others, rows = torch.eye(3)[:1], torch.eye(3), torch.tensor([0])
    assert inter_modal(z, others, rows, 0.5).item() == pytest.approx(-2 + math.log(math.exp(2) + 2))
    assert inter_modal(z, others, torch.tensor([1]), 0.5).item() == pytest.approx(
        math.log(math.exp(2) + 2)
    )


def test_the_intra_modal_contrast_is_between_the_server_and_the_client_before():
    z = torch.eye(2)[:1]
    assert intra_modal(z, z, torch.eye(2)[1:], 0.5).item() == pytest.approx(
        math.log(1 + math.exp(-2))
    )
    assert intra_modal(z, z, z, 0.5).item() == pytest.approx(math.log(2))


def test_a_client_weighs_as_much_as_it_agrees_with_the_other_modality():
    """One client's rows are those of the server, the other's are another pair's."""
    others = torch.eye(2)
    good, bad = torch.eye(2), torch.eye(2).flip(0)
    share = 1 / (1 + math.exp(-1))  # softmax over two pairs of cosines 1 and 0
    torch.testing.assert_close(global_local([good, bad], others), share * good + (1 - share) * bad)


# --- the Muscle loss


@pytest.mark.parametrize("m", [1, 2, 3])
def test_pairwise_is_the_sum_of_info_nce(m):
    anchor, others = units(B, D), [units(B, D, seed=1 + k) for k in range(m)]
    alone = sum(cross_entropy(anchor @ other.T / 0.2, torch.arange(B)) for other in others)
    z = {"images": anchor}
    torch.testing.assert_close(algorithm("pairwise").muscle(z, others, 0.2, 0.15), alone)
    if m > 1:
        assert not torch.isclose(algorithm("creamfl_muscle").muscle(z, others, 0.2, 0.15), alone)


def test_creamfls_client_sums_inter_and_averages_intra_over_modalities():
    received = {"images": units(B, D, seed=1), "texts": units(B, D, seed=2)}
    before = {"images": units(B, D, seed=5), "texts": units(B, D, seed=6)}
    rows, own = (
        torch.tensor([4, 1, 3]),
        {
            "images": units(3, D, seed=4),
            "texts": units(3, D, seed=3),
        },
    )
    inter = inter_modal(own["images"], received["texts"], rows, 0.5) + inter_modal(
        own["texts"], received["images"], rows, 0.5
    )
    intra = [intra_modal(own[name], received[name][rows], before[name][rows], 0.5) for name in own]
    found = algorithm("creamfl").regularise(own, received, before, rows)
    torch.testing.assert_close(found, 0.5 * (inter + sum(intra) / 2))


@pytest.fixture
def second_pass():
    """A server whose embeddings of eight pairs are known, what three clients sent, and a batch of
    its second pass.
    """
    server = SimpleNamespace(models=dict.fromkeys(("images", "texts")), address=(0,))
    server.represent = lambda: {"images": units(8, D, seed=1), "texts": units(8, D, seed=2)}
    uploads = [
        {"images": units(8, D, seed=3)},
        {"images": units(8, D, seed=4), "texts": units(8, D, seed=5)},
        {"texts": units(8, D, seed=6)},
    ]
    rows = torch.tensor([6, 1, 3, 0])
    return server, uploads, rows, {"images": units(4, D, seed=7), "texts": units(4, D, seed=8)}


def distilled(server, uploads, rows, z):
    """By definition: clients are weighed by the server's other modality."""
    own = server.represent()
    images = global_local([uploads[0]["images"], uploads[1]["images"]], own["texts"])
    texts = global_local([uploads[1]["texts"], uploads[2]["texts"]], own["images"])
    return mse_loss(z["images"], images[rows]) + mse_loss(z["texts"], texts[rows])


def test_creamfls_server_distils_what_clients_sent(second_pass):
    server, uploads, rows, z = second_pass
    loss = algorithm("creamfl").server_loss(server, uploads, 0)
    torch.testing.assert_close(loss(z, rows, 0), 0.6 * distilled(*second_pass))


def test_the_muscle_server_aligns_each_modality_with_what_clients_sent(second_pass):
    server, uploads, rows, z = second_pass
    loss = algorithm("creamfl_muscle", others=4).server_loss(server, uploads, 0)
    sent = [matrix[rows] for upload in uploads for matrix in upload.values()]
    muscle = muscle_loss(z["images"], sent, 0.2, 0.15) + muscle_loss(z["texts"], sent, 0.2, 0.15)
    torch.testing.assert_close(loss(z, rows, 0), 0.6 * muscle)


def test_members_are_drawn_without_replacement_and_with_both_modalities():
    modalities = ["images"] * 9 + ["texts"]
    for address in range(50):
        drawn = members(modalities, 3, address)
        assert len(set(drawn)) == 3 and 9 in drawn and drawn == members(modalities, 3, address)
    assert sorted(members(modalities, 99, 0)) == list(range(10))
    assert len({tuple(members(modalities, 3, address)) for address in range(50)}) > 20
