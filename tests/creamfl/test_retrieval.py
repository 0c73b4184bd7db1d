"""Recall by hand, and chance."""

from __future__ import annotations

import pytest
import torch

from fedmuscle_lib.creamfl.retrieval import recalls

# Five images with two captions each, but the last with one: 5 x 9. The similarity of image i and
# caption j is [i, j].
IMAGE_OF = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4])
SIMILARITY = torch.tensor(
    [
        [9, 1, 0, 0, 0, 0, 0, 0, 0],  # found first
        [8, 0, 7, 1, 0, 0, 0, 0, 0],  # found second
        [0, 0, 9, 8, 1, 7, 0, 0, 0],  # third
        [9, 8, 7, 6, 5, 4, 1, 1, 0],  # seventh
        [1, 1, 1, 1, 1, 1, 1, 1, 1],  # as near as eight others: ninth
    ]
).float()
# Captions: ranks of their image in the column. 0: 9 behind another 9; 1: 1 behind 8 and 1; 2: 7
# behind 9 and 7; 3: 1 behind 8, 6 and 1; 4: 1 behind 5 and 1; 5: first; 6: as near as one other; 7:
# the same; 8: first.
I2T = {1: 1 / 5, 5: 3 / 5, 10: 5 / 5}
T2I = {1: 2 / 9, 2: 5 / 9, 3: 8 / 9, 5: 9 / 9}


def found(folds: int = 1, ks: tuple[int, ...] = (1, 5, 10)) -> dict:
    images, captions = SIMILARITY, torch.eye(9)
    return {
        (r.gallery, r.direction, r.k): r for r in recalls(images, captions, IMAGE_OF, folds, ks)
    }


def test_recall_on_five_images_with_several_captions():
    by = found(ks=(1, 2, 3, 5, 10))
    assert {k: by["whole", "i2t", k].value for k in I2T} == {
        k: pytest.approx(100 * share) for k, share in I2T.items()
    }
    assert {k: by["whole", "t2i", k].value for k in T2I} == {
        k: pytest.approx(100 * share) for k, share in T2I.items()
    }


def test_a_fold_ranks_its_own_rows_alone():
    """Images 0 to 2 with captions 0 to 5, where ranks are 0 1 2 and 0 0 1 1 0 0; images 3 and 4
    with the rest: 0 2 and 1 1 0.
    """
    by = found(folds=2, ks=(1, 2, 3))
    recall = {
        (direction, k): by["fold", direction, k].value / 100
        for direction in ("i2t", "t2i")
        for k in (1, 2)
    }
    assert recall == pytest.approx(
        {("i2t", 1): 5 / 12, ("i2t", 2): 7 / 12, ("t2i", 1): 1 / 2, ("t2i", 2): 1}
    )
    assert by["fold", "i2t", 1].chance == by["fold", "t2i", 1].chance == pytest.approx(100 * 5 / 12)


def test_chance_is_that_of_a_random_order():
    by = found()
    two, one = (
        1 - (7 / 9) * (6 / 8) * (5 / 7) * (4 / 6) * (3 / 5),
        5 / 9,
    )  # none of two, or of one, among the first five of nine
    assert by["whole", "i2t", 5].chance == pytest.approx(100 * (4 * two + one) / 5)
    assert (
        by["whole", "t2i", 1].chance == pytest.approx(20) and by["whole", "t2i", 10].chance == 100
    )
    draws = torch.randn(4000, 5, 9, generator=torch.Generator().manual_seed(0))
    measured = [next(iter(recalls(one, torch.eye(9), IMAGE_OF, 1, (1,)))).value for one in draws]
    assert sum(measured) / len(measured) == pytest.approx(by["whole", "i2t", 1].chance, abs=1)


@pytest.mark.parametrize("value", [1.0, torch.nan])
def test_embeddings_that_are_all_alike_or_no_numbers_find_nothing(value):
    same = torch.full((5, 3), value), torch.full((9, 3), value)
    assert {r.value for r in recalls(*same, IMAGE_OF, 1, (1, 4))} == {0}
