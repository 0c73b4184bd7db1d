"""Properties of settings, draws of peers and epochs, for any values."""

from collections import Counter
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuscle_lib import Settings
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.runs.address import question_of

GIVEN = {
    "algorithm": st.sampled_from(("fedmuscle", "local", "self", "feddf", "sage")),
    "public": st.sampled_from(("voc", "coco", "cifar100")),
    "seed": st.integers(0, 2**53),
    "rounds": st.integers(1, 300),
    "others": st.integers(1, 5),
    "lr": (
        st.floats(1e-6, 1)
        | st.fixed_dictionaries({"default": st.floats(1e-6, 1), "MLC": st.floats(1e-6, 1)})
    ),
    "epochs": st.none() | st.integers(0, 500),
    "tau": st.floats(0.16, 100),
    "head_on": st.sampled_from(("features", "representation")),
    "users": st.just((1, 2, 3, 4, 5, 6)) | st.none(),
}
some_settings = st.fixed_dictionaries({}, optional=GIVEN).map(lambda given: Settings(**given))


@given(some_settings)
def test_settings_go_to_json_and_back_and_equal_settings_have_one_address(settings):
    again = Settings.model_validate_json(settings.model_dump_json())
    assert again == settings and question_of(again) == question_of(settings)


@given(some_settings, st.integers(0, 2**53))
def test_another_seed_is_another_address(settings, seed):
    other = settings.model_copy(update={"seed": seed})
    assert (question_of(other) == question_of(settings)) == (seed == settings.seed)


@given(st.integers(2, 9), st.data())
def test_drawn_peers_are_others_each_once_and_as_many_as_asked(n, data):
    users, m = list(range(1, n + 1)), data.draw(st.integers(1, n - 1))
    server = Server(users, m, 8, (data.draw(st.integers(0, 2**32)),))
    user, round, epoch = (
        data.draw(strategy)
        for strategy in (st.sampled_from(users), st.integers(0, 500), st.integers(0, 5))
    )
    drawn = server.draw_others(user, round, epoch)
    assert len(drawn) == len(set(drawn)) == m and set(drawn) <= set(users) - {user}
    assert drawn == server.draw_others(user, round, epoch)


@pytest.mark.parametrize(("n", "m"), [(4, 1), (5, 2), (6, 3)])
def test_every_set_of_peers_is_drawn_equally_often(n, m):
    """Chi squared over 600 rounds, at four standard deviations; the draws are those of seed 0, so
    that the test can't fail by chance.
    """
    server = Server(list(range(n)), m, 8, (0,))
    counts = Counter(frozenset(server.draw_others(0, round, 0)) for round in range(600))
    assert len({server.draw_others(0, 0, epoch) for epoch in range(20)}) > 1
    cells = comb(n - 1, m)
    expected = 600 / cells
    chi_squared = (
        sum((counts[each] - expected) ** 2 / expected for each in counts)
        + (cells - len(counts)) * expected
    )
    assert chi_squared < cells - 1 + 4 * (2 * (cells - 1)) ** 0.5
