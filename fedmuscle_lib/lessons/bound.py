"""Exercises of lesson 4, what the Muscle loss bounds."""

from fedmuscle_lib.lessons.exercise import Exercise

EXERCISES: dict[str, Exercise] = {
    "information in xor": Exercise(
        (0, 1),
        "You see x. What do you bet on for z? Then you see y as well.",
        slips={(0.5, 1): "Half of the bets are won by chance. Does x change the odds?"},
    ),
    "three views of one coin": Exercise(
        (1, 2),
        "Every entropy, of one view or of several together, is the same number here. Put it into the formulas.",
        slips={
            (2, 2): "That counts x and y one by one. Together they say no more than one of them.",
            (1, 3): "Those are all entropies. Take away what the three views say together.",
        },
    ),
    "batch for 5 nats": Exercise(
        149,
        "The loss can't be negative. Whose natural logarithm is large enough? A batch has a whole number of samples.",
        slips={148: "Its logarithm falls short by a hair.", 32: "That would be bits. Use the natural logarithm."},
    ),
    "tuples for each matched one": Exercise(
        1_024,
        "How many tuples of three indices are there, and in how many of them are all three equal?",
        slips={32_768: "Those are all tuples. More than one of them has three equal indices.", 32: "So many are matched. Among how many?"},
    ),
    "best critic and large batch": Exercise(
        "above",
        "Which of the two critics spots the matching tuple more easily? What does it count that the truth leaves out?",
        words=("below", "at", "above"),
    ),
    "temperatures of three Gaussians": Exercise(
        (0.5, 0.6667),
        "Put the correlation and the number of models into the formula for c, three models first.",
        0.00501,
        {(0.6667, 0.5): "The order is the other way round.", (2, 1.5): "Those are the temperatures. Their inverses are asked for."},
    ),
    "xor through pairs": Exercise(
        0,
        "What does the critic learn from z and x alone, from z and y alone, and from x and y alone?",
        0.00501,
        {0.69: "That is the truth. The critic would have to look at all three at once."},
    ),
    "volume of the opposite anchor": Exercise(
        "equal",
        "Flip a pencil that lies along one edge of a box. What happens to the box?",
        words=("smaller", "equal", "larger"),
    ),
}
