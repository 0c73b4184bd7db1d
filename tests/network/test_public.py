"""The public set on its way to a party that has none: fetched whole and checked, or not there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from toys import Breaks, Net, assert_same

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.data.public import CAPTIONS, first_images, public_digest
from fedmuscle_lib.network import public
from fedmuscle_lib.network.messages import CONTENT, Fetch, Files, pack, unpack
from fedmuscle_lib.network.relay import Relay
from fedmuscle_lib.network.terms import Terms

VOC = "MLC_setup/public_Pascal"


@pytest.fixture(autouse=True)
def few_files_in_a_message(monkeypatch) -> None:
    monkeypatch.setattr(public, "_MOST_FILES", 10)


@pytest.mark.parametrize("spoil", [lambda total: False, Breaks(20000, 3)], ids=["whole", "breaks"])
def test_a_party_without_the_public_set_fetches_it(net, tmp_path, spoil):
    net, own = net(), tmp_path / "own"
    with Relay(net.address, spoil).running() as relay:
        parties = [net.toy(1), net.toy(2), net.toy(3, address=relay.address, data=own)]
        net.history = net.federate(parties)
    assert_same(net, parties)
    assert getattr(spoil, "left", 0) == 0
    assert public_digest(own / VOC, 64, "images") == net.file.agreed().public["images"]
    assert [path.name for path in (own / VOC).parent.iterdir()] == ["public_Pascal"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"fetch": 0.001}, "limits.fetch: the public set has more than 0.001 MB"),
        ({}, "only its digest"),
    ],
)
def test_a_party_that_gets_no_public_set_says_why(net, tmp_path, given, why):
    net = net()
    if not given:
        net = partial(Net, tmp_path, net.keys, net.data)(public=net.file.agreed().public)
    with net.listening(), pytest.raises(RefusedMessage, match=why):
        net.toy(1, data=tmp_path / "own", limits=given).run()
    assert not [path for path in (tmp_path / "own").rglob("*") if path.is_file()]


def renamed(name: str, head: Files, content: torch.Tensor) -> bytes:
    return pack(
        Files.model_construct(names=(name, *head.names[1:]), sizes=head.sizes), {CONTENT: content}
    )


SPOILT: dict[str, Callable[[Files, torch.Tensor], bytes]] = {
    "its images have another SHA-256": lambda head, content: pack(head, {CONTENT: content.flip(0)}),
    r"sent no Files: names.0: String should match": partial(renamed, "../../escaped.png"),
    "sent no Files: names.0": partial(renamed, "a\0b.png"),
    r"sent '\.\.', which is no file of a public set": partial(renamed, ".."),
    "sent 'run.sh', which is no file of a public set": partial(renamed, "run.sh"),
    "sent '00001.png', which is no file of a public set, or sent it twice": (
        lambda head, content: renamed(head.names[1], head, content)
    ),
    "whose sizes are others than it says": lambda head, content: pack(head, {CONTENT: content[1:]}),
    "sent files whose sizes": lambda head, content: pack(head, {CONTENT: content.float()}),
    "more than 500 MB or 8 images": lambda head, content: pack(
        Files(names=tuple(f"{i}.png" for i in range(99)), sizes=(0,) * 99), {CONTENT: content[:0]}
    ),
    "sent a Files with the tensors none": lambda head, content: pack(head),
}


@pytest.mark.parametrize("why", SPOILT)
def test_files_that_are_no_public_set_are_refused_and_leave_nothing(small_world, tmp_path, why):
    def call(name, content):
        first = unpack("user 1", Fetch, content)[0].first
        head, tensors = unpack(
            "the server", Files, public.part(small_world / VOC, 8, first), CONTENT
        )
        return SPOILT[why](head, tensors[CONTENT])

    named = Path(first_images(small_world / VOC, 8)[1]).name
    terms = Terms(
        name="a",
        public={"images": public_digest(small_world / VOC, 8, "images")},
        public_size=8,
        public_batch=4,
    )
    with pytest.raises(RefusedMessage, match=why.replace("00001.png", named)):
        public.fetch(call, tmp_path / "own/set", 1, terms, "images", 5e8)
    assert [path for path in tmp_path.rglob("*")] == [tmp_path / "own"]


def test_captions_are_fetched_for_who_reads_texts(mini_world, tmp_path):
    folder = mini_world / "TC/flicker_public"
    terms = Terms(
        name="a",
        public={kind: public_digest(folder, 32, kind) for kind in ("images", "texts")},
        public_size=32,
    )
    call = lambda name, content: public.part(folder, 32, unpack("user 1", Fetch, content)[0].first)  # noqa: E731
    public.fetch(call, tmp_path / "set", 1, terms, "texts", 5e8)
    assert (tmp_path / "set" / CAPTIONS).exists() and public_digest(
        tmp_path / "set", 32, "texts"
    ) == terms.public["texts"]


def test_what_a_killed_party_left_of_a_fetch_is_removed(small_world, tmp_path):
    (tmp_path / ".fetch-user-1-12345678").mkdir()
    (tmp_path / ".fetch-user-1-12345678/half.png").touch()
    terms = Terms(
        name="a",
        public={"images": public_digest(small_world / VOC, 8, "images")},
        public_size=8,
        public_batch=4,
    )
    call = lambda name, content: public.part(  # noqa: E731
        small_world / VOC, 8, unpack("user 1", Fetch, content)[0].first
    )
    public.fetch(call, tmp_path / "set", 1, terms, "images", 5e8)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
