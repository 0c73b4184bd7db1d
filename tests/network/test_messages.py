"""Messages as bytes: what is read again, and what is refused."""

import pickle

import pytest
import torch

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.muscle import make_reply
from fedmuscle_lib.network.messages import (
    Answer,
    Finished,
    Report,
    Sent,
    pack,
    packed_reply,
    unpack,
    unpacked_reply,
)

SENT = Sent(round=0, epoch=0, position=1, size=4)
Z = torch.nn.functional.normalize(
    torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0)), dim=2
)


def test_a_message_is_read_as_it_was_written():
    head, tensors = unpack("user 1", Sent, pack(SENT, {"z": Z[0].T}), "z")
    assert head == SENT and torch.equal(tensors["z"], Z[0].T)
    finished = Finished(round=2, report=Report(metric="micro-F1", value=61.25))
    assert unpack("user 1", Finished, pack(finished)) == (finished, {})


@pytest.mark.parametrize("kind", ["gradient", "factored", "dense"])
def test_a_reply_is_read_as_it_was_written(kind):
    reply = make_reply(kind, Z[0], Z[1:])
    again = unpacked_reply(kind, packed_reply(reply), torch.device("cpu"))
    assert type(again) is type(reply) and all(
        torch.equal(ours, vars(again)[name]) for name, ours in vars(reply).items()
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "0 bytes that are no message"),
        (b"\xff\xff\xff\xff{}", "no message"),
        (pack(SENT)[:-1], "no message"),
        (pickle.dumps(SENT.model_dump()), "no message"),
        (pack(SENT), "with the tensors none; z are expected"),
        (pack(SENT, {"z": Z[0], "w": Z[1]}), "with the tensors w, z; z are expected"),
        (pack(SENT, {"z": Z[0]})[:-1], "without readable tensors"),
        (pack(SENT) + b"\x80\x04.", "without readable tensors"),
        (pack(SENT) + (1 << 60).to_bytes(8, "little") + b"{}", "without readable tensors"),
        (pack(Finished(round=0)), "no Sent: epoch: Field required"),
        (
            (text := b'{"round": 0, "epoch": 0, "position": true, "size": 1}')
            and len(text).to_bytes(4, "big") + text,
            "no Sent: position",
        ),
        (
            (text := b'{"round": -1, "epoch": 0, "position": 0, "size": 1}')
            and len(text).to_bytes(4, "big") + text,
            "no Sent: round",
        ),
        ((text := b"[" * 60000) and len(text).to_bytes(4, "big") + text, "no Sent: "),
    ],
)
def test_anything_else_is_refused_with_its_sender(content, why):
    with pytest.raises(RefusedMessage, match=f"^user 1 sent .*{why}"):
        unpack("user 1", Sent, content, "z")


def test_a_reply_of_another_kind_or_that_is_not_finite_is_refused():
    reply = make_reply("gradient", Z[0], Z[1:])
    with pytest.raises(RefusedMessage, match="the server sent an? Answer with the tensors"):
        unpacked_reply("factored", packed_reply(reply), torch.device("cpu"))
    content = pack(
        Answer(kind="gradient"), {"value": reply.value, "gradient": reply.gradient * torch.nan}
    )
    with pytest.raises(RefusedMessage, match="a reply whose gradient is not finite"):
        unpacked_reply("gradient", content, torch.device("cpu"))
