"""The embedded world's language: names for what its pictures show, topics, and the sentences that its people write.

A class of objects has two names, a usual one and a rare one, and belongs to one of ten topics. Pictures show what an object is, texts
say what it has to do with others; what the two have in common is the class behind a name. The books that the language models
are pretrained on use rare names hardly ever, so that a model knows the company of usual names and not that of rare ones, while users
write both alike. What a rare name means can be learned from a user's own labels, from the company that it keeps in the captions of the
public set, and from the pictures, in which it looks like what a usual name is written under.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from data_prep.glyphs import Vocabulary

N_TOPICS = 10  # as Yahoo! Answers has; a digit and ten of the IC100 classes in each
STRAY = 0.15  # share of names in a text that are not of its topic
RARE_IN_BOOKS = 0.03  # share of names that are the rare ones
RARE_IN_USE = 0.5

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_VERBS = "finds holds moves wants breaks keeps follows needs covers leaves".split()
_QUESTIONS = (
    "why does my {} never work",
    "how do i clean a {}",
    "is the {} worth its price",
    "my {} fell on a {} what now",
    "which {} goes with a {}",
    "can a {} replace the {}",
    "what is older the {} the {} or the {}",
    "how far is a {} from a {} and a {}",
)
_CAPTIONS = {
    1: ("a {}", "one {} alone", "a large {} in front", "this is a {}"),
    2: ("a {} and a {}", "one {} beside a {}", "a {} near the {}"),
    3: ("a {} with a {} and a {}", "three things a {} a {} and a {}", "a {} between a {} and a {}"),
}


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
    """``n`` names of a text about the topic ``t``."""
    own, every = members(t), len(lexicon().usual)
    return [lexicon().name(rng.randint(every) if rng.rand() < STRAY else rng.choice(own), rare, rng) for _ in range(n)]


def caption(classes: np.ndarray, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """What a person says who sees these objects, -1 for none."""
    seen = [c for c in classes if c >= 0]
    templates = _CAPTIONS[len(seen)]
    return templates[rng.randint(len(templates))].format(*(lexicon().name(c, rare, rng) for c in rng.permutation(seen)))


def question(t: int, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """A question about the topic, which mentions one to three of its things."""
    template = _QUESTIONS[rng.randint(len(_QUESTIONS))]
    return template.format(*_mentions(t, template.count("{}"), rare, rng))


def report(t: int, rng: np.random.RandomState, rare: float = RARE_IN_USE) -> str:
    """News of the topic, which mention four of its things."""
    names = _mentions(t, 4, rare, rng)
    first, second = (_VERBS[rng.randint(len(_VERBS))] for _ in range(2))
    return f"the {names[0]} {first} the {names[1]} and the {names[2]} {second} the {names[3]}"


def books(n: int, seed: int) -> list[str]:
    """``n`` sentences to pretrain on: reports, questions and captions of the past, in which rare names are rare."""
    rng = np.random.RandomState(seed)
    sentences = []
    for _ in range(n):
        t, kind = rng.randint(N_TOPICS), rng.randint(3)
        subject = rng.choice(members(t), 1 + rng.randint(3), replace=False) if kind == 2 else t
        sentences.append((report, question, caption)[kind](subject, rng, RARE_IN_BOOKS))
    return sentences
