"""Evaluation of frozen checkpoints: few-shot accuracy on images, a linear classifier on texts.

For real data these are CIFAR-100 and AG's News, for the embedded world their analogues: the 100
classes and the ten topics of its users, on the validation split. Each figure is a mean over
training sets that are drawn as a user's are, from the pools of all users, and tested on one set.
Features are those that a user's model would start from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import Tensor

from data_prep.io.entry import SourceError
from data_prep.pretrain.wheel_checkpoints import Checkpoint
from fedmuscle_lib import models
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.encodings import Pixels, Tokens
from fedmuscle_lib.data.samples import Samples, draw_local
from fedmuscle_lib.models import architecture_of, load_tokenizer, untrained
from fedmuscle_lib.models.class_means import draws

IMAGES, TEXTS, QUESTIONS = "IC/CIFAR100", "TC/ag_news", "TC/yahoo_qa"
_PREPARED_BY = {IMAGES: "cifar100", TEXTS: "ag-news"}
_CLASSES = {IMAGES: 100, TEXTS: 4, QUESTIONS: 10}
TRAINING_TEXTS = 100
LONGEST = 128  # tokens of a text
_SIDE = 32  # pixels of the embedded world's images


def data_of(chosen: Sequence[Checkpoint], data_dir: Path) -> None:
    """Raise SourceError if the data that :func:`measure` needs are not prepared."""
    for folder in {TEXTS if checkpoint.vocabulary else IMAGES for checkpoint in chosen}:
        prepared(data_dir, folder)


def prepared(data_dir: Path, folder: str) -> None:
    """Raise SourceError if the data set in ``folder`` is not prepared."""
    for split in ("train", "test"):
        _users_files(data_dir, folder, split)


def measure(
    chosen: Sequence[Checkpoint],
    models_path: Path,
    data_dir: Path,
    side: int,
    tests: int,
    say: Callable[[str], None],
) -> None:
    """Print what each checkpoint is worth. ``side`` and ``tests`` are :func:`few_shot`'s."""
    texts = f"AG's News, {TRAINING_TEXTS} texts"
    for checkpoint in chosen:
        path = models_path / checkpoint.name
        if checkpoint.vocabulary:
            say(f"{checkpoint.name}: {texts}: {linear_on_texts(path, data_dir):.1f} %")
        else:
            say(
                f"{checkpoint.name}: CIFAR-100 at {side} px,"
                f" {listed(few_shot(path, data_dir, side, tests))}"
            )
    if any(checkpoint.vocabulary for checkpoint in chosen):
        say(f"TF-IDF: {texts}: {tfidf_on_texts(data_dir):.1f} %")


def measure_world(models_path: Path, data_dir: Path, say: Callable[[str], None]) -> None:
    """Print what each checkpoint below ``models_path`` is worth in the embedded world; raises
    OSError if none can be read.
    """
    folders = sorted(config.parent for config in models_path.glob("*/config.json"))
    if not folders:
        raise FileNotFoundError(
            f"{models_path}: holds no checkpoints; `python -m data_prep mini-backbones` makes them"
        )
    texts = f"ten topics, {TRAINING_TEXTS} questions"
    for path in folders:
        if architecture_of(path).reads == "texts":
            say(f"{path.name}: {texts}: {linear_on_texts(path, data_dir, QUESTIONS, 'val'):.1f} %")
        else:
            say(f"{path.name}: 100 classes, {listed(few_shot(path, data_dir, _SIDE, split='val'))}")
    say(f"TF-IDF: {texts}: {tfidf_on_texts(data_dir, QUESTIONS, 'val'):.1f} %")


def listed(accuracy: Mapping[Any, float]) -> str:
    """Return few-shot accuracy as text."""
    return ", ".join(f"{shots}-shot {value:.1f} %" for shots, value in accuracy.items())


def _users_files(data_dir: Path, folder: str, split: str) -> list[Path]:
    """Return the users' files of a data set; raises as :func:`prepared`."""
    found = sorted((data_dir / folder / split).glob("client_*.pkl"))
    if not found:
        raise SourceError(
            f"{data_dir / folder}: not prepared, and --check measures on it; run `python -m"
            f" data_prep {_PREPARED_BY.get(folder, 'mini')}`"
        )
    return found


def few_shot(
    checkpoint: Path, data_dir: Path, side: int, tests: int = 1500, split: str = "test"
) -> dict[int, float]:
    """Return accuracy in per cent on 100 classes by the number of training images a class, 1 and 5,
    of the nearest class mean.

    Features are pooled, centred on the training set's mean, and of unit norm.

    Args:
        side: in pixels, to which images are enlarged.
        tests: number of test images, drawn from the users' sets of the split; all, if these have
            fewer.
        split: "test", or "val" for what informs a choice.
    """
    pool, test = (
        Samples(torch.cat(images), labels)
        for images, labels in (_users(data_dir, IMAGES, part) for part in ("train", split))
    )
    test = draw_local(test, min(tests, len(test)), "test")
    pool, test = (_pooled(checkpoint, samples, side) for samples in (pool, test))
    return {shots: models.few_shot(pool, test, shots * _CLASSES[IMAGES]) for shots in (1, 5)}


def linear_on_texts(
    checkpoint: Path, data_dir: Path, folder: str = TEXTS, split: str = "test"
) -> float:
    """Return accuracy in per cent of a logistic regression on the mean token of 100 training
    texts.
    """
    pool, test = (_encoded(checkpoint, data_dir, folder, part) for part in ("train", split))
    return _regression(
        pool.inputs.numpy(),
        pool.targets,
        test.inputs.numpy(),
        test.targets,
        LogisticRegression(max_iter=1000),
    )


def tfidf_on_texts(data_dir: Path, folder: str = TEXTS, split: str = "test") -> float:
    """Return the same of a logistic regression on the frequencies of words (TF-IDF)."""
    (texts, labels), (test_texts, test_labels) = (
        _texts(data_dir, folder, part) for part in ("train", split)
    )
    classifier = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    return _regression(np.array(texts, object), labels, test_texts, test_labels, classifier)


def _regression(
    inputs: np.ndarray, labels: Tensor, test_inputs: Any, test_labels: Tensor, classifier: Any
) -> float:
    """Return the mean accuracy of the classifier over draws of training sets."""
    rows = [
        draw.inputs.numpy()
        for draw in draws(Samples(torch.arange(len(labels)), labels), TRAINING_TEXTS)
    ]
    scores = [
        classifier.fit(inputs[own], labels.numpy()[own]).score(test_inputs, test_labels.numpy())
        for own in rows
    ]
    return 100 * sum(scores) / len(scores)


@torch.inference_mode()
def _pooled(checkpoint: Path, images: Samples, side: int) -> Samples:
    """Features of the images, and their labels."""
    model, pixels = untrained(checkpoint), Pixels(side)
    return Samples(
        torch.cat([model.features(pixels.resize(part)) for part in images.inputs.split(64)]),
        images.targets,
    )


@torch.inference_mode()
def _encoded(checkpoint: Path, data_dir: Path, folder: str, split: str) -> Samples:
    """Features and labels of the users' texts."""
    texts, labels = _texts(data_dir, folder, split)
    model = untrained(checkpoint)
    encoding = Tokens(
        load_tokenizer(checkpoint), min(LONGEST, model.backbone.config.max_position_embeddings)
    )
    order = sorted(
        range(len(texts)), key=lambda row: len(texts[row])
    )  # texts of a length together: padding costs time
    features = torch.empty(len(texts), model.backbone.config.hidden_size)
    for rows in torch.tensor(order).split(32):
        features[rows] = model.features(encoding.encode([texts[row] for row in rows.tolist()]))
    return Samples(features, labels)


def _users(data_dir: Path, folder: str, split: str) -> tuple[list, Tensor]:
    """The users' images, a tensor for each user, or texts, a list for each; and the labels of
    all.
    """
    key = "data" if folder == IMAGES else "texts"
    files = [Pickled(path, key, "labels") for path in _users_files(data_dir, folder, split)]
    inputs = [file.images() if folder == IMAGES else file.texts() for file in files]
    labels = [
        file.labels(len(own), _CLASSES[folder], folder)
        for file, own in zip(files, inputs, strict=True)
    ]
    return inputs, torch.cat(labels)


def _texts(data_dir: Path, folder: str, split: str) -> tuple[list[str], Tensor]:
    texts, labels = _users(data_dir, folder, split)
    return list(chain(*texts)), labels
