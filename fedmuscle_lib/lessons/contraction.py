"""Exercises of lesson 3, the contraction behind the Muscle loss."""

from fedmuscle_lib.lessons.exercise import Exercise

EXERCISES: dict[str, Exercise] = {
    "terms and numbers between the others": Exercise(
        (1_048_576, 3_072),
        "A term chooses one sample for every dot. A green table has an entry for each pair of samples; count the green lines.",
        slips={
            (32_768, 3_072): "Those are the terms of one anchor row. The batch has more rows.",
            (1_048_576, 6_144): "The blue tables are in it as well. Count the green ones only.",
            (1_048_576, 1_024): "That is one green table. Count the green lines.",
        },
    ),
    "exponentials of the contracted sum": Exercise(
        768,
        "One for each entry of each table that `tables` makes. The matrix product takes none.",
        slips={512: "The two blue tables are right. There is a green one, too.", 4_096: "That is what the dense form takes."},
    ),
    "what the contraction saves": Exercise(
        "memory",
        "Compare the largest table that has to exist, and the number of products that have to be made, with the dense form's.",
        words=("multiplications", "memory", "neither"),
    ),
    "largest tensor of the dense form": Exercise(
        131_072,
        "The table has an axis for the anchor and one for each other model. Count its entries, then their bytes.",
        slips={
            32_768: "Those are the entries. Each takes several bytes.",
            16_384: "The anchor's axis is missing.",
        },
    ),
    "gradient of one row": Exercise(
        (-5, 0),
        "Both scalar products with the anchor are equal, so what are the probabilities, and where is the mean? "
        "The gradient points from the positive to the mean, and is divided by the temperature.",
        0.00501,
        {
            (5, 0): "That is the pull. The gradient points the other way.",
            (-1, 0): "The temperature is missing.",
            (-2.5, 0): "The loss of the row is asked for, without the mean over the batch.",
        },
    ),
    "bytes of two replies": Exercise(
        (110_592, 32_772),
        "Factored: a B x d matrix for each other model, a B x B table for each pair. Gradient: a B x d matrix and one number.",
        slips={
            (27_648, 8_193): "Those are how many numbers they are. Each takes several bytes.",
            (110_592, 32_768): "The value of the loss is missing.",
            (98_304, 32_772): "The tables of the pairs are missing.",
        },
    ),
    "what equal rows reveal": Exercise(
        "sum",
        "Subtract two rows of the formula in section 4. What is left of the models, once the means drop out?",
        words=("each", "sum", "nothing"),
    ),
}
