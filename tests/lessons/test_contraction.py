"""Lesson 3: it runs, what its text claims is so, and its answers follow from first principles."""

from itertools import combinations, product

import numpy as np
import torch
from lesson import LESSONS, assert_answers, assert_shows_what_it_kept, printed

from fedmuscle_lib.muscle.reference import muscle_loss_loop
from fedmuscle_lib.muscle.wire import make_reply

LESSON = LESSONS / "3_contraction.ipynb"
MEASURED = """
import json
from torch.utils.flop_counter import FlopCounterMode

class Exponentials(TorchDispatchMode):
    entries = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.entries += args[0].numel() if "aten.exp." in str(operation) else 0
        return operation(*args, **(kwargs or {}))

def multiplications(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 2

def largest_of(call):
    with Watch() as watch:
        call()
    return watch.largest

def thin(b, m):  # representations of one dimension: what is counted is the contraction
    return batch(b, m, d=1)

with Exponentials() as exponentials:
    contracted(*(lambda z, others: (z, *others))(*thin(16, 2)))
by_b = {}
for b in (32, 64):
    z, rest = thin(b, 2)
    calls = lambda: contracted(z, *rest), lambda: dense(z, rest)
    by_b[b] = [multiplications(calls[0]), *(largest_of(call) for call in calls)]
print(json.dumps({
    "measured": {name: {m: row[1:] for m, row in rows.items()} for name, rows in measured.items()},
    "exponentials": exponentials.entries, "by_b": by_b,
}))
"""


def test_the_lesson_executes_and_shows_what_it_kept(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


def test_the_answers_follow_from_first_principles(kept, measured, capsys):
    small, large = measured["by_b"].values()
    growth = [round(np.log2(late / early)) for early, late in zip(small, large, strict=True)]
    anchor = torch.tensor([[0.0, 1]]).repeat(2, 1).requires_grad_()
    others = torch.tensor([[[1.0, 0], [-1, 0]]])
    muscle_loss_loop(anchor, others, tau=0.2).backward()
    z = torch.nn.functional.normalize(torch.randn(4, 32, 256), dim=-1)
    read_out = [
        float(line.rpartition(" ")[2])
        for line in printed(kept["reveal-equal-rows"]).splitlines()[1:]
    ]
    known = {
        "terms and numbers between the others": np.array(
            [
                sum(1 for _ in product(range(32), repeat=4)),
                sum(32 * 32 for _ in combinations(range(3), 2)),
            ]
        ),
        "exponentials of the contracted sum": measured["exponentials"],
        "what the contraction saves": "memory" if growth == [3, 2, 3] else "neither",
        "largest tensor of the dense form": measured["measured"]["every term written down"]["4"][0],
        "gradient of one row": 2 * anchor.grad[0].numpy(),
        "bytes of two replies": np.array(
            [make_reply(kind, z[0], z[1:]).nbytes for kind in ("factored", "gradient")]
        ),
        "what equal rows reveal": "sum" if read_out[2] < 1e-3 < min(read_out[:2]) else "each",
    }
    assert_answers(LESSON, known, capsys)
