"""Exercises of the lesson on Delta, seeds and controls."""

from fedmuscle_lib.lessons.exercise import Exercise

EXERCISES: dict[str, Exercise] = {
    "delta of three unlike users": Exercise(
        11.6667,
        "Divide each change by what the user had alone, turn the sign where lower is better, and take the mean of the three.",
        0.0501,
        {
            -5: "A perplexity that falls is an improvement.",
            3: "Those are differences in the users' own units. Divide each by what the user had alone.",
            35: "That is the sum. Δ is the mean over users.",
        },
    ),
    "delta of the paper's cells": Exercise(
        26.70,
        "One ratio a user first, then the mean of the six: paper.fedmuscle / paper.local.",
        0.00501,
        {
            25.52: "That is the ratio of the two means. Δ is the mean of the ratios.",
            0.267: "Right as a fraction. Per cent were asked for.",
            9.44: "Those are points. Divide by what each user has alone.",
        },
    ),
    "improvement over the tuned baseline": Exercise(
        -4,
        "The user's metric in the federation is what it was. Compare it with the new baseline, in per cent of that.",
        0.0501,
        {-2: "Those are points. Divide by the new baseline.", 4: "Is the federation above or below the tuned user?"},
    ),
    "a false alarm among six users": Exercise(
        26.4908,
        "Ask the other way round: how likely is it that none of the six intervals misses?",
        0.0501,
        {
            30: "That counts the cases with several alarms more than once.",
            5: "That is one interval. There are six of them.",
            73.5: "That is the chance of no alarm at all.",
        },
    ),
    "standard deviation behind an interval": Exercise(
        1.5788,
        "Half the width is t times s over the root of the number of seeds. Solve for s.",
        0.00501,
        {
            0.71: "That is s over the root of the number of seeds, the standard error.",
            3.16: "You took the whole width. The interval reaches as far down as up.",
            2.24: "That takes the quantile of very many seeds. Five have a larger one.",
        },
    ),
    "seeds for half the width": Exercise(
        13,
        "Call half_width with more and more seeds, and compare it with half of what it gives for five.",
        slips={
            20: "So says the square root alone. But t gets smaller with more seeds, too, so fewer are enough.",
            10: "Twice as many seeds make it narrower by the root of two, and a little more because of t. Not enough.",
            12: "Very near, but still a little wider than half.",
        },
    ),
    "control that refutes learning from others": Exercise(
        "self",
        "In two of the three, peers send something: at the start, or in every round.",
        words=("shuffled", "frozen_peers", "self"),
    ),
    "federation that needs live peers": Exercise(
        "cedar",
        "The gain must go away without peers, and also with peers that were never trained.",
        words=("alder", "birch", "cedar"),
    ),
}
