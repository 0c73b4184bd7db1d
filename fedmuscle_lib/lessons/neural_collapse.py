"""Exercises of the lesson on neural collapse."""

from fedmuscle_lib.lessons.exercise import Exercise

_ROUNDED = 0.0501  # degrees: one decimal is enough
_COSINES = "The unit vectors of c classes sum to zero. Multiply that sum with itself: c ones, and c (c - 1) equal cosines, give 0."

EXERCISES: dict[str, Exercise] = {
    "middle band": Exercise(
        "triangle",
        "The head compares scalar products. Ask where the middle class wins if the three means are in a line.",
        words=("point", "line", "triangle"),
    ),
    "angle of 3 classes": Exercise(
        120,
        "Three arrows share a full turn.",
        _ROUNDED,
        {60: "60 degrees is a corner of the triangle. The angle between two arrows from its centre is larger."},
    ),
    "angle of 4 classes": Exercise(
        109.4712,
        _COSINES,
        _ROUNDED,
        {
            90: "That is a cross in the plane, where opposite arrows are further apart than neighbours. Use the third dimension.",
            60: "60 degrees is a corner of a face. The angle between two arrows from the centre is larger.",
        },
    ),
    "angle of 10 classes": Exercise(
        96.3794, _COSINES, _ROUNDED, {36: "Ten arrows in a plane have near neighbours. There are more dimensions."}
    ),
    "angle of 100 classes": Exercise(
        90.5787, _COSINES, _ROUNDED, {90: "Close, but then all cosines would be zero, and they have to be a little below it."}
    ),
    "dimensions for 10 classes": Exercise(
        9,
        "Three classes fit in a plane, four in space. Which of the vectors follows from the others, since they sum to zero?",
        slips={10: "The construction above takes that many, but one direction stays empty: the vectors sum to zero."},
    ),
    "two rare classes": Exercise(
        "closes",
        "Whom does the frequent class push away, and how often do the two rare ones push each other?",
        words=("closes", "stays", "opens"),
    ),
    "zeros in the matrix": Exercise(
        384,
        "Count all entries of the matrix first. The share of zeros is of the whole matrix, and the whole part of the product counts.",
        slips={256: "That is how many entries survive."},
    ),
    "row of norm 1.7": Exercise(
        (1.02, 1.36),
        "Divide the row by its length, then multiply it by the new length. The direction stays.",
        0.00501,
        {(5.1, 6.8): "The row was multiplied by the new length, but not divided by its old one."},
    ),
    "norm of all rows": Exercise(
        "none",
        "Multiply every logit by the same positive number. Which class has the largest one?",
        words=("none", "some", "all"),
    ),
    "bytes of a trained head": Exercise(
        204_800,
        "One number for each class and feature, and each has 32 bits.",
        slips={
            51_200: "That is how many numbers they are. Each takes more than one byte.",
            1_638_400: "Those are bits.",
            409_600: "Up and down are two messages; one is asked for.",
        },
    ),
}
