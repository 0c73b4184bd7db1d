"""Exercises of lesson 2: three models, and why alpha."""

from fedmuscle_lib.lessons.exercise import Exercise

EXERCISES: dict[str, Exercise] = {
    "angle where alpha is 1": Exercise(
        90,
        "The exponent has to vanish. At which angle is the scalar product of two unit vectors zero?",
        0.0501,
        {0: "There the two vectors agree, and alpha is at its smallest.", 180: "There they are opposite, and alpha is at its largest."},
    ),
    "alpha of dog and bench": Exercise(
        2.15124,
        "The exponential of minus gamma times the scalar product of the two vectors.",
        0.000501,
        {
            0.464848: "Check the sign: two vectors that differ much get a large weight.",
            0.766044: "That is the exponent.",
        },
    ),
    "alphas that change": Exercise(
        (0, 3),
        "Whose vectors stand in alpha? Then count the tuples that hold the vector that moved.",
        slips={
            (9, 3): "The anchor stands in every term, but not in alpha.",
            (0, 1): "The bench that moved meets every vector of the other model.",
        },
    ),
    "Muscle loss of three orthogonal images": Exercise(
        1.79283,
        "Sort the nine tuples: two right vectors, one right, two wrong of one image, two wrong of different images.",
        0.000051,
        {
            1.102889: "That is the sum of two InfoNCE losses. Give every tuple its alpha.",
            0.166488: "That is the share. The loss is minus its logarithm.",
        },
    ),
    "where the dog ends": Exercise(
        (132, 142),
        "Call the function twice. Without alpha, gamma is zero: which temperature of the two others does that?",
        1.0,
        {(142, 132): "Those are the two places. Which one is with alpha?"},
    ),
    "tau' by equation (22)": Exercise(
        1 / 30,
        "Add the two terms on the right side for the temperature of the experiments. What you get is an inverse.",
        0.000051,
        {
            0.15: "That is what the paper sets. The equation gives another number.",
            30: "That is the inverse of the temperature.",
            0.04: "That is the square of the temperature. The equation is about inverses.",
        },
    ),
    "dimensions of tau' = 0.15": Exercise(
        15,
        "Compute gamma from the two temperatures of the experiments, and set it equal to the formula with d.",
        0.0501,
    ),
    "what alpha_B compares": Exercise(
        "ac",
        "Alpha belongs to an anchor, and looks at everybody else.",
        words=("ab", "ac", "bc"),
    ),
}
