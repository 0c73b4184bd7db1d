"""Pickled users: valid ones with an entry that is drawn from a grammar of good and bad
instructions, and scrambled bytes.
"""

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Callable

import numpy as np
from hostile.assembler import (
    ARRAYS,
    CODECS,
    DTYPE,
    FROMBUFFER,
    NDARRAY,
    U1,
    dtype_state,
    push_array,
    push_bytes,
    push_dtype,
    push_text,
)
from hostile.kind import Case, Kind, scrambled

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.tasks import TASKS

SIZE, PICTURES = 8, 6
_OTHER_TYPES = (
    "O",
    "O8",
    "V8",
    "V8",
    "V8",
    "f8,O",
    "M8[s]",
    "m8[s]",
    "f4,f4",
    "U99999999",
    "S2147483647",
    "(2,)u1",
    "a",
    "u3",
    "",
)
_CODECS = (
    "punycode",
    "idna",
    "zlib",
    "rot13",
    "utf-7",
    "unicode_escape",
    "hex",
    "raw_unicode_escape",
    "os",
    "mbcs",
)
_FUNCTIONS = (ARRAYS, NDARRAY, DTYPE, CODECS, FROMBUFFER, b"cnumpy._core.multiarray\nscalar\n")
_FOREIGN = (
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"cnumpy\nload\n",
    b"cnumpy\nndarray.dumps\n",
    b"ccodecs\nopen\n",
    b"cnumpy._core.multiarray\nfrombuffer\n",
)


def _atom(draws: random.Random) -> bytes:
    return draws.choice((
        b"N", b"\x88", b"\x89", b"K" + draws.randbytes(1), b"J" + draws.randbytes(4), b"G" + draws.randbytes(8),
        b"\x8a\x08" + draws.randbytes(8), push_text("é" * draws.randint(0, 9)), push_bytes(draws.randbytes(draws.randint(0, 9))),
        b")", b"]", b"}", b"(lp0\n", b"I01\n",
    ))  # fmt: skip


def _values(draws: random.Random, depth: int = 0) -> bytes:
    """The instructions of a harmless value."""
    if depth > 3 or draws.random() < 0.5:
        return _atom(draws)
    inner = b"".join(_values(draws, depth + 1) for _ in range(draws.randint(0, 4)))
    if draws.random() < 0.3:
        inner = b"".join(
            push_text(f"{i}") + _values(draws, depth + 1) for i in range(draws.randint(0, 3))
        )
        return b"}(" + inner + b"u"
    return draws.choice((b"](" + inner + b"e", b"(" + inner + b"t", b"(" + inner + b"l"))


def _shape(*sides: int) -> bytes:
    return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", side) for side in sides) + b"t"


def _another_type(draws: random.Random) -> bytes:
    state = draws.choice(
        (
            b"",
            dtype_state("|"),
            dtype_state("|", flags=0x3F),
            dtype_state("|", size=8, alignment=1, flags=0x3F),
        )
    )
    return push_array(
        push_dtype(draws.choice(_OTHER_TYPES), state), b"K\x01\x85", push_bytes(b"A" * 8)
    )


def _state_of_a_type(draws: random.Random) -> bytes:
    size, alignment, flags = (draws.choice((-1, 0, 1, 4, 8, 1 << 30, -(1 << 31))) for _ in range(3))
    objects = draws.choice((b"NNN", b"N" + push_text("a") + b"\x85}", b"N})", _values(draws) * 3))
    if (size, alignment, flags, objects) == (-1, -1, 0, b"NNN"):
        flags = 0x3F
    return push_array(
        push_dtype("f8", dtype_state("<", objects, size, alignment, flags)),
        b"K\x01\x85",
        push_bytes(b"A" * 8),
    )


def _unfitting(draws: random.Random) -> bytes:
    sides = [
        draws.choice((-1, 0, 1, 2, 3, 1 << 20, 1 << 31, (1 << 62) + 1))
        for _ in range(draws.randint(1, 4))
    ]
    return push_array(U1, _shape(*sides, 7), push_bytes(draws.randbytes(draws.choice((1, 5, 9)))))


def _codec(draws: random.Random) -> bytes:
    return (
        CODECS
        + push_text("a-" + "9" * draws.choice((1, 100, 480_000)))
        + push_text(draws.choice(_CODECS))
        + b"\x86R"
    )


def _state_of_a_function(draws: random.Random) -> bytes:
    name = draws.choice(("__defaults__", "__kwdefaults__", "__doc__", "__name__", "__module__"))
    return draws.choice(_FUNCTIONS) + draws.choice(
        (b"}" + push_text(name) + b")sb", b"N}" + push_text(name) + b"Ns\x86b")
    )


def _doubled(draws: random.Random) -> bytes:
    n = draws.randint(2, 60)
    if draws.random() < 0.5:
        return (
            b"]q\x00"
            + b"".join(
                b"](h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"eq" + bytes([i])
                for i in range(1, n)
            )
            + b"\x85" * n
        )
    return b")q\x00" + b"".join(
        b"h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"\x86q" + bytes([i])
        for i in range(1, n + 3)
    )


def _deep(draws: random.Random) -> bytes:
    n = draws.choice((20, 100, 5_000, 100_000))
    return draws.choice(
        (
            b"]" * n + b"a" * (n - 1),
            b")" + b"\x85" * n,
            b"(" * n + b"t" * n,
            (b"}" + push_text("a")) * n + b"N" + b"s" * n,
        )
    )


def _repeated(draws: random.Random) -> bytes:
    return (
        b"]("
        + push_text("a" * 1_000_000)
        + b"q\x00"
        + b"h\x00" * draws.choice((100, 100_000))
        + b"e"
    )


def _odd_keys(draws: random.Random) -> bytes:
    key = draws.choice(
        (
            b"N",
            b"G" + draws.randbytes(8),
            b")",
            b")" + b"\x85" * 20_000,
            b"\x8a\x08" + struct.pack("<Q", (1 << 61) - 1),
        )
    )
    return b"}" + key + b"Ns"


def _colliding(draws: random.Random) -> bytes:
    step = (1 << 61) - 1  # all of its multiples have the hash 0
    return (
        b"}("
        + b"".join(
            b"\x8a\x11" + (i * step).to_bytes(17, "little") + b"N"
            for i in range(1, draws.choice((10, 30_000)))
        )
        + b"u"
    )


def _changed(draws: random.Random) -> bytes:
    array = push_array(U1, b"K\x01\x85", push_bytes(b"a"))
    return array + b"(K\x01K\x01\x85" + U1 + b"\x89" + push_bytes(b"b") + b"tb"


# what must be refused, and its draw
_BAD: dict[str, Callable[[random.Random], bytes]] = {
    "an array of another type": _another_type,
    "a type whose state is changed": _state_of_a_type,
    "an array that does not fit its bytes": _unfitting,
    "another codec": _codec,
    "a function whose state is changed": _state_of_a_function,
    "a function as a value": lambda draws: draws.choice(_FUNCTIONS),
    "a foreign function": lambda draws: draws.choice(_FOREIGN) + _values(draws) + b"\x85R",
    "a container in two places": _doubled,
    "deep containers": _deep,
    "a text named again and again": _repeated,
    "keys that can't be compared cheaply": _odd_keys,
    "keys that collide": _colliding,
    "a key twice": lambda draws: b"}" + push_text("a") + _values(draws) + b"s" + push_text("a") + _values(draws) + b"s",
    "half a character": lambda draws: push_text(f"a{chr(draws.randrange(0xD800, 0xE000))}"),
    "an array without content": lambda draws: ARRAYS + NDARRAY + b"K\x00\x85C\x01b\x87R",
    "an array whose content changes": _changed,
}  # fmt: skip


def _whole(draws: random.Random) -> bytes:
    """A valid user's file, written by Python."""
    images = np.frombuffer(draws.randbytes(PICTURES * SIZE * SIZE * 3), np.uint8).reshape(
        PICTURES, SIZE, SIZE, 3
    )
    labels: object = [draws.randrange(10) for _ in range(PICTURES)]
    if draws.random() < 0.3:
        labels = np.array(labels)
    return pickle.dumps({"data": images, "labels": labels}, draws.randint(2, 5))


def _case(draws: random.Random) -> Case:
    whole = _whole(draws)
    choice = draws.random()
    if choice < 0.02:
        return Case(draws.choice(("pipe", "device", "folder")), "no file")
    if choice < 0.35:
        return Case(scrambled(whole, draws))
    why, bad = draws.choice([*_BAD.items()]) if choice < 0.9 else ("", _values)
    entry = push_text("x") + bad(draws) + b"s."
    if choice < 0.45:
        return Case(whole[:-1] + scrambled(entry, draws))
    return Case(whole[:-1] + entry, why)


KIND = Kind(
    file=f"{TASKS['IC10'].folder}/train/client_0.pkl",
    prepare=lambda folder: None,
    case=_case,
    read=lambda folder: TASKS["IC10"].read(folder, 0, "train", Pixels(SIZE)),
    refusals=(DataError,),
)
