"""No pickle runs code, changes the process, crashes it or keeps it busy: each is read, or refused
in one line that names the file.
"""

from __future__ import annotations

import ast
import codecs
import os
import pickle
import struct
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hostile.assembler import (
    ARRAYS,
    CODECS,
    FROMBUFFER,
    NDARRAY,
    U1,
    dict_of,
    dtype_state,
    push_array,
    push_bytes,
    push_dtype,
    push_text,
)

from fedmuscle_lib.core.errors import DataError, line_of, shown
from fedmuscle_lib.core.files import read_bytes
from fedmuscle_lib.data.pickles import as_array, load_pickle, parse_pickle

# what the refusal says, and the instructions that push the value
HOSTILE = {
    # numpy would take the eight bytes for a pointer to an object
    "a type made objects by its state": (
        "array of type 'V8'",
        push_array(
            push_dtype("V8", dtype_state("|", b"NNN", 8, 1, 0x3F)),
            b"K\x01\x85",
            push_bytes(b"A" * 8),
        ),
    ),
    "objects": (
        "array of type 'O8'",
        push_array(
            push_dtype("O8", dtype_state("|", flags=0x3F)), b"K\x01\x85", push_bytes(b"A" * 8)
        ),
    ),
    "objects by flags": (
        "state of a type of arrays",
        push_array(push_dtype("f8", dtype_state(flags=0x3F)), b"K\x01\x85", push_bytes(b"A" * 8)),
    ),
    "fields": (
        "array of type 'V8'",
        push_array(
            push_dtype(
                "V8",
                b"(K\x03"
                + push_text("|")
                + b"N"
                + push_text("a")
                + b"\x85}"
                + push_text("a")
                + b"K\x00\x86sJ\x08\x00\x00\x00K\x01K\x00t",
            ),
            b"K\x01\x85",
            push_bytes(b"A" * 8),
        ),
    ),
    "a type whose size is changed": (
        "state of a type of arrays",
        push_array(
            push_dtype("U2", dtype_state("<", b"NNN", 1 << 30, 4, 8)),
            b"K\x01\x85",
            push_bytes(b"A" * 8),
        ),
    ),
    "a type of many fields by its name": (
        "array of type 'f8,f8,f8,f8",
        push_array(push_dtype("f8," * 1000 + "f8"), b"K\x01\x85", push_bytes(b"A" * 8)),
    ),
    "a type of 2 GB": (
        "array of type 'U536870911'",
        push_array(push_dtype("U536870911"), b"K\x00\x85", push_bytes(b"")),
    ),
    "a type that changes itself": (
        "state of a type of arrays",
        push_dtype("u1", dtype_state("|")) + dtype_state("|") + b"b",
    ),
    "a function whose defaults are changed": (
        "state of a name of numpy's",
        FROMBUFFER + b"}" + push_text("__defaults__") + b")s" + b"b",
    ),
    "a function whose attributes are changed": (
        "state of a name of numpy's",
        FROMBUFFER + b"N}" + push_text("__kwdefaults__") + b"}s\x86b",
    ),
    "numpy's class, changed": (
        "state of a name of numpy's",
        NDARRAY + b"}" + push_text("x") + b"K\x01sb",
    ),
    "a function as a value": ("holds a name of numpy's", FROMBUFFER),
    "a class as a value in a tuple": ("holds a name of numpy's", NDARRAY + b"\x85"),
    "ndarray itself called": ("calls what can't be called", NDARRAY + b"(K\x07K\x07K\x07t\x85R"),
    "ndarray over a given buffer": (
        "calls what can't be called",
        NDARRAY + b"(K\x08\x85" + push_dtype("u1") + push_bytes(b"a") + b"J\xff\xff\xff\x7ftR",
    ),
    "a hollow array of 16 TB": (
        "calls what can't be called",
        NDARRAY + b"\x8a\x06\x00\x00\x00\x00\x00\x10\x85\x85R",
    ),
    "an array of 1 GB without bytes": (
        "holds an array of uint8 (1073741824,), 1,073,741,824 bytes, ",
        push_array(U1, b"J\x00\x00\x00\x40\x85", push_bytes(b"")),
    ),
    "an array of more bytes than its shape": (
        "holds an array of uint8 (2,), 2 bytes, with 3 bytes",
        push_array(U1, b"K\x02\x85", push_bytes(b"abc")),
    ),
    "a shape that overflows": (
        "holds an integer of more than 64 bits",
        push_array(
            U1,
            b"\x8a\x09\x01\x00\x00\x00\x00\x00\x00\x00\x01\x8a\x09\x01\x00\x00\x00\x00\x00\x00\x00\x01\x86",
            push_bytes(b"a"),
        ),
    ),
    "a negative shape": (
        "holds an array of shape (-1, -1)",
        push_array(U1, b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86", push_bytes(b"a")),
    ),
    "a shape of truth values": (
        "holds an array of shape (True,)",
        push_array(U1, b"\x88\x85", push_bytes(b"a")),
    ),
    "a shape of 60 sides": (
        "holds an array of shape (1, 1, 1, 1, 1, 1, ...)",
        push_array(U1, b"(" + 60 * b"K\x01" + b"t", push_bytes(b"a")),
    ),
    "an array without content": (
        "holds an array without content",
        ARRAYS + NDARRAY + b"K\x00\x85C\x01b\x87R",
    ),
    "an array whose content changes": (
        "state of an array",
        push_array(U1, b"K\x01\x85", push_bytes(b"a"))
        + b"(K\x01K\x01\x85"
        + U1
        + b"\x89"
        + push_bytes(b"a")
        + b"tb",
    ),
    "an array of another class": (
        "holds an array of a class that is not numpy's",
        ARRAYS + CODECS + b"K\x00\x85C\x01b\x87R",
    ),
    "truth values of 7": (
        "holds an array of truth values some of which are neither tru",
        push_array(push_dtype("b1", dtype_state("|")), b"K\x01\x85", push_bytes(b"\x07")),
    ),
    "texts of characters that do not exist": (
        "holds an array of texts with a character that does not exist",
        push_array(
            push_dtype("U1", dtype_state("<", b"NNN", 4, 4, 8)),
            b"K\x01\x85",
            push_bytes(b"\xff" * 4),
        ),
    ),
    "texts of half characters": (
        "holds an array of texts with a character that does not exist",
        push_array(
            push_dtype("U1", dtype_state("<", b"NNN", 4, 4, 8)),
            b"K\x01\x85",
            push_bytes(b"\x00\xd8\x00\x00"),
        ),
    ),
    "480 kB in punycode": (
        "asks for the encoding 'punycode'",
        CODECS + push_text("a-" + "9" * 480_000) + push_text("punycode") + b"\x86R",
    ),
    "a codec that imports": (
        "asks for the encoding 'os'",
        CODECS + push_text("abc") + push_text("os") + b"\x86R",
    ),
    "a codec that unpacks": (
        "asks for the encoding 'zlib'",
        CODECS + push_bytes(b"x\x9c") + push_text("zlib") + b"\x86R",
    ),
    "bytes by a codec with a handler": (
        "calls a function with 3 arguments",
        CODECS + push_text("é") + push_text("latin1") + push_text("x") + b"\x87R",
    ),
    "a list doubled 40 times": (
        "holds the same list in two places",
        b"]q\x00"
        + b"".join(
            b"]q" + bytes([i]) + b"h" + bytes([i - 1]) + b"ah" + bytes([i - 1]) + b"a"
            for i in range(1, 41)
        ),
    ),
    "a tuple doubled 40 times": (
        "holds the same tuple in two places",
        b")q\x00"
        + b"".join(
            b"h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"\x86q" + bytes([i])
            for i in range(1, 41)
        ),
    ),
    "a list in itself": ("holds the same list in two places", b"]q\x00h\x00a"),
    "lists 100,000 deep": (
        "its containers lie more than 16 deep in each other",
        b"]" * 100_000 + b"a" * 99_999,
    ),
    "tuples 100,000 deep": (
        "its containers lie more than 16 deep in each other",
        b")" + b"\x85" * 100_000,
    ),
    "dicts 100,000 deep": (
        "its containers lie more than 16 deep in each other",
        b"".join([b"}" + push_text("a")] * 100_000) + b"K\x00" + b"s" * 100_000,
    ),
    "100,000 marks": ("its containers lie more than 16 deep in each other", b"(" * 100_000),
    "a deep tuple for a key": (
        "a dict in it has the key (((((((...),),),),),),)",
        b"})" + b"\x85" * 100_000 + b"K\x01s",
    ),
    "keys that collide": (
        "a dict in it has the key 1099511627783",
        b"}("
        + b"".join(b"\x8a\x08" + struct.pack("<Q", (i << 40) + 7) + b"N" for i in range(1, 1000))
        + b"u",
    ),
    "a memo of 4 billion places": (
        "not a readable pickle (KeyError",
        b"Nr\xff\xff\xff\xffj\xfe\xff\xff\xff",
    ),
    "a text that says it has 4 GB": ("not a readable pickle (ValueError", b"X\xff\xff\xff\xffabc"),
    "bytes that say they have 8 EB": (
        "not a readable pickle (ValueError",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc",
    ),
    "a text of 1 MB a million times": (
        "repeats more than 67,108,864 bytes",
        b"](" + push_text("a" * 1_000_000) + b"q\x00" + b"h\x00" * 1_000_000 + b"e",
    ),
    "an array of 1 MB a thousand times": (
        "repeats more than 67,108,864 bytes",
        b"("
        + push_array(U1, b"J\x00\x00\x10\x00\x85", push_bytes(b"a" * (1 << 20)))
        + b"q\x00"
        + b"h\x00" * 1000
        + b"l",
    ),
    "an integer of 2 GB": ("not a readable pickle (ValueError", b"\x8b\xff\xff\xff\x7f" + b"\x01"),
    "an integer of 255 bytes": (
        "holds an integer of more than 64 bits",
        b"\x8a\xff" + b"\x7f" * 255,
    ),
    "an integer of 100,000 digits": (
        "not a readable pickle (ValueError",
        b"I" + b"9" * 100_000 + b"\n",
    ),
    "half a character": (
        "holds a text with half a character (a lone surrogate), '\\ud8",
        push_text("\ud800"),
    ),
    "half a character for a key": (
        "holds a text with half a character (a lone surrogate), '\\udc",
        b"}" + push_text("\udc80") + b"Ns",
    ),
    "a key twice": (
        "a dict in it has the key 'a' twice",
        b"}" + push_text("a") + b"Ns" + push_text("a") + b"Ns",
    ),
    "an item without a value": (
        "sets an item of a dict without a value",
        b"}(" + push_text("a") + b"u",
    ),
    "an item of a number": (
        "sets an item of a value of type int, not of a dict",
        b"K\x01(" + push_text("a") + b"Nu",
    ),
    "appending to an array": (
        "appends to an array, not to a list",
        push_array(U1, b"K\x01\x85", push_bytes(b"a")) + b"K\x01a",
    ),
    "a persistent name": ("uses the instruction PERSID at byte 12", b"P/etc/passwd\n"),
    "an extension": ("uses the instruction EXT1 at byte 12", b"\x82\x01"),
    "an object without a constructor": (
        "uses the instruction NEWOBJ at byte 28",
        NDARRAY + b")\x81",
    ),
    "an instance": ("uses the instruction INST at byte 13", b"(inumpy\nndarray\n"),
    "a set": ("uses the instruction EMPTY_SET at byte 12", b"\x8f"),
    "a buffer from elsewhere": ("uses the instruction NEXT_BUFFER at byte 12", b"\x97"),
    "a name with a terminal's commands": (
        "asks for \\x1b[2J\\x1b]0;x\\x07.system",
        b"c\x1b[2J\x1b]0;x\x07\nsystem\n",
    ),
    "a name of 1 MB": (
        "asks for aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"c" + b"a" * 1_000_000 + b"\nb\n",
    ),
    "an attribute of an attribute": (
        "asks for numpy.ndarray.dumps",
        b"\x8c\x05numpy\x8c\x0dndarray.dumps\x93",
    ),
    "an unknown instruction": ("not a readable pickle (ValueError", b"\xff"),
    "nothing on the stack": ("uses the instruction POP at byte 12", b"0000a"),
}


def _numpys_state() -> tuple:
    """What the known attacks on numpy's functions change, and how numpy reads and writes."""
    from numpy._core import multiarray, numeric

    functions = (numeric._frombuffer, multiarray._reconstruct, codecs.encode)
    own = [
        (getattr(f, "__defaults__", 0), getattr(f, "__kwdefaults__", 0), getattr(f, "__code__", 0))
        for f in functions
    ]
    array = np.arange(4, dtype=np.float64)
    return (
        own,
        sorted(vars(numeric._frombuffer)),
        pickle.loads(pickle.dumps(array, 5)).tolist(),
        repr(np.dtype("V8")),
        repr(np.dtype("f8")),
    )


@pytest.mark.parametrize(("why", "attack"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pickle_is_refused_in_a_line(tmp_path, why, attack):
    path = tmp_path / "client_0.pkl"
    path.write_bytes(dict_of(attack))
    before = _numpys_state()
    with pytest.raises(DataError) as refusal:
        load_pickle(path)
    text = str(refusal.value)
    assert why in text
    assert text.startswith(str(path)) and text.isprintable() and len(text) < 500 + len(str(path))
    assert _numpys_state() == before


def test_the_known_attacks_are_read_without_their_sting():
    """The instructions that the attacks are made of are those of valid files: nothing above is
    refused for being written wrongly.
    """
    whole = dict_of(push_array(U1, b"K\x03\x85", push_bytes(b"abc")))
    assert (
        parse_pickle(whole, "x")["data"].tolist()
        == [97, 98, 99]
        == pickle.loads(whole)["data"].tolist()
    )
    assert parse_pickle(dict_of(CODECS + push_text("é") + push_text("latin1") + b"\x86R"), "x") == {
        "data": b"\xe9"
    }
    assert parse_pickle(dict_of(b"](" + push_text("é") + b"q\x00h\x00e"), "x") == {
        "data": ["é", "é"]
    }


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "kind", ["?", "u1", ">u2", "i8", ">i8", "f2", ">f8", "c16", "U3", ">U3", "S2"]
)
def test_arrays_are_what_python_reads(kind, protocol):
    values = np.random.default_rng(0).integers(0, 2, (2, 3, 4)).astype(kind)
    content = {
        "c": values,
        "f": np.asfortranarray(values[::-1]),
        "single": values[0, 0, 0],
        "shape ()": np.array(values[0, 0, 0]),
        "numbers": [1, -(2**40), 2.5, None, True],
        "texts": ("é€😀", b"x"),
    }
    if protocol > 2:  # before, Python writes nothing as a call of ``bytes``
        content["none"] = values[:0]
    pickled = pickle.dumps(content, protocol)
    ours, python = parse_pickle(pickled, "x"), pickle.loads(pickled)
    plain = ("numbers", "texts")
    assert list(ours) == list(python) and repr([ours[name] for name in plain]) == repr(
        [python[name] for name in plain]
    )
    for name in python.keys() - set(plain):
        assert type(ours[name]) is type(python[name]) and np.array_equal(ours[name], python[name])
        assert ours[name].dtype == python[name].dtype.newbyteorder(
            "="
        )  # of which protocol 5 alone keeps another


def test_arrays_are_not_for_writing():
    """They look into the file's bytes: no copy is made of what may be a gigabyte."""
    array = parse_pickle(pickle.dumps({"data": np.zeros(3)}), "x")["data"]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            ["a" * 1000, *[1] * 1000],
            "more than numbers",
        ),  # numpy would write a thousand texts of a thousand characters
        ([[1, 2], [3]], "more than numbers"),
        ([np.zeros(2), np.zeros(3)], "differ in shape"),
        ([np.zeros(2), np.zeros(2, int)], "differ in shape or type"),
        ([None], "more than numbers"),
        ("12", "a str, no array"),
        ({}, "a dict, no array"),
    ],
)
def test_numpy_guesses_no_array(value, why):
    with pytest.raises(DataError, match=why):
        as_array(value)


def test_lists_of_numbers_and_of_arrays_are_arrays():
    assert as_array([1, np.uint8(2), True]).tolist() == [1, 2, 1]
    assert as_array([np.zeros((2, 2)), np.ones((2, 2))]).shape == (2, 2, 2)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names")
@pytest.mark.parametrize(
    ("place", "why"),
    [
        pytest.param(_pipe, "a pipe or a device", id="pipe"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "a pipe or a device", id="device"),
        pytest.param(Path.mkdir, "directory", id="folder"),
        pytest.param(
            lambda path: path.symlink_to(path.name), "symbolic links", id="link to itself"
        ),
    ],
)
def test_what_is_no_file_is_refused_at_once(tmp_path, place, why):
    path = tmp_path / "client_0.pkl"
    place(path)
    found: list[str] = []

    def read():
        try:
            read_bytes(path)
        except DataError as error:
            found.append(str(error))

    reader = threading.Thread(
        target=read, daemon=True
    )  # a reader that waits for the pipe's other end would wait for ever
    reader.start()
    reader.join(10)
    assert found and str(path) in found[0] and why in found[0]


def test_a_file_may_be_too_large(tmp_path):
    path = tmp_path / "client_0.pkl"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(DataError, match=r"client_0\.pkl: larger than 4,294,967,296 bytes"):
        load_pickle(path)


@pytest.mark.parametrize(
    "value",
    [
        "\x1b[2J",
        "a\nb",
        "\ud800",
        "x" * 1000,
        ["y" * 1000] * 1000,
        {"a": {"b": {}}},
        np.zeros(100),
        10**4000,
    ],
)
def test_values_are_shown_on_a_short_line(value):
    text = shown(value)
    assert text.isprintable() and text.isascii() and len(text) <= 300


def test_an_escape_reads_back_as_the_character_that_it_stands_for():
    text = "\x1b \x7f \u200b \U000e0001 \ud800"
    escaped = line_of(text)
    assert escaped.isascii() and ast.literal_eval(f"'{escaped}'") == text
