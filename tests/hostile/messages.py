"""What users send to both systems' servers: valid messages of every kind, changed in one to three
ways, twice, late, by another user.

A message is taken, and then in a copy of the server's own, in range, and harmless to the others; or
it is refused in a line that names its sender, and leaves no trace.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hostile.kind import Case, Kind
from torch import Tensor, nn
from torch.nn.functional import normalize

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.core.tensors import Numbers
from fedmuscle_lib.fedloge import messages as fedloge
from fedmuscle_lib.fedloge.server import Server as FedLoGeServer
from fedmuscle_lib.fedmuscle.algorithms import feddf, fedhenn
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.muscle import muscle_loss

B, D = 8, 4
_MOST = 1 << 16  # numbers that are changed further
BATCH = Batch(2, 0, 1, B)
# What algorithms take beside representations, and which numbers these may be.
TAKEN = {
    "predictions": feddf._OUTPUTS,
    "votes": Numbers(-1, 9, whole=True),
    "similarities": fedhenn._COSINES,
}
KINDS = ("representations", "reference", *TAKEN, "update")
_FLOATS = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "complex128",
)
_TYPES = [
    getattr(torch, name)
    for name in (*_FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "bool")
]
_NOT_FINITE = (torch.nan, torch.inf, -torch.inf)
_EXTREMES = (
    *_NOT_FINITE,
    3e38,
    -3e38,
    1e-45,
    0.0,
    -0.0,
    1.0001,
    1.001,
    -1.0,
    2.0,
    -2.0,
    9.0,
    10.0,
    1e6,
    1.01e6,
    127.0,
    -128.0,
)
_STRANGERS: tuple[Any, ...] = (2, 7, -1, 5.0, True, "5", None, np.int64(5), (5,))
_NO_BATCHES: tuple[Any, ...] = (
    Batch(2, 0, 0, B),
    Batch(1, 0, 1, B),
    Batch(2, 0, 1, B + 1),
    Batch(3, 0, 1, B),
    None,
    (2, 0, 1, B),
    "open",
)
_NO_COUNTS: tuple[Any, ...] = (
    0,
    -5,
    1,
    5.0,
    float("nan"),
    True,
    "5",
    None,
    2**63,
    10**30,
    np.int64(5),
)


class Lying(Tensor):
    """Says of itself what a server wants to hear."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):  # type: ignore[no-untyped-def]
        return torch.ones(B)


def _shrunk(z: Tensor, n: int) -> Tensor:
    z = z.clone()
    z.untyped_storage().resize_(max(0, z.nbytes - n % (z.nbytes + 1)))
    return z


def _replaced(z: Tensor, n: int) -> Tensor:
    z, value = z.clone(), _EXTREMES[n % len(_EXTREMES)]
    if not z.is_floating_point():
        value = int(min(max(value, -128), 127)) if np.isfinite(value) else -128
    place = torch.tensor([n // len(_EXTREMES) % max(1, z.numel())])
    return (
        z.view(-1).scatter(0, place, torch.full((1,), value, dtype=z.dtype)).view(z.shape)
        if z.numel()
        else z
    )


def _rows_of(z: Tensor, n: int) -> Tensor:
    return (
        z.index_fill(0, torch.tensor([n % len(z)]), (0, 1, 3)[n % 3]) if z.dim() and len(z) else z
    )


# By name: changes a tensor, with a number that says how.
TENSORS: dict[str, Callable[[Tensor, int], Any]] = {
    "type": lambda z, n: z.to(_TYPES[n % len(_TYPES)]),
    "to_sparse": lambda z, n: z.to_sparse(),
    "to_sparse_csr": lambda z, n: z.to_sparse_csr(),
    "to_mkldnn": lambda z, n: z.to_mkldnn(),
    "nested": lambda z, n: torch.nested.nested_tensor([z[: 1 + n % 6], z[1 + n % 6 :]]),
    "quantized": lambda z, n: torch.quantize_per_tensor(z.float(), 0.1, 0, torch.qint8),
    "on meta": lambda z, n: z.to("meta"),
    "shrunk": _shrunk,
    "a number": _replaced,
    "a row": _rows_of,
    "scaled": lambda z, n: z * 10.0 ** (n % 80 - 40),
    "slightly scaled": lambda z, n: z * (1 + 10.0 ** -(1 + n % 8)),
    "fewer rows": lambda z, n: z[: n % (B + 1)],
    "more rows": lambda z, n: torch.cat([z] * (2 + n % 3)),
    "fewer columns": lambda z, n: z[..., : n % (D + 1)],
    "transposed": lambda z, n: z.T,
    "flat": lambda z, n: z.flatten(),
    "one more dimension": lambda z, n: z.unsqueeze(n % 3),
    "expanded": lambda z, n: z[:1, :1].expand(1 << (n % 30), 1 << (n % 20)),
    "overlapping": lambda z, n: torch.as_strided(z, (B, D), (n % 3, n % 2)),
    "a view": lambda z, n: (z.T.contiguous().T, torch.cat([z, z])[B:], torch._neg_view(-z))[n % 3],
    "with a gradient": lambda z, n: z.clone().requires_grad_(),
    "a parameter": lambda z, n: nn.Parameter(z),
    "a subclass": lambda z, n: z.as_subclass(Lying),
    "no tensor": lambda z, n: (
        None,
        z.tolist(),
        z.numpy(),
        z.numpy().tobytes(),
        1.0,
        "z",
        {"z": z},
        [z],
        object(),
    )[n % 9],
}
# By name: changes an update of FedLoGe's.
UPDATES: dict[str, Callable[[dict[Any, Any], int], Any]] = {
    "one less": lambda own, n: {name: t for k, (name, t) in enumerate(own.items()) if k != n % 3},
    "one more": lambda own, n: own | {("labels", 3, None, "", "W")[n % 5]: torch.ones(1)},
    "a list": lambda own, n: list(own.items()),
}


def _valid(kind: str) -> Tensor:
    if kind == "votes":
        return torch.arange(B * D).remainder(10).to(torch.int8).view(B, D)
    z = normalize(torch.randn(B, D, generator=torch.Generator().manual_seed(1)), dim=1)
    return z.clamp(-0.9, 0.9) if kind == "similarities" else z


def _tensors(value: float = 1.0) -> dict[Any, Any]:
    return {
        "w": torch.full((B, D), value),
        "norm.running_var": torch.full((B, D), value),
        "norm.num_batches_tracked": torch.tensor(int(value)),
    }


def _case(draws: random.Random) -> Case:
    kind = draws.choice(KINDS)
    changes = [
        (draws.choice([*TENSORS]), draws.randrange(1 << 16))
        for _ in range(draws.choice((0, 1, 1, 1, 1, 2, 3)))
    ]
    how = draws.choice(("", "", "", "", "twice", "stranger", "late", "counts", "update"))
    told = {"kind": kind, "changes": changes, "how": how, "number": draws.randrange(1 << 16)}
    refused = (
        "a message of a stranger"
        if how == "stranger"
        else "a second message"
        if how == "twice" and not changes
        else ""
    )
    return Case(json.dumps(told).encode(), refused)


def _plain(value: Any) -> bool:
    """Whether torch can change the value again: it crashes over a tensor whose storage was
    shrunk.
    """
    if (
        type(value) is not Tensor
        or value.layout != torch.strided
        or value.is_nested
        or value.is_quantized
    ):
        return False
    return value.is_meta or value.untyped_storage().nbytes() >= value.numel() * value.element_size()


def _changed(value: Any, changes: list[tuple[str, int]]) -> Any:
    for name, number in changes:
        if not _plain(value) or value.numel() > _MOST:
            break
        try:
            value = TENSORS[name](value, number)
        except Exception:  # what torch can't make of it, no user can send
            continue
    return value


def _send(told: dict[str, Any], value: Any) -> Callable[[], Tensor]:
    """Send a message, and once more if that is asked for; what the server then has of it is called
    for.
    """
    kind, how, number = told["kind"], told["how"], told["number"]
    user: Any = _STRANGERS[1 + number % (len(_STRANGERS) - 1)] if how == "stranger" else 5
    one = Server((2, 5), others=1, dim=D, address=(0,))
    one.open(BATCH)
    honest = _valid(kind)
    if kind == "representations":
        batch = _NO_BATCHES[number % len(_NO_BATCHES)] if how == "late" else BATCH
        one.receive(2, BATCH, honest)
        calls = [lambda: one.receive(user, batch, value), lambda: one.receive(5, BATCH, honest)]
        has = one.current
    elif kind == "reference":
        one.receive_reference(2, honest, B)
        calls = [
            lambda: one.receive_reference(user, value, B),
            lambda: one.receive_reference(5, honest, B),
        ]
        has = lambda who: one.reference(who, torch.arange(B))  # noqa: E731
    else:
        took: dict[Any, Tensor] = {2: one.take(2, 2, honest, (B, D), kind, TAKEN[kind])}
        round: Any = (1, -1, 2.0, None)[number % 4] if how == "late" else 2

        def take(who: Any, message: Any, when: Any) -> None:
            took[who] = one.take(who, when, message, (B, D), kind, TAKEN[kind])

        calls = [lambda: take(user, value, round), lambda: take(5, honest, 2)]
        has = took.__getitem__
    try:
        calls[0]()
        if how == "twice":
            calls[0]()
    except RefusedMessage:
        assert torch.equal(has(2), honest), "another user's message is changed"
        if how != "twice":
            calls[1]()
            assert torch.equal(has(5), honest), "a refusal leaves a trace"
        raise
    assert torch.equal(has(2), honest), "another user's message is changed"
    return lambda: has(5)


def _harmless(kind: str, sent: Any, has: Callable[[], Tensor]) -> None:
    """What was taken is in range, and nothing that happens to what was sent changes it."""
    taken, numbers = has(), TAKEN.get(kind, Numbers())
    assert (
        type(taken) is Tensor
        and tuple(taken.shape) == (B, D)
        and taken.dtype in numbers.types
        and not taken.requires_grad
    )
    assert (
        torch.isfinite(taken).all()
        and numbers.low <= float(taken.min())
        and float(taken.max()) <= numbers.high
    ), "numbers out of range"
    if kind in ("representations", "reference"):
        z = taken.float()
        assert ((z.norm(dim=1) - 1).abs() < 0.02).all(), "rows are not of norm 1"
        assert torch.isfinite(muscle_loss(_valid(kind), z[None]))
    before = taken.clone()
    if isinstance(sent, Tensor):
        try:
            sent.detach().fill_(1 if kind == "votes" else torch.nan)
            sent.untyped_storage().resize_(0)
        except RuntimeError:
            pass  # memory that nobody can write to
    assert torch.equal(has(), before), "changed by its sender afterwards"


def _update(told: dict[str, Any]) -> None:
    number, how = told["number"], told["how"]
    one = FedLoGeServer((2, 5), _tensors(), 1.0, (0,))
    one.send(2, 3)
    one.send(5, 3)
    one.receive(2, 3, fedloge.Update(_tensors(2.0), 5))
    tensors: Any = _tensors(3.0)
    tensors["w"] = _changed(tensors["w"], told["changes"])
    if how == "update":
        tensors = [*UPDATES.values()][number % len(UPDATES)](tensors, number // 3)
    count = _NO_COUNTS[number % len(_NO_COUNTS)] if how == "counts" else 5
    client = _STRANGERS[1 + number % (len(_STRANGERS) - 1)] if how == "stranger" else 5
    update: Any = fedloge.Update(tensors, count)
    try:
        one.receive(client, 4 if how == "late" else 3, update)
        if how == "twice":
            one.receive(5, 3, update)
    except RefusedMessage:
        if how != "twice":
            one.receive(5, 3, fedloge.Update(_tensors(2.0), 5))
            one.aggregate()
            assert torch.equal(one.tensors["w"], _tensors(2.0)["w"]), "a refusal leaves a trace"
        raise
    if isinstance(tensors["w"], Tensor):
        tensors["w"].detach().fill_(torch.nan)
    one.aggregate()
    assert all(torch.isfinite(tensor).all() for tensor in one.tensors.values()), (
        "the mean is not finite"
    )


def _read(folder: Any) -> None:
    told = json.loads((folder / KIND.file).read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of prototypes
        try:
            if told["kind"] == "update":
                return _update(told)
            sent = _changed(_valid(told["kind"]), told["changes"])
            has = _send(told, sent)
        except RefusedMessage as error:
            words = str(error)
            if not (
                words.startswith(("user 5 sent", "client 5 sent")) or told["how"] == "stranger"
            ):
                raise AssertionError(f"names no sender: {words}") from None
            raise
        _harmless(told["kind"], sent, has)


KIND = Kind(
    file="message.json",
    prepare=lambda folder: None,
    case=_case,
    read=_read,
    refusals=(RefusedMessage,),
    named="",
)
