"""Writes pickles instruction by instruction, also those that no pickler writes."""

from __future__ import annotations

import struct

ARRAYS = b"cnumpy._core.multiarray\n_reconstruct\n"
NDARRAY, DTYPE = b"cnumpy\nndarray\n", b"cnumpy\ndtype\n"
CODECS, FROMBUFFER = b"c_codecs\nencode\n", b"cnumpy._core.numeric\n_frombuffer\n"


def push_text(value: str) -> bytes:
    encoded = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def push_bytes(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


def dict_of(value: bytes, key: bytes = push_text("data")) -> bytes:
    """A pickle of a dict with one item, whose value these instructions push."""
    return b"\x80\x04}" + key + value + b"s."


def push_dtype(name: str, state: bytes = b"") -> bytes:
    return DTYPE + push_text(name) + b"\x89\x88\x87R" + (state + b"b" if state else b"")


def dtype_state(
    order: str = "<",
    objects: bytes = b"NNN",
    size: int = -1,
    alignment: int = -1,
    flags: int = 0,
    version: int = 3,
) -> bytes:
    numbers = b"".join(b"J" + struct.pack("<i", n) for n in (size, alignment, flags))
    return b"(K" + bytes([version]) + push_text(order) + objects + numbers + b"t"


def push_array(dtype: bytes, shape: bytes, content: bytes, version: bytes = b"K\x01") -> bytes:
    return (
        ARRAYS
        + NDARRAY
        + b"K\x00\x85C\x01b\x87R("
        + version
        + shape
        + dtype
        + b"\x89"
        + content
        + b"tb"
    )


U1 = push_dtype("u1", dtype_state("|"))
