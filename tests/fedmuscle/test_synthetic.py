"""The synthetic public set beside the users' images."""

import pytest
import torch

from fedmuscle_lib.fedmuscle.synthetic import images, nearest, neighbours

TWO = {"users": (5, 6), "others": 1, "public_size": 40, "batch_size": 8}


def test_the_nearest_neighbour_of_a_copy_is_its_original_at_distance_0():
    known = torch.rand(9, 12, generator=torch.Generator().manual_seed(0))
    distance, which = nearest(known[[4, 2]], known)
    assert distance.tolist() == [0, 0] and which.tolist() == [4, 2]
    distance, which = nearest(known[:3], known, others=True)
    assert (distance > 0).all() and not (which == torch.arange(3)).any()
    brute = [min((known[i] - known[j]).norm().item() for j in range(9) if j != i) for i in range(3)]
    assert distance.tolist() == pytest.approx(brute)


def test_images_of_every_set_are_compared_with_each_users_own(settings):
    rows = neighbours(settings(**TWO), ["synthetic", "noise"])
    assert len(rows) == 2 * 2 * 3
    assert set(rows.images) == {"private", "synthetic", "noise"} and set(rows.space) == {
        "pixels",
        "features",
    }
    assert (rows.nearest > 0).all() and (rows.p5 <= rows.nearest).all()
    assert rows.set_index("images").n.to_dict() == {"private": 50, "synthetic": 50, "noise": 40}
    assert (
        rows[rows.images == "synthetic"].own.between(0, 100).all()
        and rows[rows.images != "synthetic"].own.isna().all()
    )
    pixels = rows[rows.space == "pixels"].pivot(index="user", columns="images", values="nearest")
    assert (pixels.noise > pixels.synthetic).all()


def test_each_user_has_the_images_that_were_made_of_its_own(settings):
    shown = list(images(settings(**TWO)))
    assert [user.number for user, *_ in shown] == [5, 6]
    for user, _, private, made in shown:
        assert private.shape[1:] == made.shape[1:] == (3, 32, 32)
        assert len(made) == 50, user.number
    with pytest.raises(ValueError, match="no synthetic images were made from those of user 7"):
        list(images(settings(setup="setup2", users=(7, 8), others=1)))
