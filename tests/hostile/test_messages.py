"""No message but the one that was asked for passes a server: each change of a valid one is refused
in a line that names its sender.

``TENSORS`` and ``NUMBERS`` change a valid tensor, ``UPDATES`` a valid update of FedLoGe's; each is
named, with words of the refusal.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import normalize

from fedmuscle_lib.core.errors import Diverged, RefusedMessage
from fedmuscle_lib.core.tensors import Numbers
from fedmuscle_lib.fedloge import messages as fedloge
from fedmuscle_lib.fedloge.server import Server as FedLoGeServer
from fedmuscle_lib.fedmuscle.algorithms import feddf
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.fedmuscle.server import Server

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of prototypes

B, D = 8, 4
BATCH = Batch(2, 0, 1, B)
VOTES = Numbers(-1, 9, whole=True)
Change = Callable[[Tensor], Any]


def representations(seed: int = 0) -> Tensor:
    return normalize(torch.randn(B, D, generator=torch.Generator().manual_seed(seed)), dim=1)


class Lying(Tensor):
    """Says of itself what a server wants to hear."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):  # type: ignore[no-untyped-def]
        return torch.ones(B)


class Twin:
    """Equal to everything."""

    round = epoch = position = 0
    size = B

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def shrunk(z: Tensor) -> Tensor:
    z = z.clone()
    z.untyped_storage().resize_(0)
    return z


def overlong(z: Tensor) -> Tensor:
    """The last numbers lie behind the end of the storage."""
    z = z.clone()
    z.untyped_storage().resize_(z.nbytes - 4)
    return z


def fake(z: Tensor) -> Tensor:
    with FakeTensorMode():
        return torch.empty(z.shape)


def replaced(value: float, *place: int) -> Change:
    def change(z: Tensor) -> Tensor:
        z = z.clone()
        z[place] = value
        return z

    return change


# Of a matrix of floating-point numbers, whatever they mean.
TENSORS: dict[str, tuple[Change, str]] = {
    "nothing": (lambda z: None, "as a NoneType; a plain tensor"),
    "a list": (lambda z: z.tolist(), "as a list; a plain tensor"),
    "bytes": (lambda z: z.numpy().tobytes(), "as a bytes"),
    "a number": (lambda z: 1.0, "as a float"),
    "a numpy array": (lambda z: z.numpy(), "as a ndarray"),
    "a numpy array of objects": (lambda z: np.array([[object()] * D] * B), "as a ndarray"),
    "a parameter": (lambda z: nn.Parameter(z), "as a Parameter"),
    "a subclass that lies": (lambda z: z.as_subclass(Lying), "as a Lying"),
    "a fake tensor": (fake, "as a FakeTensor"),
    "a sparse tensor": (lambda z: z.to_sparse(), "as a sparse_coo tensor"),
    "a compressed tensor": (lambda z: z.to_sparse_csr(), "as a sparse_csr tensor"),
    "a nested tensor": (lambda z: torch.nested.nested_tensor([z[:3], z[3:]]), "as a nested tensor"),
    "a quantized tensor": (
        lambda z: torch.quantize_per_tensor(z, 0.1, 0, torch.qint8),
        "as a quantized tensor",
    ),
    "on meta": (lambda z: z.to("meta"), "on meta; cpu is expected"),
    "without memory": (shrunk, "without memory for all numbers"),
    "with too little memory": (overlong, "without memory for all numbers"),
    "integers": (
        lambda z: torch.ones_like(z, dtype=torch.int64),
        "as torch.int64; floating-point numbers",
    ),
    "bytes of a tensor": (lambda z: torch.ones_like(z, dtype=torch.uint8), "as torch.uint8"),
    "truth values": (lambda z: torch.ones_like(z, dtype=torch.bool), "as torch.bool"),
    "complex numbers": (lambda z: z.to(torch.complex64), "as torch.complex64"),
    "numbers of 8 bits": (lambda z: z.to(torch.float8_e4m3fn), "as torch.float8_e4m3fn"),
    "a row less": (lambda z: z[:-1], r"of shape \(7, 4\); \(8, 4\) is expected"),
    "a row more": (lambda z: torch.cat([z, z[:1]]), r"of shape \(9, 4\)"),
    "a column more": (
        lambda z: normalize(torch.cat([z, z[:, :1]], 1), dim=1),
        r"of shape \(8, 5\)",
    ),
    "transposed": (lambda z: z.T, r"of shape \(4, 8\)"),
    "flat": (lambda z: z.flatten(), r"of shape \(32,\)"),
    "a batch of one": (lambda z: z[None], r"of shape \(1, 8, 4\)"),
    "a number alone": (lambda z: z.sum(), r"of shape \(\)"),
    "empty": (lambda z: z[:0], r"of shape \(0, 4\)"),
    "a terabyte in one number": (
        lambda z: z[:1, :1].expand(1 << 20, 1 << 18),
        r"of shape \(1048576, 262144\)",
    ),
    "not a number": (replaced(torch.nan, 3, 1), "not finite"),
    "infinite": (replaced(torch.inf, 2), "not finite"),
    "minus infinity": (replaced(-torch.inf, 0, 0), "not finite"),
}
# Of representations: rows are of norm 1.
ROWS: dict[str, tuple[Change, str]] = {
    "zeros": (torch.zeros_like, "norm 0, not 1"),
    "a row of zeros": (replaced(0, 5), r"norm 0, not 1 \(row 5 of round 3, CL epoch 1, batch 2\)"),
    "too long": (lambda z: 1.1 * z, r"norm 1.1, not 1"),
    "a row that overflows": (replaced(3e38, 1), r"norm inf, not 1 \(row 1"),
    "a row that vanishes": (lambda z: 1e-30 * z, "norm .*, not 1"),
}
# Of other messages: valid numbers, what makes them wrong, and what may be sent.
NO_VOTES, NO_OUTPUTS = torch.full((B, D), -1, dtype=torch.int8), torch.zeros(B, D)
NUMBERS: dict[str, tuple[Tensor, Numbers, Change, str]] = {
    "an output that overflows a sum": (
        NO_OUTPUTS,
        feddf._OUTPUTS,
        replaced(3e38, 1, 1),
        r"from 0 to 3e\+38 .round 3.; floating-point numbers from",
    ),
    "a vote for no class": (
        NO_VOTES,
        VOTES,
        replaced(10, 1, 1),
        "from -1 to 10 .round 3.; whole numbers from -1 to 9",
    ),
    "less than an abstention": (NO_VOTES, VOTES, replaced(-2, 1, 1), "from -2 to -1"),
    "votes with fractions": (NO_VOTES, VOTES, lambda z: z + 0.5, "as torch.float32; whole numbers"),
    "votes as truth values": (NO_VOTES, VOTES, lambda z: z > 0, "as torch.bool"),
    "votes of another size": (NO_VOTES.short(), VOTES, lambda z: z[:, :2], r"of shape \(8, 2\)"),
}


def server(users: tuple[int, ...] = (2, 5)) -> Server:
    one = Server(users, others=1, dim=D, address=(0,))
    one.open(BATCH)
    return one


def refused(call: Callable[[], object], words: str) -> None:
    """One line that names user 5, and nothing is counted."""
    with pytest.raises(RefusedMessage, match=f"^user 5 sent .*{words}") as caught:
        call()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, Diverged) == ("not finite" in str(caught.value))


@pytest.mark.parametrize("name", TENSORS | ROWS)
def test_what_is_no_representation_is_refused(name):
    change, words = (TENSORS | ROWS)[name]
    one, sent = server(), change(representations())
    refused(lambda: one.receive(5, BATCH, sent), words)
    refused(
        lambda: one.receive_reference(5, sent, B),
        words.replace("round 3, CL epoch 1, batch 2", "the reference before training"),
    )
    assert not one.uplink
    one.receive(5, BATCH, representations())  # a refusal leaves no trace
    one.receive_reference(5, representations(), B)


@pytest.mark.parametrize("name", [*TENSORS, *NUMBERS])
def test_what_is_no_prediction_and_no_vote_is_refused(name):
    valid, numbers, change, words = NUMBERS.get(name) or (
        representations(),
        feddf._OUTPUTS,
        *TENSORS[name],
    )
    one, shape = server(), tuple(valid.shape)
    refused(lambda: one.take(5, 2, change(valid), shape, "predictions", numbers), words)
    assert not one.uplink
    assert torch.equal(one.take(5, 2, valid, shape, "predictions", numbers), valid)


@pytest.mark.parametrize("seed", range(5))
def test_one_wrong_number_among_many_is_found(seed):
    generator = torch.Generator().manual_seed(seed)
    z = normalize(torch.randn(300, 64, generator=generator), dim=1)
    row, column = (int(torch.randint(n, (), generator=generator)) for n in z.shape)
    z[row, column] = (torch.nan, torch.inf, -torch.inf, 1e10, 2.0)[seed]
    one, batch = Server((2, 5), 1, 64, (0,)), Batch(0, 0, 0, 300)
    one.open(batch)
    refused(lambda: one.receive(5, batch, z), f"row {row} of round 1, CL epoch 1, batch 1")


def test_what_a_user_changes_afterwards_changes_nothing():
    one, z, votes = server(), representations(), torch.zeros(B, D, dtype=torch.int8)
    one.receive(5, BATCH, z)
    one.receive_reference(5, z, B)
    taken = one.take(5, 2, votes, (B, D), "votes", VOTES)
    z.fill_(torch.nan)
    z.untyped_storage().resize_(0)
    votes.fill_(99)
    assert torch.equal(one.current(5), representations()) and torch.equal(
        one.reference(5, torch.arange(B)), representations()
    )
    assert not taken.any()


def test_what_a_user_does_to_what_it_was_given_reaches_nobody_else():
    one, message = server(), torch.zeros(B)
    one.give(2, 0, message).fill_(torch.nan)
    assert not message.any()


def test_views_are_taken_for_their_numbers():
    z = representations()
    for sent in (
        z.T.contiguous().T,
        torch._neg_view(-z),
        z.clone().requires_grad_(),
        torch.cat([z, z])[B:],
    ):
        one = server()
        one.receive(5, BATCH, sent)
        assert torch.equal(one.current(5), z) and one.uplink == {(2, 5): z.nbytes}
        assert one.current(5).is_contiguous() and not one.current(5).requires_grad


def test_a_message_is_taken_once():
    one, z = server(), representations()
    one.receive(5, BATCH, z)
    refused(
        lambda: one.receive(5, BATCH, z), "representations twice for round 3, CL epoch 1, batch 2"
    )
    one.receive_reference(5, z, B)
    refused(lambda: one.receive_reference(5, z, B), "a second reference")
    one.take(5, 2, z, (B, D), "predictions", Numbers())
    refused(
        lambda: one.take(5, 2, z, (B, D), "predictions", Numbers()), "predictions twice in round 3"
    )
    assert one.uplink == {(2, 5): 2 * z.nbytes, (0, 5): z.nbytes}
    one.take(5, 3, z, (B, D), "predictions", Numbers())
    refused(
        lambda: one.take(2 + 3, 2, z, (B, D), "similarities", Numbers()),
        "similarities for another round than the present one, 4",
    )


@pytest.mark.parametrize(
    "batch",
    [Batch(2, 0, 0, B), Batch(1, 0, 1, B), Batch(2, 0, 1, B + 1), Twin(), (2, 0, 1, B), None],
)
def test_another_batch_than_the_open_one_is_refused(batch):
    refused(
        lambda: server().receive(5, batch, representations()),
        "the open batch is round 3, CL epoch 1, batch 2$",
    )
    closed = Server((2, 5), 1, D, (0,))
    refused(lambda: closed.receive(5, batch, representations()), "the open batch is None")


@pytest.mark.parametrize(
    "numbers",
    [(2.0, 0, 1, B), (True, 0, 1, B), (-1, 0, 1, B), (2, "0", 1, B), (2, 0, 1, torch.tensor(B))],
    ids=repr,
)
def test_a_batch_has_whole_numbers(numbers):
    with pytest.raises(ValueError, match="whole numbers from 0"):
        Batch(*numbers)


@pytest.mark.parametrize(
    "user", [7, -1, 5.0, True, "5", None, torch.tensor(5), np.int64(5)], ids=repr
)
def test_a_user_is_one_of_the_numbers(user):
    one, z = server((1, 2, 5)), representations()
    calls: list[Callable[[], object]] = [
        lambda: one.receive(user, BATCH, z),
        lambda: one.receive_reference(user, z, B),
        lambda: one.take(user, 2, z, (B, D), "predictions", Numbers()),
        lambda: one.current(user),
        lambda: one.reference(user, torch.arange(2)),
    ]
    for call in calls:
        with pytest.raises(RefusedMessage, match=r"is not of this federation of \(1, 2, 5\)"):
            call()


def test_a_user_who_never_sends_is_named_when_it_is_asked_for():
    one = server()
    refused(lambda: one.current(5), "no representations for round 3, CL epoch 1, batch 2")
    refused(lambda: one.reference(5, torch.arange(2)), "no reference before training")
    one.receive(5, BATCH, representations())
    one.open(replace(BATCH, position=2))
    refused(lambda: one.current(5), "no representations for round 3, CL epoch 1, batch 3")
    refused(lambda: Server((2, 5), 1, D, (0,)).current(5), "none is open")


# --- FedLoGe's updates


def tensors(value: float = 1.0) -> dict[str, Tensor]:
    return {
        "w": torch.full((B, D), value),
        "norm.running_var": torch.full((3,), value),
        "norm.num_batches_tracked": torch.tensor(int(value)),
        "proportions.classes": torch.full((4,), 0.25),
    }


def changed(name: str, change: Change) -> Callable[[], fedloge.Update]:
    return lambda: fedloge.Update(tensors() | {name: change(tensors()[name])}, 5)


def _as_update(words: str) -> str:
    """FedLoGe's server names type and shape together."""
    return "'w' as torch" if "torch." in words or "shape" in words else words.split(";")[0]


NO_COUNTS: tuple[Any, ...] = (5.0, float("nan"), True, "5", None, np.int64(5), torch.tensor(5))
UPDATES: dict[str, tuple[Callable[[], Any], str]] = {
    **{f"w: {name}": (changed("w", change), _as_update(words)) for name, (change, words) in TENSORS.items()},
    "twice as fine": (changed("w", Tensor.double), r"'w' as torch.float64 \(8, 4\); torch.float32 \(8, 4\) is expected"),
    "a negative variance": (changed("norm.running_var", replaced(-1, 1)), "'norm.running_var' with numbers below 0"),
    "a negative count": (changed("norm.num_batches_tracked", lambda t: -t), "'norm.num_batches_tracked' with numbers below 0"),
    "a count with a fraction": (changed("norm.num_batches_tracked", Tensor.float), r"as torch.float32 \(\); torch.int64 \(\)"),
    **{
        f"shares {shares}": (changed("proportions.classes", partial(torch.Tensor.new_tensor, data=shares)), f"{words}; shares, whose sum")
        for shares, words in (
            ((1e30, 1e-30, 0.0, 0.0), r"'proportions.classes' from 0 to 1e\+30 with the sum 1e\+30"),
            ((-5.0, -5.0, -5.0, 20.0), "from -5 to 20 with the sum 5"),
            ((1.5, -0.5, 0.0, 0.0), "from -0.5 to 1.5 with the sum 1"),
            ((0.5, 0.5, 0.01, 0.0), "from 0 to 0.5 with the sum 1.01"),
            ((0.0, 0.0, 0.0, 0.0), "from 0 to 0 with the sum 0"),
        )
    },
    "no tensors": (lambda: fedloge.Update({}, 5), "no 'norm.num_batches_tracked'"),
    "a tensor less": (lambda: fedloge.Update({"w": torch.ones(B, D)}, 5), "no 'norm"),
    "a tensor more": (lambda: fedloge.Update(tensors() | {"labels": torch.ones(1)}, 5), "'labels', which nobody asked for"),
    "names that are none": (lambda: fedloge.Update(tensors() | {3: torch.ones(1), None: torch.ones(1)}, 5), "3, which nobody asked for"),  # type: ignore[dict-item]
    "a list of tensors": (lambda: fedloge.Update(list(tensors().items()), 5), "an update of named tensors is expected"),  # type: ignore[arg-type]
    "tensors alone": (tensors, "a dict; an update of named tensors is expected"),
    "no update": (lambda: None, "a NoneType"),
    "what the server sends": (lambda: fedloge.Message(tensors()), "a Message"),
    "no samples": (lambda: fedloge.Update(tensors(), 0), "of 0 samples"),
    "fewer than none": (lambda: fedloge.Update(tensors(), -5), "of -5 samples"),
    "more samples than can be counted": (lambda: fedloge.Update(tensors(), 10**5000), "no integer of 8 bytes"),
    **{f"{number!r} samples": (partial(fedloge.Update, tensors(), number), "no integer of 8 bytes") for number in NO_COUNTS},
}  # fmt: skip


@pytest.fixture
def mean() -> Iterator[FedLoGeServer]:
    """A server that waits for client 5; what is refused leaves no trace in it."""
    one = FedLoGeServer((2, 5), tensors(), 1.0, (0,))
    one.send(5, 3)
    yield one
    one.receive(5, 3, fedloge.Update(tensors(2.0), 5))
    one.aggregate()
    assert torch.equal(one.tensors["w"], tensors(2.0)["w"]) and list(one.uplink) == [(3, 5)]


@pytest.mark.parametrize("name", UPDATES)
def test_what_is_no_update_is_refused(mean, name):
    make, words = UPDATES[name]
    with pytest.raises(RefusedMessage, match=f"^client 5 sent .*{words}") as caught:
        mean.receive(5, 3, make())
    assert "\n" not in str(caught.value) and not mean.uplink


@pytest.mark.parametrize(
    "counts",
    [[1] * 1000, [3] * 4999, [10**9, 1], [0, 0, 7], [2**24 + 1, 1, 0]],
    ids=lambda counts: str(counts[:3]),
)
def test_shares_of_counts_are_accepted_however_they_are_rounded(counts):
    shares = {"proportions.classes": torch.tensor(counts) / sum(counts)}
    taken = fedloge.accepted(5, fedloge.Update(shares, sum(counts)), shares)
    assert torch.equal(taken.tensors["proportions.classes"], shares["proportions.classes"])


@pytest.mark.parametrize(("client", "round"), [(5, 2), (5, 4), (2, 3), (7, 3)])
def test_an_update_is_of_the_round_and_the_client_that_were_asked(mean, client, round):
    with pytest.raises(
        RefusedMessage,
        match=f"client {client} sent an update in round {round + 1} that nobody asked it for",
    ):
        mean.receive(client, round, fedloge.Update(tensors(), 5))


def test_a_client_that_changes_what_it_sent_or_was_sent_changes_nothing(mean):
    one = FedLoGeServer((2, 5), tensors(), 1.0, (0,))
    update = fedloge.Update(tensors(3.0), 5)
    one.send(5, 0).tensors["w"].fill_(torch.nan)
    assert torch.equal(one.tensors["w"], tensors()["w"])
    one.receive(5, 0, update)
    update.tensors["w"].fill_(torch.nan)
    one.aggregate()
    assert torch.equal(one.tensors["w"], tensors(3.0)["w"])


def test_a_mapping_is_read_once(mean):
    class Changing(UserDict):  # type: ignore[type-arg]
        """Has other tensors every time that it is asked."""

        asked = 0

        def __getitem__(self, name):
            self.asked += 1
            return (
                super().__getitem__(name)
                if self.asked <= len(self)
                else torch.full((B, D), torch.nan)
            )

    one = FedLoGeServer((5,), tensors(), 1.0, (0,))
    one.send(5, 0)
    one.receive(5, 0, fedloge.Update(Changing(tensors(2.0)), 5))
    one.aggregate()
    assert torch.equal(one.tensors["w"], tensors(2.0)["w"])
