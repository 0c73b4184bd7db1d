"""Messages between a party and the aggregator, as bytes: a checked head in JSON, and tensors as
safetensors. No pickle is read.

A message is four bytes with the length of its head, the head, and nothing or a safetensors file.
Every head is a frozen, strict model: an unknown field, a wrong type or a number that is not finite
is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedmuscle_lib.core.errors import RefusedMessage, line_of
from fedmuscle_lib.data.encodings import Modality
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.muscle.wire import REPLIES, DenseReply, FactoredReply, GradientReply
from fedmuscle_lib.network.terms import Terms

SERVICE = "fedmuscle.Aggregator"
MOST_HEAD = 1 << 16  # bytes
ROOM = MOST_HEAD + (1 << 12)  # bytes that a message may have beside its numbers
REPRESENTATIONS = "z"
_LENGTH = 4  # bytes


class Head(BaseModel):
    """What a message says beside its tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Hello(Head):
    """A party asks for something to sign."""

    user: int


class Challenge(Head):
    """What the party signs, and the terms that it would agree to."""

    nonce: str
    terms: Terms


class Join(Head):
    """A party proves who it is and says which public set it has: ``public``, the SHA-256 of
    what its model reads.
    """

    user: int
    nonce: str
    key: str
    signature: str
    reads: Modality
    public: str


class Welcome(Head):
    """The aggregator's answer: the next round, from 0 (None if all are over), and a secret that
    stands for the signature.

    The secret comes with every later message of the session, as metadata of the call.
    """

    session: str
    round: int | None


class Ready(Head):
    """A party is where the round's alignment begins."""

    round: int = Field(ge=0)


class Roster(Head):
    """Who takes part in a round. ``users`` is empty where the party does not; ``waiting`` says for
    whom, while it is not known.

    ``round`` is the one to go on with: the same, or a later one if this one went on without the
        party.
    """

    round: int | None
    users: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


class Sent(Head):
    """Z^n for a public batch, the tensor ``z`` (b, d)."""

    round: int = Field(ge=0)
    epoch: int = Field(ge=0)
    position: int = Field(ge=0)
    size: int = Field(ge=0)

    @property
    def batch(self) -> Batch:
        """Where it stands."""
        return Batch(self.round, self.epoch, self.position, self.size)


class Answer(Head):
    """A reply (``fedmuscle_lib.muscle.wire``), whose fields are the tensors."""

    kind: str


class Report(Head):
    """What a party tells of its evaluation, if it does at all: its metric and that of its own local
    training.
    """

    metric: str = Field(pattern=r"^[\w .%@-]{1,40}$")
    value: float
    local: float | None = None


class Finished(Head):
    """A party is through with a round; -1 if with none yet."""

    round: int = Field(ge=-1)
    report: Report | None = None


class Next(Head):
    """The round to go on with, from 0; None if all are over."""

    round: int | None


H = TypeVar("H", bound=Head)
Reply = DenseReply | FactoredReply | GradientReply


def pack(head: Head, tensors: Mapping[str, Tensor] | None = None) -> bytes:
    """A message of a head and tensors on any device."""
    text = head.model_dump_json().encode()
    body = (
        save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        if tensors
        else b""
    )
    return len(text).to_bytes(_LENGTH, "big") + text + body


def unpack(sender: str, kind: type[H], content: bytes, *names: str) -> tuple[H, dict[str, Tensor]]:
    """Read a message of which the head is of a kind and the tensors have these names.

    Raises:
        RefusedMessage: naming the sender; it is anything else.
    """
    length = int.from_bytes(content[:_LENGTH], "big")
    text, body = content[_LENGTH : _LENGTH + length], content[_LENGTH + length :]
    if len(content) < _LENGTH or length > MOST_HEAD or len(text) < length:
        raise RefusedMessage(f"{sender} sent {len(content)} bytes that are no message")
    try:
        head = kind.model_validate_json(text)
        tensors = load(body) if body else {}
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RefusedMessage(
            f"{sender} sent no {kind.__name__}:"
            f" {line_of(f'{where}: ' * bool(where) + first['msg'])}"
        ) from None
    except (SafetensorError, ValueError) as error:
        raise RefusedMessage(
            f"{sender} sent a {kind.__name__} without readable tensors ({line_of(str(error))})"
        ) from None
    if tensors.keys() != set(names):
        found = ", ".join(sorted(map(line_of, tensors))) or "none"
        raise RefusedMessage(
            f"{sender} sent a {kind.__name__} with the tensors {line_of(found)};"
            f" {', '.join(names) or 'none'} are expected"
        )
    return head, tensors


def packed_reply(reply: Reply) -> bytes:
    """A reply as a message."""
    return pack(Answer(kind=reply.kind), vars(reply))


def unpacked_reply(kind: str, content: bytes, device: torch.device) -> Reply:
    """Read a reply of the agreed kind, onto a device; raises RefusedMessage if it is another one,
    or not finite.
    """
    made = REPLIES[kind]
    head, tensors = unpack("the server", Answer, content, *(field.name for field in fields(made)))
    if head.kind != kind:
        raise RefusedMessage(f"the server sent a {head.kind} reply; {kind} was agreed")
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            raise RefusedMessage(f"the server sent a reply whose {name} is not finite")
    return made(**{name: tensor.to(device) for name, tensor in tensors.items()})
