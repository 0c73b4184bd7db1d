"""Exercises of the lesson on a communication round."""

from fedmuscle_lib.lessons.exercise import Exercise

EXERCISES: dict[str, Exercise] = {
    "what the server learns from fit": Exercise(
        "nothing",
        "Read the cell that fits: what does it hand to the server?",
        words=("weights", "losses", "nothing"),
    ),
    "shape of what a user sends": Exercise(
        (32, 16),
        "A row for each picture of the batch, and in it one number for each of the d dimensions.",
        slips={
            (128, 16): "That is the whole public set. The server opened one batch of it.",
            (16, 32): "The numbers are right. A picture is a row, not a column.",
            (32, 10): "That would be what user 1's head answers. The head is not asked.",
        },
    ),
    "what align changes": Exercise(
        "body",
        "The gradient arrives at the vectors and runs back through everything that made them. What made them?",
        words=("body", "head", "both"),
    ),
    "bytes of a round with d = 256": Exercise(
        (262_144, 262_176),
        "Up: pictures times numbers a vector times bytes a number. Down: the same, and one number for the loss of each batch.",
        slips={
            (65_536, 65_544): "Those are numbers. Each has 32 bits.",
            (262_144, 262_144): "Up is right. Down there is a loss beside the gradient, in every batch.",
            (262_144, 262_148): "Up is right. The loss comes down once a batch, and there are several batches.",
            (32_768, 32_772): "That is one batch. The round ends when all public pictures were seen.",
        },
    ),
    "rounds for the bytes of one network": Exercise(
        51,
        "Divide the network's bytes by the bytes that go up in a round, and leave out the last round, which is not whole.",
        slips={
            12: "The network has 32 bits a number, too.",
            25: "Only what goes up counts; both ways together are twice as much.",
            52: "The last of these is over the network's size. How many are whole?",
        },
    ),
    "why a message is refused": Exercise(
        "norm",
        "Compare the first attempt with the vectors of the other users: what is done to them after the body?",
        words=("shape", "norm", "stranger"),
    ),
    "sets of two others": Exercise(
        3,
        "Name the three others a, b and c, and write down every pair. The order in a pair does not matter.",
        slips={6: "Each pair is in there twice: in both orders.", 2: "That is how many are in a set. How many sets are there?"},
    ),
}
