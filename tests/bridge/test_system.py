"""A run of the bridge is one of FedMuscle's, and ends with heads in the place of its users'
metrics.
"""

import pandas as pd
import pytest

from fedmuscle_lib import load_user, run
from fedmuscle_lib.bridge.heads import HEADS, evaluate
from fedmuscle_lib.bridge.system import SYSTEM, TABLES, Settings
from fedmuscle_lib.fedmuscle.build import local_data
from fedmuscle_lib.runs import named
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.settings import parse

TAILED = {
    "users": (1, 5, 6),
    "rounds": 2,
    "imbalance": 0.05,
    "train_samples": {"IC10": 300, "IC100": 600},
}


@pytest.fixture
def bridged(settings):
    return lambda **given: Settings(**settings(**TAILED | given).model_dump())


@pytest.mark.slow
def test_its_users_are_those_of_fedmuscle_as_they_are_or_saved(
    settings, bridged, store, small_world, tmp_path
):
    fedmuscle = settings(**TAILED)
    history, theirs = (
        run(bridged(), progress=str, store=store),
        run(fedmuscle, progress=str, store=store, save_models=tmp_path),
    )
    rows = history.metrics
    assert list(rows) == list(TABLES["metrics"]) and rows["round"].eq(2).all()
    assert rows.user.unique().tolist() == [5, 6] and rows["head"].unique().tolist() == list(HEADS)
    own = rows[(rows["head"] == "own") & (rows.group == "all")].set_index("user").value
    assert own.to_dict() == theirs.final().set_index("user").value[[5, 6]].to_dict()
    pd.testing.assert_frame_equal(history.losses, theirs.losses, check_exact=True)
    saved = load_user(tmp_path / "user_6", small_world / "models/vit-tiny")
    train, test, _ = local_data(fedmuscle, fedmuscle.members[-1], saved.encoding)
    found = pd.DataFrame(evaluate(saved.model, train, test, 10))
    pd.testing.assert_frame_equal(found, rows[rows.user == 6][list(found)].reset_index(drop=True))


def test_groups_are_parts_of_the_whole(bridged, store):
    rows = run(
        bridged(algorithm="local", users=(5, 6), others=1, rounds=1), progress=str, store=store
    ).metrics
    for _, own in rows.groupby(["user", "head"]):
        own = own.set_index("group")
        parts = own.drop(index="all")
        assert (
            parts[["classes", "samples", "tested"]].sum().tolist()
            == own.loc["all", ["classes", "samples", "tested"]].tolist()
        )
        assert (parts.value * parts.tested).sum() == pytest.approx(
            own.value["all"] * own.tested["all"]
        )
    sizes = rows[rows.user == 6].drop_duplicates("group").set_index("group")
    assert sizes.samples.to_dict() == {
        "all": 98,
        "head": 77,
        "middle": 16,
        "tail": 5,
    }  # 30 21 15 11, 7 5 4, 2 2 1
    assert SYSTEM.per_sample(bridged(), rows).tolist() == pytest.approx(
        (100 / rows.tested).tolist()
    )


@pytest.mark.slow
def test_it_is_resumed_to_the_bit_after_the_heads(bridged, cut_off_and_resumed):
    cut_off_and_resumed(bridged(users=(5, 6), others=1), 2)


def test_it_has_an_address_of_its_own(settings, bridged):
    assert address_of(bridged()) != address_of(settings(**TAILED))
    assert address_of(bridged()) != address_of(bridged(imbalance=0.1))
    assert named("bridge") is SYSTEM


def test_a_federation_without_classes_is_refused():
    with pytest.raises(ValueError, match="users: none of them has one label a sample"):
        parse(Settings, {"users": (1, 2), "others": 1})
