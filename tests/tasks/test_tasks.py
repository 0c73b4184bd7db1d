"""The users' tasks: what they refuse to read, and losses and metrics of answers known
beforehand.
"""

import math
from pathlib import Path

import pytest
import torch

from fedmuscle_lib.data.encodings import Pixels, Tokens
from fedmuscle_lib.tasks import TASKS
from fedmuscle_lib.tasks.segmentation import IGNORED
from fedmuscle_lib.tasks.text_generation import NO_TOKEN

# --- reading


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_task_on_texts_refuses_pixels_and_one_on_pictures_tokens(task):
    other = Pixels(32) if task.reads == "texts" else Tokens(None, 8)
    with pytest.raises(
        ValueError,
        match=(
            f"{task.name} is a task on {task.reads}; a model that reads {other.reads} can't do it"
        ),
    ):
        task.read(Path("nowhere"), 0, "train", other)


# --- metrics of one answer a sample


def scored(task, outputs, targets, parts=(1,)):
    """The metric from counts of parts of the evaluation set."""
    counts = [
        task.count(o, t)
        for o, t in zip(outputs.split(list(parts)), targets.split(list(parts)), strict=True)
    ]
    return task.score(sum(counts))


def one_hot(labels, classes):
    return torch.nn.functional.one_hot(torch.as_tensor(labels), classes).float()


@pytest.mark.parametrize("name", ["IC10", "TC"])
def test_accuracy_is_the_share_of_hits_however_the_set_is_split(name):
    outputs, targets = one_hot([0, 1, 2, 3, 4], 10), torch.tensor([0, 1, 2, 9, 9])
    for parts in ((5,), (2, 3), (1, 1, 1, 2)):
        assert scored(TASKS[name], outputs, targets, parts) == pytest.approx(60)


def test_micro_f1_pools_hits_and_misses_over_samples_and_classes():
    outputs = torch.tensor([[1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
    targets = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    assert scored(TASKS["MLC"], outputs, targets, (1, 1)) == pytest.approx(
        100 * 4 / 6
    )  # 2 hits, 1 false, 1 missed


# --- segmentation

SS = TASKS["SS"]


def as_outputs(classes, n):
    """Logits (b, n, h, w) that predict these classes of pixels (b, h, w)."""
    return 9 * one_hot(classes, n).permute(0, 3, 1, 2)


def test_miou_of_a_perfect_and_of_an_all_background_prediction():
    targets = torch.tensor([[[0, 0, 0, 1], [0, 0, 0, 2]]])
    assert scored(SS, as_outputs(targets, 4), targets) == pytest.approx(
        100
    )  # class 3 is nowhere, and counts nowhere
    # background: 6 of 8 pixels; classes 1 and 2: none
    assert scored(SS, as_outputs(torch.zeros_like(targets), 4), targets) == pytest.approx(
        100 * (6 / 8) / 3
    )


def test_a_class_that_is_predicted_but_absent_counts_as_a_miss():
    targets = torch.tensor([[[0, 0], [1, 1]]])
    predicted = torch.tensor([[[0, 2], [1, 1]]])
    assert scored(SS, as_outputs(predicted, 3), targets) == pytest.approx(100 * (1 / 2 + 1 + 0) / 3)


def test_miou_is_over_the_whole_set_and_not_a_mean_over_pictures():
    targets = torch.tensor([[[1, 1], [1, 1]], [[1, 0], [0, 0]]])
    predicted = torch.tensor([[[1, 1], [1, 1]], [[0, 0], [0, 0]]])
    whole = 100 * (4 / 5 + 3 / 4) / 2
    assert scored(SS, as_outputs(predicted, 2), targets, (1, 1)) == pytest.approx(whole)


def test_ignored_pixels_change_neither_loss_nor_metric():
    targets = torch.tensor([[[0, 1], [1, 0]]])
    predicted = torch.tensor([[[0, 1], [0, 0]]])
    half = targets.clone()
    half[0, 1] = IGNORED
    outputs = as_outputs(predicted, 2)
    assert scored(SS, outputs, half) == pytest.approx(100)
    expected = torch.nn.functional.cross_entropy(outputs[:, :, :1], targets[:, :1])
    torch.testing.assert_close(SS.loss(outputs, half), expected)
    assert SS.loss(outputs, torch.full_like(targets, IGNORED)).item() == 0
    assert SS.count(outputs, torch.full_like(targets, IGNORED)).sum() == 0


def test_coarse_outputs_are_enlarged_to_the_masks():
    targets = torch.tensor([[0, 0, 1, 1]] * 4)[None]
    assert scored(SS, as_outputs(torch.tensor([[[0, 1], [0, 1]]]), 2), targets) == pytest.approx(
        100
    )


def test_background_is_an_output_of_its_own():
    assert SS.n_outputs((3, 7)) == 3 and TASKS["MLC"].n_outputs((3, 7)) == 2


# --- generation

TG = TASKS["TG"]


def test_perplexity_of_chance_is_the_vocabulary():
    targets = torch.randint(0, 7, (3, 5), generator=torch.Generator().manual_seed(0))
    assert scored(TG, torch.zeros(3, 5, 7), targets, (2, 1)) == pytest.approx(7)
    assert TG.loss(torch.zeros(3, 5, 7), targets).item() == pytest.approx(math.log(7))


def test_a_token_is_predicted_from_those_before_it():
    targets = torch.tensor([[4, 2, 6, 1]])
    knowing = 50 * one_hot([[2, 6, 1, 0]], 7)  # after each token, the next
    assert scored(TG, knowing, targets) == pytest.approx(1)
    assert scored(TG, 50 * one_hot(targets, 7), targets) > 1e9


def test_what_follows_the_end_of_a_text_does_not_count():
    targets = torch.tensor([[4, 2, NO_TOKEN, NO_TOKEN]])
    outputs = torch.zeros(1, 4, 7)
    outputs[0, 1:] = 40 * torch.arange(7)
    assert scored(TG, outputs, targets) == pytest.approx(7)


# --- answers that look at nothing


def test_trivial_answers():
    majority = TASKS["IC10"].trivial(torch.tensor([4, 4, 2]), torch.tensor([4, 2, 2, 4, 4]))
    assert majority == pytest.approx(60)
    everything = TASKS["MLC"].trivial(
        torch.zeros(1, 4), torch.tensor([[1.0, 0, 0, 0], [1.0, 1.0, 0, 0]])
    )
    assert everything == pytest.approx(100 * 2 * 3 / (2 * 3 + 5))
    targets = torch.tensor([[[0, 0, 0, 1], [0, 0, IGNORED, 2]]])
    assert SS.trivial(targets, targets) == pytest.approx(
        scored(SS, as_outputs(torch.zeros_like(targets), 3), targets)
    )
    texts = torch.tensor([[9, 1, 1, 2, NO_TOKEN], [9, 1, 2, NO_TOKEN, NO_TOKEN]])
    # after the first: 1 three times, 2 twice, and 0 never, which counts as once
    assert TG.trivial(texts, texts) == pytest.approx(
        math.exp(-(3 * math.log(3 / 6) + 2 * math.log(2 / 6)) / 5)
    )


def test_trivial_answers_where_the_training_samples_say_nothing():
    """A draw of them may hold crowds alone, or texts of one token."""
    targets = torch.tensor([[[0, 1]]])
    assert SS.trivial(torch.full((1, 1, 2), IGNORED), targets) == pytest.approx(
        SS.trivial(targets, targets)
    )
    texts = torch.tensor([[9, 1, 2]])
    assert TG.trivial(torch.tensor([[9, NO_TOKEN]]), texts) == pytest.approx(
        3
    )  # 0, 1 and 2 are one as likely as another
