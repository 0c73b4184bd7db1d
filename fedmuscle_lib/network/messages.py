"""Messages between server and parties, as bytes: a checked head in JSON, and tensors as
safetensors. No pickle is read.

A message is four bytes with the length of its head, the head, and nothing or a safetensors file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

from safetensors.torch import load, save
from torch import Tensor

from fedmuscle_lib.core.errors import RefusedMessage, unreadable
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.network.terms import Table, Terms

_LENGTH = 4  # bytes


class Question(Table):
    """What the server asks a party.

    Attributes:
        step: "begin" a round, under ``terms``: train on local data; "represent" the public samples
            of a batch; "end" the round: evaluate and keep a checkpoint; "over": there is no other
            round. The reply to the batch before, tensors ``value`` and ``gradient``, comes with
            the next question.
        round: from 0.
    """

    step: Literal["begin", "represent", "end", "over"]
    round: int = 0
    terms: Terms | None = None
    batch: Batch | None = None


class Report(Table):
    """What a party tells of its evaluation, if anything: its metric and that of its own local
    training.
    """

    metric: str | None = None
    value: float | None = None
    local: float | None = None


class Answer(Table):
    """What a party answers, with the tensor ``z`` (b, d) if representations were asked for.

    Attributes:
        began_anew: it was killed in this round, and knows nothing of the questions before.
        leaves: why it takes no further part.
    """

    began_anew: bool = False
    leaves: str = ""
    report: Report = Report()


H = TypeVar("H", bound=Table)


def pack(head: Table, tensors: Mapping[str, Tensor] | None = None) -> bytes:
    """A message of a head and tensors on any device."""
    text = head.model_dump_json(exclude_none=True).encode()
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in (tensors or {}).items()}
    return len(text).to_bytes(_LENGTH, "big") + text + (save(on_cpu) if on_cpu else b"")


def unpack(sender: str, kind: type[H], content: bytes) -> tuple[H, dict[str, Tensor]]:
    """Read a message whose head is of a kind; raises RefusedMessage, naming the sender, for
    anything else.
    """
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "big")
    # safetensors has other errors for each kind of damage, of a type that torch lacks too
    with unreadable(f"{sender} sent no readable {kind.__name__}", RefusedMessage):
        head = kind.model_validate_json(content[_LENGTH:end])
        return head, load(content[end:]) if content[end:] else {}
