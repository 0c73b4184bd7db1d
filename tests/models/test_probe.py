"""What needs no training of a backbone: the logistic probe on its features, and TF-IDF of texts."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedmuscle_lib import run
from fedmuscle_lib.data.encodings import NO_WORD, Words
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.settings import parse
from fedmuscle_lib.models import linear_probe
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.tasks import TASKS

TEXTS = [
    "The dog, the DOG chased a cat",
    "a cat sat",
    "dogs and cats and café",
    "no animal x here",
    "the cat",
    "a dog barked at 9",
]


def features(n, width=12, seed=0):
    return (
        torch.randn(n, width, generator=torch.Generator().manual_seed(seed))
        * torch.linspace(0.1, 30, width)
        + 5
    )


def by_sklearn(x, y):
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000, tol=1e-8)).fit(
        x.numpy(), y.numpy()
    )


def test_one_label_is_multinomial_logistic_regression():
    x, unseen, y = features(60), features(40, seed=1), torch.arange(60) % 10
    theirs = by_sklearn(x, y).predict_proba(unseen.numpy())
    ours = linear_probe(x, y, TASKS["IC10"].loss, 10)(unseen).softmax(1).detach()
    assert ours.numpy() == pytest.approx(theirs, abs=1e-3)


def test_several_labels_are_one_regression_a_class():
    x, unseen = features(60), features(40, seed=1)
    y = (
        torch.rand(60, 3, generator=torch.Generator().manual_seed(2))
        < torch.tensor([0.2, 0.5, 0.8])
    ).float()
    theirs = np.stack(
        [by_sklearn(x, y[:, k]).predict_proba(unseen.numpy())[:, 1] for k in range(3)], axis=1
    )
    ours = linear_probe(x, y, TASKS["MLC"].loss, 3)(unseen).sigmoid().detach()
    assert ours.numpy() == pytest.approx(theirs, abs=1e-3)


def test_the_probe_is_fitted_once_to_the_frozen_features_also_where_it_was_cut_off(
    settings, store, cut_off_and_resumed
):
    given = {"algorithm": "probe", "users": (6,), "train_samples": {"IC10": 100}}
    history = cut_off_and_resumed(settings(**given))
    assert history.metrics.value.nunique() == 1 and len(history.metrics) == 2 * 2
    (client,) = build(settings(**given | {"algorithm": "local"})).clients
    with torch.no_grad():
        seen, unseen = (
            client.model.features(samples.inputs) for samples in (client.train, client.evaluation)
        )
    layer = linear_probe(
        seen, client.train.targets, client.task.loss, client.task.n_outputs(client.classes)
    )
    expected = client.task.score(client.task.count(layer(unseen), client.evaluation.targets))
    assert history.metrics.value.iloc[0] == pytest.approx(expected, abs=1)
    assert history.losses.local.isna().all()
    other = run(
        settings(**given, head_on="representation"), store=store
    )  # where a head would read the projection
    assert other.final().value.tolist() == history.final().value.tolist()


def test_what_training_depends_on_is_not_in_the_probes_address(settings):
    addresses = {
        address_of(settings(algorithm="probe", users=(4, 6), **own))
        for own in (
            {},
            {"local_epochs": 7},
            {"epochs": 9},
            {"refit": 1},
            {"public": "coco"},
            {"tau": 0.3},
        )
    }
    assert len(addresses) == 1


@pytest.mark.parametrize(
    ("algorithm", "users", "message"),
    [
        ("probe", (6, 7), "users: probe does not serve user 7, who has SS"),
        ("head_only", (6, 11), "users: head_only does not serve user 11, who has TG"),
    ],
)
def test_users_without_such_a_head_are_refused(algorithm, users, message):
    with pytest.raises(ValueError, match=message):
        parse({"algorithm": algorithm, "setup": "setup2_generation", "users": users})


# --- texts by their words


def words(texts, labels):
    return Samples(Words().encode(texts), torch.tensor(labels))


def test_words_are_those_of_whole_texts_in_small_letters():
    first, second, *_ = Words().encode(TEXTS)
    assert first[1] == first[3] and (first != NO_WORD).sum() == 6  # "a" is none
    assert (second != NO_WORD).sum() == 2 and first[5] == second[0]
    assert (Words().encode(["word " * 500]) != NO_WORD).sum() == 500


def test_tfidf_is_that_of_the_texts():
    labels, unseen = [0, 1, 0, 1, 1, 0], ["the dog", "a cat here", "the animal", "barked café"]
    theirs = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(TEXTS, labels)
    for answer in range(2):
        targets = [answer] * len(unseen)
        reached = TASKS["TC"].by_words(words(TEXTS, labels), words(unseen, targets))
        assert reached == pytest.approx(100 * theirs.score(unseen, targets))
