"""The non-IID setting: users of one task divide a pool, anew for each seed."""

import pandas as pd
import pytest

from fedmuscle_lib import run
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.fedmuscle.ablations import only
from fedmuscle_lib.fedmuscle.build import local_data
from fedmuscle_lib.fedmuscle.setups import task_of
from fedmuscle_lib.fedmuscle.system import SYSTEM


@pytest.fixture
def noniid(settings):
    return lambda **given: settings(
        **({"setup": "setup_noniid", "users": None, "others": 3} | given)
    )


def samples(settings, users):
    """Training and test sets of users, by number."""
    return {
        user.number: local_data(settings, user, Pixels(32))[:2]
        for user in settings.members
        if user.number in users
    }


def images(part):
    return {image.numpy().tobytes() for image in part.inputs}


@pytest.mark.parametrize(
    "users", [(1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12)], ids=("IC100", "IC10", "ICF", "ICC")
)
def test_users_of_a_task_have_a_hundred_images_each_and_none_in_common(noniid, users):
    found = samples(noniid(), users)
    assert [len(train) for train, _ in found.values()] == [100] * 3
    everything = [image for parts in found.values() for part in parts for image in images(part)]
    assert len(set(everything)) == len(everything) == 300 + 3000, "the test pool is divided whole"


def test_each_user_has_classes_of_its_own(noniid):
    def shared(alpha):
        """Samples of a user of classes of which another has more, of all."""
        counts = [
            train.targets.bincount(minlength=101)
            for train, _ in samples(noniid(alpha=alpha), (7, 8, 9)).values()
        ]
        return 300 - sum(max(of_class).item() for of_class in zip(*counts, strict=True))

    assert shared(0.1) < 75 < shared(100)


def test_a_seed_divides_anew_and_who_takes_part_changes_nothing(noniid):
    whole, other, few = noniid(), noniid(seed=1), noniid(users=(1, 4, 7, 10))
    first, again, of_few = (samples(one, (4,))[4] for one in (whole, other, few))
    assert images(first[0]) == images(of_few[0]) and images(first[1]) == images(of_few[1])
    assert images(first[1]) != images(again[1])


def test_a_pool_that_is_too_small_is_named(noniid):
    with pytest.raises(
        DataError,
        match="user 4, .*IC/CIFAR10_pool/train/client_0.pkl: .* train_samples asks for fewer",
    ):
        samples(noniid(train_samples={"IC10": 401}), (4,))


def test_the_pool_and_its_sharers_are_in_the_address(noniid):
    key, pool = SYSTEM.key, "IC/FOOD101_pool"
    assert {f"{pool}/train/client_0", f"{pool}/test/client_0"} <= SYSTEM.inputs(noniid()).keys()
    assert [user["sharers"] for user in key(noniid())["users"]][::3] == [
        (1, 2, 3),
        (4, 5, 6),
        (7, 8, 9),
        (10, 11, 12),
    ]
    assert "sharers" not in key(noniid(setup="setup1"))["users"][0]
    assert key(noniid()) != key(noniid(alpha=1.0))


def test_an_own_folder_is_not_divided(noniid):
    own, sharing = noniid(own={4: {"folder": "mine"}}).members[3:5]
    assert task_of(own).folder == "mine" and own.sharers is None and sharing.sharers == (4, 5, 6)


@pytest.mark.parametrize(
    "algorithm",
    ["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("self", "head_only"))],
)
def test_a_user_alone_learns_the_same_whoever_takes_part(noniid, store, algorithm):
    few = {"algorithm": algorithm, "rounds": 1, "public_size": 32, "train_samples": {"IC10": 40}}
    alone, beside = (
        run(noniid(users=users, **few), progress=str, store=store) for users in ((6,), (4, 6))
    )
    pd.testing.assert_frame_equal(
        only(beside, (6,)).metrics.reset_index(drop=True), alone.metrics, check_exact=True
    )
    assert sum(alone.provenance["class_counts"]["6"]) == 40
