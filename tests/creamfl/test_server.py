"""The server's draws, checks and ledger."""

from collections import Counter

import pytest
import tiny
import torch

from fedmuscle_lib.core.errors import NotFinite, RefusedMessage
from fedmuscle_lib.creamfl import algorithms


@pytest.fixture
def federation(mini_world):
    return tiny.federation(mini_world)


def test_ten_of_35_are_drawn_uniformly(federation):
    server, draws = federation.server, 2000
    server.clients = dict.fromkeys(range(35), ("images",))
    counts = Counter(number for round in range(draws) for number in server.participants(round, 10))
    assert all(len(set(server.participants(round, 10))) == 10 for round in range(20))
    expected, deviation = draws * 10 / 35, (draws * 10 / 35 * 25 / 35) ** 0.5
    assert set(counts) == set(range(35)) and all(
        abs(count - expected) < 4 * deviation for count in counts.values()
    )
    pairs = Counter(
        (0 in drawn, 34 in drawn)
        for drawn in (server.participants(round, 10) for round in range(draws))
    )
    assert pairs[True, True] / draws == pytest.approx(10 / 35 * 9 / 34, abs=0.025)


def test_every_message_is_counted(federation):
    server, client = federation.server, federation.clients[4]  # with pairs
    received = server.send(4, 0)
    server.receive(4, 0, dict(client.represent()))
    one = 24 * 8 * 4
    assert server.downlink == {(0, 4): 2 * one} and server.uplink == {(0, 4): 2 * one}
    assert set(received) == {"images", "texts"}
    (kept,) = server.collect()
    client.represent()["images"].zero_()
    received["images"].zero_()
    assert kept["images"].norm() > 0 and server.represent()["images"].norm() > 0, (
        "both sides have copies"
    )


class Names(dict):
    def __iter__(self):
        raise RuntimeError("the server asked")


class Name(str):
    __slots__ = ()

    def __repr__(self):
        raise RuntimeError("the server asked")

    __str__ = __repr__


class Alike:
    """A key that passes for a modality."""

    __hash__, __eq__ = (lambda self: hash("images")), (lambda self, other: True)


def changed(change):
    return lambda own: own | {"images": change(own["images"])}


def a_row(value, dtype=torch.float32):
    return changed(lambda z: z.to(dtype).index_fill(0, torch.tensor([3]), value))


NO_NUMBERS, NOT_ONE = (
    "a representation that is not finite .row 3 of the public images in round 3",
    "a representation that has norm {}, not 1",
)
OF_IMAGES = "representations for the public images in round 3"
REFUSED = {  # more of the kind: tests/fedmuscle/test_messages.py
    "nan": (a_row(torch.nan), NO_NUMBERS),
    "infinity in float16": (a_row(torch.inf, torch.float16), NO_NUMBERS),
    "a square above float32": (a_row(3e38), NOT_ONE.format("inf")),
    "a square above float64": (a_row(1e300, torch.float64), NOT_ONE.format("inf")),
    "a square above float16": (a_row(6e4, torch.float16), NOT_ONE.format(".*")),
    "a row of zeros": (a_row(0.0), NOT_ONE.format("0") + " .row 3 of the public images in round 3"),
    "twice as long": (changed(lambda z: 2 * z), NOT_ONE.format("2")),
    "slightly too long": (changed(lambda z: 1.02 * z), NOT_ONE.format("1.02")),
    "fewer rows": (
        changed(lambda z: z[:-1]),
        OF_IMAGES + r" of shape \(23, 8\); \(24, 8\) is expected",
    ),
    "int64": (
        changed(lambda z: z.to(torch.int64)),
        OF_IMAGES + " as torch.int64; floating-point numbers are expected",
    ),
    "nothing": (changed(lambda z: None), OF_IMAGES + " as a NoneType"),
    "the other modality": (
        lambda own: {"texts": own["images"]},
        r"embeddings of \['texts'\]; \['images'\] are expected",
    ),
    "another kind of client": (
        lambda own: own | {"texts": own["images"]},
        r"embeddings of \['images', 'texts'\]; \['images'\]",
    ),
    "no modality": (lambda own: {}, r"embeddings of \[\]; \['images'\]"),
    "numbers for names": (lambda own: {0: own["images"]}, r"embeddings of \[0\]"),
    "a long name": (lambda own: own | {"a\nb" * 10_000: 0}, r"embeddings of \['a.{,200}\]; "),
    "a name of another class": (lambda own: own | {Name("x"): 0}, "embeddings of .*'images'.*; "),
    "a name that is like all": (lambda own: {Alike(): own["images"]}, r"embeddings of \[<.*Alike"),
    "another kind of dict": (Names, "embeddings as a Names"),
    "no dict": (lambda own: own["images"], "embeddings as a Tensor"),
}
TAKEN = {
    "float16": changed(lambda z: z.half()),
    "bfloat16": changed(lambda z: z.bfloat16()),
    "float64": changed(lambda z: z.double()),
    "columns first": changed(lambda z: z.T.contiguous().T),
    "every other row": changed(lambda z: torch.stack([z, z], 1).flatten(0, 1)[::2]),
    "with a gradient": changed(lambda z: z.clone().requires_grad_()),
    "within a graph": changed(lambda z: 1 * z.clone().requires_grad_()),
    "almost of norm 1": changed(lambda z: 1.005 * z),
}


@pytest.fixture(scope="module")
def asked(mini_world):
    """A federation whose client 1 has answered in round 3, and a client 0 that has not."""
    return tiny.federation(mini_world)


def asks_two(federation):
    """Ask both clients with images in round 3; client 1 answers.

    Return the server, and what client 0 would send.
    """
    server, own = federation.server, {k: dict(federation.clients[k].represent()) for k in (0, 1)}
    server.uplink.clear()
    server.send(0, 2)
    server.send(1, 2)
    server.receive(1, 2, own[1])
    return server, own[0], {name: z.clone() for name, z in own[0].items()}


@pytest.mark.parametrize("what", REFUSED)
def test_a_message_that_can_not_be_used_is_refused_by_name_and_costs_nobody_anything(asked, what):
    server, own, message = asks_two(asked)
    change, words = REFUSED[what]
    with pytest.raises(
        NotFinite if words == NO_NUMBERS else RefusedMessage, match=f"^client 0 sent {words}"
    ) as refused:
        server.receive(0, 2, change(message))
    assert len(str(refused.value).splitlines()) == 1 and len(str(refused.value)) < 400
    with pytest.raises(RefusedMessage, match=r"no embeddings from clients \[0\]"):
        server.collect()
    assert (2, 0) not in server.uplink
    server.receive(0, 2, own)
    assert len(server.collect()) == 2, "what client 1 sent is still there"


@pytest.mark.parametrize("what", TAKEN)
def test_a_message_of_another_form_is_copied_in_the_servers_own(asked, what):
    server, own, message = asks_two(asked)
    message = TAKEN[what](message)
    server.receive(0, 2, message)
    assert server.uplink[2, 0] == message["images"].nbytes
    kept, other = server.collect()
    assert (
        kept["images"].dtype == torch.float32
        and kept["images"].is_contiguous()
        and not kept["images"].requires_grad
    )
    torch.testing.assert_close(kept["images"], own["images"], atol=1e-2, rtol=0)
    for name in ("creamfl", "creamfl_muscle"):
        targets = algorithms.get(name)({}, 1, 1).targets(server, [kept, other])
        assert targets["images"].isfinite().all()


@pytest.mark.parametrize(
    ("client", "round", "told"),
    [
        (0, 1, "0 sent embeddings in round 2"),
        (1, 0, "1 sent embeddings in round 1"),
        (99, 0, "99 sent embeddings in round 1"),
        (-1, 0, "-1 sent embeddings in round 1"),
        (True, 0, "True sent embeddings in round 1"),
        ("0", 0, "'0' sent embeddings in round 1"),
        ("0\n1", 0, r"'0.{1,2}n1' sent embeddings in round 1"),
        ([0], 0, r"\[0\] sent embeddings in round 1"),
        (None, 0, "None sent embeddings in round 1"),
        (0, None, "0 sent embeddings in round None"),
        (0, "0", "0 sent embeddings in round '0'"),
        (0, 0.0, "0 sent embeddings in round 0.0"),
        (0, False, "0 sent embeddings in round False"),
    ],
)
def test_who_was_not_asked_is_refused(asked, client, round, told):
    server, own = asked.server, dict(asked.clients[0].represent())
    server.send(0, 0)
    with pytest.raises(RefusedMessage, match=f"^client {told} that nobody asked it for$"):
        server.receive(client, round, own)
    server.receive(0, 0, own)
    with pytest.raises(
        RefusedMessage, match="client 0 sent embeddings in round 1 that nobody asked it for"
    ):
        server.receive(0, 0, own)
    server.collect()
    with pytest.raises(RefusedMessage, match="client 0 .* that nobody asked it for"):
        server.receive(0, 0, own)
