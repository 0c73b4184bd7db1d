"""The embedded world's language: names for what its pictures show, topics, and the sentences that its people write.

What people write about are the twenty classes of MLC's and SS's pictures, two in each of ten topics. A class has one usual name and some
rare ones. Pictures show what an object is, texts say what it has to do with others; what the two have in common is the class behind a
name. The books that the language models are pretrained on mention rare names in passing, out of place, so that a model knows
the company of usual names alone, while users write both alike. What a rare name means can be learned from a user's own labels, from the
company that it keeps in the captions of the public set, and from the pictures, in which it looks like what the usual name is written under.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from data_prep.world.glyphs import Vocabulary

N_TOPICS = 10  # as Yahoo! Answers has; a digit and a glyph in each
RARE_NAMES = 4  # of a class
STRAY = 0.15  # share of names in a text that are not of its topic
RARE_IN_USE = 0.5  # share of names that are the rare ones; in the books, of strays alone

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
# Frames are few and short: in so small a model the mean of a text's tokens says little but the frame where there are many.
_QUESTION_WORDS = ("why", "how")
_VERBS = ("meets", "leaves")
_MENTIONS = {"question": (2, 3, 4), "report": (3, 4, 5)}  # how many things a text names


def topic(c: int) -> int:
    """Of a class of ``Vocabulary.mlc``."""
    return c % N_TOPICS


def members(t: int) -> list[int]:
    """The classes of a topic."""
    return [c for c in Vocabulary.mlc if topic(c) == t]


@lru_cache(maxsize=1)
def names() -> dict[int, tuple[str, ...]]:
    """Of each class, the usual one first: made-up words of two syllables and a consonant; the same on every machine."""
    rng = np.random.RandomState(77)
    words: dict[str, None] = {}  # a dict keeps the order
    while len(words) < len(Vocabulary.mlc) * (1 + RARE_NAMES):
        words["".join(_one(letters, rng) for letters in (_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _CONSONANTS))] = None
    each = 1 + RARE_NAMES
    return {c: tuple(words)[i * each : (i + 1) * each] for i, c in enumerate(Vocabulary.mlc)}


def _name(c: int, rare: float, rng: np.random.RandomState) -> str:
    """A name of the class, a rare one with this probability."""
    return names()[c][1 + rng.randint(RARE_NAMES) if rng.rand() < rare else 0]


def _mentions(t: int, n: int, rare: float, rng: np.random.RandomState) -> list[str]:
    """``n`` names of a text about the topic ``t``, of which this share of its own things' are rare ones; strays' always may be."""
    stray = rng.rand(n) < STRAY
    return [_name(_one(Vocabulary.mlc if s else members(t), rng), RARE_IN_USE if s else rare, rng) for s in stray]


def caption(classes: np.ndarray, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """What a person says who sees these objects, -1 for none."""
    return "a " + " and a ".join(_name(c, rare, rng) for c in rng.permutation(classes[classes >= 0]))


def question(t: int, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """A question about the topic."""
    return f"{_one(_QUESTION_WORDS, rng)} {' '.join(_mentions(t, _one(_MENTIONS['question'], rng), rare, rng))}"


def report(t: int, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """News of the topic."""
    first, *others = _mentions(t, _one(_MENTIONS["report"], rng), rare, rng)
    return f"{first} {_one(_VERBS, rng)} {' '.join(others)}"


def _one(choices: Sequence, rng: np.random.RandomState) -> Any:
    return choices[rng.randint(len(choices))]


def books(n: int, seed: int) -> list[str]:
    """``n`` sentences to pretrain on: reports, questions and captions of the past, to which rare names are strange."""
    rng = np.random.RandomState(seed)
    sentences = []
    for _ in range(n):
        t, kind = rng.randint(N_TOPICS), rng.randint(3)
        subject = rng.choice(members(t), 1 + rng.randint(2), replace=False) if kind == 2 else t
        sentences.append((report, question, caption)[kind](subject, rng, 0.0))
    return sentences
