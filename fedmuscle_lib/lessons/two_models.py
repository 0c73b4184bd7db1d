"""Exercises of lesson 1: two models, one set of pictures."""

from fedmuscle_lib.lessons.exercise import Exercise

_ROUNDED = 0.000051  # four decimals are enough
_SHARE = "That is the share. The loss is minus its logarithm."
_ROW = "A row of the table is 1, 0, 0. Divide by the temperature, exponentiate, and take the share of the first."

EXERCISES: dict[str, Exercise] = {
    "diagonal of strangers": Exercise(
        "no different",
        "Did anybody tell the two users that one of their 16 numbers should mean the same as the other's?",
        words=("larger", "smaller", "no different"),
    ),
    "rotation of one user": Exercise(
        "between",
        "A rotation keeps the angle of any two vectors that are both turned.",
        words=("within", "between", "both"),
    ),
    "bytes of one matrix Z": Exercise(
        32_768,
        "One number for each picture of the batch and each dimension, and each number has 32 bits.",
        slips={
            8_192: "That is how many numbers they are. Each takes more than one byte.",
            262_144: "Those are bits.",
            2_048: "That is d = 16 of this lesson. The paper has more dimensions.",
        },
    ),
    "InfoNCE of three orthogonal pictures, tau = 1": Exercise(
        0.551445,
        _ROW,
        _ROUNDED,
        {0: "The users agree, but the negatives have a share too: exp(0) is not 0.", 0.576117: _SHARE},
    ),
    "InfoNCE of three orthogonal pictures, tau = 0.2": Exercise(
        0.013386,
        _ROW,
        _ROUNDED,
        {2.757223: "The temperature divides the similarities, not the loss.", 0.986703: _SHARE},
    ),
    "InfoNCE beside a blind user": Exercise(
        1.098612,
        "All numbers in a row of the table are then the same. Which share has each of three?",
        _ROUNDED,
        {1 / 3: _SHARE},
    ),
    "pull and push": Exercise(
        (0.5, -0.3),
        "Put the shares into the formula, and collect what stands before each vector. The positive occurs twice.",
        1e-6,
        {
            (1, -0.3): "The sum is over all vectors, so the positive is in it too.",
            (-0.5, 0.3): "That is the gradient. A step goes against it.",
            (0.5, 0.3): "One of the two is a push.",
        },
    ),
    "head of user 1 on user 2": Exercise(
        "most",
        "Look at the diagonal after the alignment: user 2's vector of a new picture lies near user 1's.",
        words=("few", "half", "most"),
    ),
}
