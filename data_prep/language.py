"""The embedded world's language: names for what its pictures show, topics, and the sentences that its people write.

A class of objects has two names, a usual one and a rare one, and belongs to one of ten topics. Pictures show what an object is, texts
say what it has to do with others; what the two have in common is the class behind a name. The books that the language models
are pretrained on mention rare names in passing, out of place, so that a model knows the company of usual names alone, while users
write both alike. What a rare name means can be learned from a user's own labels, from the company that it keeps in the captions of the
public set, and from the pictures, in which it looks like what a usual name is written under.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from data_prep.glyphs import Vocabulary

N_TOPICS = 10  # as Yahoo! Answers has; a digit and ten of the IC100 classes in each
STRAY = 0.15  # share of names in a text that are not of its topic
RARE_IN_USE = 0.5  # share of names that are the rare ones; in the books, of strays alone

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
# Frames are few and short: in so small a model the mean of a text's tokens says little but the frame where there are many.
_QUESTION_WORDS = ("why", "how")
_VERBS = ("meets", "leaves")
_MENTIONS = {"question": (2, 3, 4), "report": (3, 4, 5)}  # how many things a text names


@dataclass(frozen=True)
class Lexicon:
    """Names of classes: ``usual[c]`` and ``rare[c]`` for the class ids 0-109 of ``data_prep.glyphs``."""

    usual: tuple[str, ...]
    rare: tuple[str, ...]

    def name(self, c: int, rare: float, rng: np.random.RandomState) -> str:
        """One of its names, the rare one with this probability."""
        return (self.rare if rng.rand() < rare else self.usual)[c]


def topic(c: int) -> int:
    """Of a class: digits stand in one topic each."""
    return c % N_TOPICS


def members(t: int) -> np.ndarray:
    """The classes of a topic."""
    return np.array([c for c in (*Vocabulary.ic100, *Vocabulary.digits) if topic(c) == t])


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """Made-up words of two syllables and a consonant; the same on every machine."""
    rng = np.random.RandomState(77)
    classes = (*Vocabulary.ic100, *Vocabulary.digits)
    words: dict[str, None] = {}  # a dict keeps the order
    while len(words) < 2 * len(classes):
        letters = [alphabet[rng.randint(len(alphabet))] for alphabet in (_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _CONSONANTS)]
        words["".join(letters)] = None
    names = tuple(words)
    return Lexicon(names[: len(classes)], names[len(classes) :])


def _mentions(t: int, n: int, rare: float, rng: np.random.RandomState) -> list[str]:
    """``n`` names of a text about the topic ``t``, of which this share of its own things' are rare ones; strays' always may be."""
    own, every = members(t), len(lexicon().usual)
    stray = rng.rand(n) < STRAY
    return [lexicon().name(rng.randint(every) if s else rng.choice(own), RARE_IN_USE if s else rare, rng) for s in stray]


def caption(classes: np.ndarray, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """What a person says who sees these objects, -1 for none."""
    return "a " + " and a ".join(lexicon().name(c, rare, rng) for c in rng.permutation(classes[classes >= 0]))


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
        subject = rng.choice(members(t), 1 + rng.randint(3), replace=False) if kind == 2 else t
        sentences.append((report, question, caption)[kind](subject, rng, 0.0))
    return sentences
