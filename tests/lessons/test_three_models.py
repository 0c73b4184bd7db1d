"""Lesson 2: it runs, what its text claims is so, and its answers follow from first principles."""

import math
from itertools import product

import nbformat
import numpy as np
import pytest
import torch
from lesson import LESSONS, ROOT, assert_answers, assert_shows_what_it_kept, by_name
from scipy.special import ive

from fedmuscle_lib.muscle.reference import dense_log_alpha

LESSON = LESSONS / "2_three_models.ipynb"
MEASURED = """
import json
print(json.dumps({
    "ends": [descend(0.5), descend(1.0)],
    "lowest": [[around[dog_loss(around, bench, gamma).argmin()].item() for gamma in (1.0, 0.0)] for bench in (-40.0, 60.0)],
}))
"""
MOVED = "with_sliders(dog=100.0, bench=170.0)"
DEGREES = np.radians([[90, 50, -20], [100, 45, -20], [84, 58, -40]])
Z = np.stack([np.cos(DEGREES), np.sin(DEGREES)], axis=-1)  # (3 models, 3 images, 2)


def test_the_lesson_executes_and_shows_what_it_kept(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


@pytest.mark.slow
def test_the_sliders_leave_nothing_behind_and_move_the_picture_where_there_is_a_frontend(
    tmp_path, monkeypatch
):
    import papermill  # seconds

    notebook = nbformat.read(LESSON, as_version=4)
    assert by_name(notebook)["slider"].outputs == [] and "widgets" not in notebook.metadata
    last = [cell.id for cell in notebook.cells].index("slider")
    notebook.cells = [*notebook.cells[: last + 1], nbformat.v4.new_code_cell(MOVED)]
    nbformat.write(notebook, tmp_path / LESSON.name)
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("JPY_SESSION_NAME", LESSON.name)  # as JupyterLab's server does
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own draws into the notebook
    live = papermill.execute_notebook(
        tmp_path / LESSON.name, None, cwd=tmp_path / "run", progress_bar=False
    )
    (shown,) = by_name(live)["slider"].outputs
    assert "application/vnd.jupyter.widget-view+json" in shown.data
    assert [
        output.output_type
        for output in live.cells[-1].outputs
        if "image/png" in output.get("data", {})
    ] == ["display_data"]


def log_mean_exp(length, d):
    """Logarithm, up to a constant, of the mean of exp(u . v) over unit vectors u in d dimensions;
    |v| = length.
    """
    order = d / 2 - 1
    return math.log(ive(order, length)) + length - order * math.log(length)


# --- the answers


def muscle(z, i, tau, gamma):
    """Equation (3) for three models and one anchor row, with model 1 as the anchor."""
    b = z.shape[1]
    log_terms = {
        (j, k): z[0, i] @ (z[1, j] + z[2, k]) / tau - gamma * z[1, j] @ z[2, k]
        for j, k in product(range(b), repeat=2)
    }
    return math.log(sum(math.exp(term) for term in log_terms.values())) - log_terms[i, i]


def where_the_dog_ends(gamma):
    """Degrees with the lowest loss, by trying all."""

    def lossless(degree):
        moved = Z.copy()
        moved[0, 0] = math.cos(math.radians(degree)), math.sin(math.radians(degree))
        return muscle(moved, 0, 1, gamma)

    return min(range(360), key=lossless)


def alphas_that_change():
    def alphas(z):
        return np.exp(-z[1] @ z[2].T)

    moved = [Z.copy(), Z.copy()]
    moved[0][0, 0], moved[1][2, 2] = (-1, 0), (0, 1)
    return np.array([(~np.isclose(alphas(Z), alphas(one))).sum() for one in moved])


def compared_by_alpha_b():
    """The encoders whose vectors move the README's alpha with B at index 0."""
    draws = torch.Generator().manual_seed(0)
    rep = {name: torch.randn(4, 8, generator=draws) for name in "abc"}

    def alpha_b(rep):
        return dense_log_alpha([rep["b"], rep["a"], rep["c"]], 0.2, 0.15)

    return "".join(
        name
        for name in "abc"
        if not torch.allclose(
            alpha_b(rep), alpha_b(rep | {name: torch.randn(4, 8, generator=draws)})
        )
    )


def test_the_answers_follow_from_first_principles(measured, capsys):
    ends = np.array([where_the_dog_ends(gamma) for gamma in (1, 0)])
    known = {
        "angle where alpha is 1": min(
            range(181), key=lambda degree: abs(math.exp(-math.cos(math.radians(degree))) - 1)
        ),
        "alpha of dog and bench": math.exp(-math.cos(DEGREES[1, 0] - DEGREES[2, 2])),
        "alphas that change": alphas_that_change(),
        "Muscle loss of three orthogonal images": muscle(np.stack([np.eye(3)] * 3), 0, 1, 1),
        "where the dog ends": ends,
        "tau' by equation (22)": 1 / (1 / 0.2 + 1 / 0.2**2),
        "dimensions of tau' = 0.15": min(
            range(1, 257), key=lambda d: abs(1 / 0.2 + 1 / (d * 0.2**2) - 1 / 0.15)
        ),
        "what alpha_B compares": compared_by_alpha_b(),
    }
    assert_answers(LESSON, known, capsys, near=1e-5)
    assert measured["ends"] == [[132, 58, -65], [142, 48, -70]] and ends.tolist() == [132, 142]
    assert measured["lowest"][0] == pytest.approx(ends, abs=1)
