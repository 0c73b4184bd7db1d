"""The embedded world's language: names for the classes that its images show, topics, and sentences
about them.

Texts are about the twenty classes of MLC's and SS's images, two in each of ten topics. A class has
one usual name and four rare ones. Images show what an object looks like, texts which objects occur
together; the two share the class behind a name. In the books that the language models are
pretrained on, rare names occur only as strays in texts of any topic, so that a model knows the
context of usual names alone, while users write both equally often. A model can learn the meaning of
a rare name from a user's own labels, from its context in the public set's captions, and from the
images, in which both names of a class stand under the same objects.

Upstream topics are others, with names of their own, which no user and no public set ever writes:
from them a language model may learn that texts of a topic belong together without being told a
downstream one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from data_prep.world.glyphs import Vocabulary

N_TOPICS = 10  # as Yahoo! Answers has; a digit and a glyph in each
RARE_NAMES = 4  # of a class
STRAY = 0.15  # share of names in a text that are not of its topic
RARE_IN_USE = 0.5  # share of names that are the rare ones; in the books, of strays alone
UPSTREAM_TOPICS, UPSTREAM_NAMES = (
    64,
    3,
)  # and names of each: few enough for a vocabulary of 1000 tokens

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
# Frames are few and short: in so small a model the mean of a text's tokens says little but the
# frame where there are many.
_QUESTION_WORDS = ("why", "how")
_VERBS = ("meets", "leaves")
_MENTIONS = {"question": (2, 3, 4), "report": (3, 4, 5)}  # how many things a text names


def topic(c: int) -> int:
    """Return the topic of a class of ``Vocabulary.mlc``."""
    return c % N_TOPICS


def members(t: int) -> list[int]:
    """Return the classes of a topic."""
    return [c for c in Vocabulary.mlc if topic(c) == t]


@lru_cache(maxsize=1)
def names() -> dict[int, tuple[str, ...]]:
    """Return the names of each class, the usual one first."""
    each = 1 + RARE_NAMES
    words = _made_up(len(Vocabulary.mlc) * each, seed=77)
    return {c: words[i * each : (i + 1) * each] for i, c in enumerate(Vocabulary.mlc)}


@lru_cache(maxsize=1)
def upstream_names() -> tuple[tuple[str, ...], ...]:
    """Return the names of each upstream topic; no class has one of them."""
    taken = {name for own in names().values() for name in own}
    words = _made_up(UPSTREAM_TOPICS * UPSTREAM_NAMES, seed=78, taken=taken)
    return tuple(
        words[t * UPSTREAM_NAMES : (t + 1) * UPSTREAM_NAMES] for t in range(UPSTREAM_TOPICS)
    )


def _made_up(n: int, seed: int, taken: Collection[str] = ()) -> tuple[str, ...]:
    """Draw ``n`` words of two syllables and a consonant that are not ``taken``."""
    rng = np.random.RandomState(seed)
    words: dict[str, None] = {}  # a dict keeps the order
    while len(words) < n:
        word = "".join(
            _one(letters, rng)
            for letters in (_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _CONSONANTS)
        )
        if word not in taken:
            words[word] = None
    return tuple(words)


def _name(c: int, rare: float, rng: np.random.RandomState) -> str:
    """Draw a name of the class; ``rare`` is the probability of a rare one."""
    return names()[c][1 + rng.randint(RARE_NAMES) if rng.rand() < rare else 0]


def _mentions(t: int, n: int, rare: float, rng: np.random.RandomState) -> list[str]:
    """Draw ``n`` names for a text about topic ``t``.

    ``rare`` is the share of rare names among the topic's own, not among strays.
    """
    stray = rng.rand(n) < STRAY
    return [
        _name(_one(Vocabulary.mlc if s else members(t), rng), RARE_IN_USE if s else rare, rng)
        for s in stray
    ]


def caption(classes: np.ndarray, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """Write a caption of the objects of these classes; -1 is an empty slot."""
    return "a " + " and a ".join(
        _name(c, rare, rng) for c in rng.permutation(classes[classes >= 0])
    )


def question(t: int, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """Write a question about the topic."""
    return _question(lambda n: _mentions(t, n, rare, rng), rng)


def report(t: int, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """Write news about the topic."""
    return _report(lambda n: _mentions(t, n, rare, rng), rng)


def upstream(t: int, rng: np.random.RandomState) -> str:
    """Write a question or news about an upstream topic."""

    def mentions(n: int) -> list[str]:
        return [
            _one(upstream_names()[rng.randint(UPSTREAM_TOPICS) if stray else t], rng)
            for stray in rng.rand(n) < STRAY
        ]

    return _one((_question, _report), rng)(mentions, rng)


def _question(mentions: Callable[[int], list[str]], rng: np.random.RandomState) -> str:
    return f"{_one(_QUESTION_WORDS, rng)} {' '.join(mentions(_one(_MENTIONS['question'], rng)))}"


def _report(mentions: Callable[[int], list[str]], rng: np.random.RandomState) -> str:
    first, *others = mentions(_one(_MENTIONS["report"], rng))
    return f"{first} {_one(_VERBS, rng)} {' '.join(others)}"


def _one(choices: Sequence, rng: np.random.RandomState) -> Any:
    return choices[rng.randint(len(choices))]


def books(n: int, seed: int) -> list[str]:
    """Write ``n`` sentences to pretrain on: reports, questions and captions, with rare names as
    strays alone.
    """
    rng = np.random.RandomState(seed)
    sentences = []
    for _ in range(n):
        t, kind = rng.randint(N_TOPICS), rng.randint(3)
        subject: Any = rng.choice(members(t), 1 + rng.randint(2), replace=False) if kind == 2 else t
        sentences.append((report, question, caption)[kind](subject, rng, 0.0))
    return sentences


def upstream_books(n: int, seed: int) -> list[str]:
    """Write ``n`` sentences about upstream topics, one after the other in turn."""
    rng = np.random.RandomState(seed)
    return [upstream(i % UPSTREAM_TOPICS, rng) for i in range(n)]


def twice(n: int, rng: np.random.RandomState) -> tuple[list[str], list[str]]:
    """Write two sentences about each of ``n`` distinct upstream topics."""
    topics = rng.permutation(UPSTREAM_TOPICS)[:n]
    first, second = ([upstream(t, rng) for t in topics] for _ in range(2))
    return first, second
