"""The one reader of pickles: it knows numpy's arrays and builtin containers only, and builds them
itself.

Readers of users' files and of captions call it, and ``data_prep`` for archives.

A pickle is a program for a small stack machine. Python's own machine calls what the program names
and sets the state of what it made; this one knows the few instructions that arrays, lists, dicts,
numbers and texts are written with, and refuses a file at the first other one. Numpy never sees what
a file holds before it is checked: an array is made of bytes that fit its shape and a plain type.
"""

from __future__ import annotations

import math
import pickletools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedmuscle_lib.core.errors import DataError, line_of, prefixed, shown, unreadable
from fedmuscle_lib.core.files import read_bytes

# Bounds on a single file: all captions of Flickr30k have half a million instructions.
_MOST_STEPS = 1 << 23
_MOST_REPEATED = (
    1 << 26
)  # bytes of texts and arrays that a file names again instead of holding them again
_DEEPEST = 16  # containers in each other
_SHORT_TUPLE = 8  # such as an array's shape

_READ = "only numpy arrays and builtin containers are read"


def load_pickle(path: Path) -> dict:
    """A dict of arrays, lists, numbers and strings. Arrays can't be written to.

    Raises:
        DataError: the file is missing or truncated, holds no dict, or would run code.
    """
    return parse_pickle(read_bytes(path), str(path))


def parse_pickle(pickled: bytes, name: str) -> dict:
    """Return what :func:`load_pickle` returns, of bytes; Python 2's byte strings are read as
    latin1.

    Raises:
        DataError: naming ``name``; the pickle is truncated, holds no dict, or would run code.
    """
    with unreadable(f"{name}: not a readable pickle", but=(DataError,)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a text's odd escapes
        with prefixed(f"{name}: refused", DataError):
            content = _Machine().run(pickled)
    if not isinstance(content, dict):
        raise DataError(f"{name}: holds a {type(content).__name__}, not a dict")
    return content


def as_array(value: object) -> np.ndarray:
    """The array that a value of a pickle is: an array, or a list of numbers or of arrays of one
    shape and type.

    Raises:
        DataError: it is something else; numpy would make texts of all, or objects.
    """
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, list | tuple):
        raise DataError(f"a {type(value).__name__}, no array")
    if all(isinstance(one, np.ndarray) for one in value) and value:
        if len({(one.shape, one.dtype) for one in value}) > 1:
            raise DataError("no array: its parts differ in shape or type")
        return np.stack(value)
    if odd := [one for one in value if not isinstance(one, int | float | np.number)]:
        raise DataError(f"no array: a list of more than numbers, such as {shown(odd[0])}")
    return np.array(value)


class _Dtype:
    """A type of arrays, which a pickle makes in two steps.

    Its name comes first, the order of its bytes second. What else numpy would let a pickle set,
    such as fields and their offsets, is refused.
    """

    # kinds of numpy.dtype.kind, and sizes in bytes: truth values, integers, floats, complex
    # numbers, texts
    _NAME = re.compile(r"b1|i[1248]|u[1248]|f[248]|c(8|16)|[SU][1-9]\d{0,5}")

    def __init__(self, name: object = None, align: object = None, copy: object = None) -> None:
        if not isinstance(name, str) or not self._NAME.fullmatch(name):
            raise DataError(
                f"it holds an array of type {shown(name)}; only numbers, truth values and texts of"
                " one width are read"
            )
        self.dtype = np.dtype(name)
        self.finished = False

    def build(self, state: object) -> None:
        if self.finished or not isinstance(state, tuple) or len(state) != 8:
            _refuse_state("a type of arrays")
        version, order, *of_objects, size, alignment, flags = state
        written = {"S": (self.dtype.itemsize, 1, 0), "U": (self.dtype.itemsize, 4, 8)}.get(
            self.dtype.kind, (-1, -1, 0)
        )
        if (
            version != 3
            or order not in ("<", ">", "|", "=")
            or of_objects != [None] * 3
            or (size, alignment, flags) != written
        ):
            _refuse_state("a type of arrays")
        self.dtype = self.dtype.newbyteorder(order)
        self.finished = True


class _Array:
    """An array, which a pickle makes in two steps: an empty one, and then its shape, type and
    bytes.
    """

    def __init__(self) -> None:
        self.value: np.ndarray | None = None

    def build(self, state: object) -> None:
        if (
            self.value is not None
            or not isinstance(state, tuple)
            or len(state) != 5
            or state[0] != 1
        ):
            _refuse_state("an array")
        _, shape, dtype, fortran, content = state
        if isinstance(content, str):  # Python 2's bytes
            content = content.encode("latin1")
        self.value = _array(content, dtype, shape, "F" if fortran is True or fortran == 1 else "C")


@dataclass(frozen=True)
class _Global:
    """A name that a pickle may use.

    Attributes:
        call: our stand-in for what Python would call; None for what is only named.
    """

    call: Callable[..., object] | None = None


def _array(content: object, dtype: object, shape: object, order: object) -> np.ndarray:
    if (
        not isinstance(content, bytes | bytearray)
        or not isinstance(dtype, _Dtype)
        or order not in ("C", "F")
    ):
        raise DataError("it holds an array that is not made of a type and bytes")
    if (
        not isinstance(shape, tuple)
        or len(shape) > 8
        or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape)
    ):
        raise DataError(f"it holds an array of shape {shown(shape)}")
    size = math.prod(shape) * dtype.dtype.itemsize
    if size != len(content):
        raise DataError(
            f"it holds an array of {dtype.dtype} {shown(shape)}, {size:,} bytes, with"
            f" {len(content):,} bytes"
        )
    native = dtype.dtype.newbyteorder("=")  # as numpy gives it
    if not size:
        return np.empty(shape, native)
    if dtype.dtype.kind == "b" and np.frombuffer(content, np.uint8).max() > 1:
        raise DataError(
            "it holds an array of truth values some of which are neither true nor false"
        )
    if dtype.dtype.kind == "U":
        codes = np.frombuffer(content, np.dtype(np.uint32).newbyteorder(dtype.dtype.byteorder))
        if (codes > 0x10FFFF).any() or ((codes >= 0xD800) & (codes < 0xE000)).any():
            raise DataError("it holds an array of texts with a character that does not exist")
    array = (
        np.frombuffer(content, dtype.dtype).reshape(shape, order=order).astype(native, copy=False)
    )
    array.flags.writeable = False
    return array


def _reconstruct(kind: object = None, shape: object = None, code: object = None) -> _Array:
    if kind is not _GLOBALS["numpy", "ndarray"]:
        raise DataError("it holds an array of a class that is not numpy's")
    return _Array()


def _frombuffer(
    content: object = None, dtype: object = None, shape: object = None, order: object = None
) -> _Array:
    made = _Array()
    made.value = _array(content, dtype, shape, order)
    return made


def _scalar(dtype: object = None, content: object = None) -> object:
    if isinstance(content, str):
        content = content.encode("latin1")
    return _array(content, dtype, (), "C")[()]


def _encode(text: object = None, code: object = None) -> bytes:
    """Return how protocols before 3 write bytes."""
    if not isinstance(text, str) or code != "latin1":
        raise DataError(
            f"it asks for the encoding {shown(code)}; only latin1, by which pickles hold bytes, is"
            " read"
        )
    return text.encode("latin1")


_GLOBALS = {
    ("numpy", "ndarray"): _Global(),
    ("numpy", "dtype"): _Global(_Dtype),
    ("_codecs", "encode"): _Global(_encode),
}
for _numpy in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _GLOBALS |= {
        (f"{_numpy}.multiarray", "_reconstruct"): _Global(_reconstruct),
        (f"{_numpy}.multiarray", "scalar"): _Global(_scalar),
        (f"{_numpy}.numeric", "_frombuffer"): _Global(_frombuffer),
    }


class _Machine:
    """The stack machine: ``run`` executes a pickle and returns what it leaves."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under each mark
        self.memo: dict[int, Any] = {}
        self.repeated = 0

    def run(self, pickled: bytes) -> object:
        for step, (opcode, argument, position) in enumerate(pickletools.genops(pickled)):
            if step == _MOST_STEPS:
                raise DataError(f"it has more than {_MOST_STEPS:,} instructions")
            execute = _STEPS.get(opcode.name)
            if execute is None:
                raise DataError(
                    f"it uses the instruction {opcode.name} at byte {position:,}; {_READ}"
                )
            execute(self, argument)
        (content,) = self.stack
        if self.below:
            raise ValueError("a mark is left")
        return _finished(content)

    def push(self, value: object) -> None:
        self.stack.append(value)

    def number(self, value: int | float) -> None:
        if isinstance(value, int) and value.bit_length() > 64:
            raise DataError("it holds an integer of more than 64 bits")
        self.push(value)

    def text(self, value: str) -> None:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise DataError(
                    "it holds a text with half a character (a lone surrogate),"
                    f" {shown(value[error.start])}"
                ) from None
        self.push(value)

    def mark(self, _: object) -> None:
        if len(self.below) == _DEEPEST:
            raise DataError(f"its containers lie more than {_DEEPEST} deep in each other")
        self.below.append(self.stack)
        self.stack = []

    def marked(self) -> list[Any]:
        """Return what was pushed since the last mark."""
        values, self.stack = self.stack, self.below.pop()
        return values

    def tuple_of(self, n: int) -> None:
        if len(self.stack) < n:
            raise IndexError("the stack is empty")
        self.stack[-n:] = [tuple(self.stack[-n:])]

    def extend(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise DataError(f"it appends to {_kind(self.stack[-1])}, not to a list")
        self.stack[-1].extend(values)

    def set_items(self, values: list[Any]) -> None:
        into = self.stack[-1]
        if type(into) is not dict:
            raise DataError(f"it sets an item of {_kind(into)}, not of a dict")
        if len(values) % 2:
            raise DataError("it sets an item of a dict without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # other keys can be made to collide: a dict of them would take hours
            if not (isinstance(key, str | bytes) or (type(key) is int and abs(key) < 1 << 20)):
                raise DataError(
                    f"a dict in it has the key {shown(key)}; keys are texts or small integers"
                )
            if key in into:
                raise DataError(f"a dict in it has the key {shown(key)} twice")
            into[key] = value

    def set_item(self, _: object) -> None:
        pair = self.stack[-2:]
        del self.stack[-2:]
        self.set_items(pair)

    def dict_of(self, values: list[Any]) -> None:
        self.push({})
        self.set_items(values)

    def keep(self, place: int | None) -> None:
        self.memo[len(self.memo) if place is None else place] = self.stack[-1]

    def get(self, place: int) -> None:
        """Push a value again.

        A container is refused: a list that holds a list twice doubles with each instruction.
        """
        self.repeated += _weight(self.memo[place])
        if self.repeated > _MOST_REPEATED:
            raise DataError(f"it repeats more than {_MOST_REPEATED:,} bytes")
        self.push(self.memo[place])

    def named(self, name: str) -> None:
        module, _, name = name.partition(" ")
        if (module, name) not in _GLOBALS:
            raise DataError(f"it asks for {line_of(f'{module}.{name}', 80)}; {_READ}")
        self.push(_GLOBALS[module, name])

    def named_on_stack(self, _: object) -> None:
        module, name = self.stack[-2:]
        del self.stack[-2:]
        self.named(f"{module} {name}")

    def call(self, _: object) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if (
            not isinstance(function, _Global)
            or function.call is None
            or not isinstance(arguments, tuple)
            or len(arguments) > 4
        ):
            raise DataError(f"it calls what can't be called; {_READ}")
        try:
            self.push(function.call(*arguments))
        except TypeError:
            raise DataError(f"it calls a function with {len(arguments)} arguments") from None

    def build(self, _: object) -> None:
        state, made = self.stack.pop(), self.stack[-1]
        if not isinstance(made, _Array | _Dtype):
            _refuse_state(_kind(made))
        made.build(state)


def _refuse_state(of: str) -> NoReturn:
    raise DataError(f"it sets a state of {of} that numpy does not write; {_READ}")


def _kind(value: object) -> str:
    names = {_Array: "an array", _Dtype: "a type of arrays", _Global: "a name of numpy's"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


def _weight(value: object) -> int:
    """Bytes of a value that is not held again, but named again."""
    if (
        isinstance(value, tuple)
        and len(value) <= _SHORT_TUPLE
        and not any(isinstance(one, tuple) for one in value)
    ):
        return sum(map(_weight, value))
    if isinstance(value, list | dict | tuple):
        raise DataError(f"it holds the same {type(value).__name__} in two places")
    if isinstance(value, _Array) and value.value is not None:
        return value.value.nbytes
    return len(value) if isinstance(value, str | bytes | bytearray) else 8


def _finished(value: Any, depth: int = 1) -> Any:
    """A value with the arrays in it, and without our stand-ins for numpy's names."""
    if isinstance(value, _Array):
        if value.value is None:
            raise DataError("it holds an array without content")
        return value.value
    if isinstance(value, _Global | _Dtype):
        raise DataError(f"it holds a name of numpy's; {_READ}")
    if not isinstance(value, list | tuple | dict):
        return value
    if depth > _DEEPEST:
        raise DataError(f"its containers lie more than {_DEEPEST} deep in each other")
    if isinstance(value, dict):
        return {key: _finished(one, depth + 1) for key, one in value.items()}
    return type(value)(_finished(one, depth + 1) for one in value)


_Step = Callable[[_Machine, Any], None]
# The instructions that are known. Text is checked; so are numbers that may be long.
_STEPS: dict[str, _Step] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda machine, _: None),
    "MARK": _Machine.mark,
    "NONE": _Machine.push,
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    **dict.fromkeys(
        ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
        _Machine.number,
    ),
    **dict.fromkeys(
        (
            "STRING",
            "BINSTRING",
            "SHORT_BINSTRING",
            "UNICODE",
            "SHORT_BINUNICODE",
            "BINUNICODE",
            "BINUNICODE8",
        ),
        _Machine.text,
    ),
    **dict.fromkeys(("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"), _Machine.push),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.marked())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "LIST": lambda machine, _: machine.push(machine.marked()),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.marked()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "DICT": lambda machine, _: machine.dict_of(machine.marked()),
    "SETITEM": _Machine.set_item,
    "SETITEMS": lambda machine, _: machine.set_items(machine.marked()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.keep),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "GLOBAL": _Machine.named,
    "STACK_GLOBAL": _Machine.named_on_stack,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}
