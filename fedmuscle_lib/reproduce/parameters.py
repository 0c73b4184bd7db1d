"""The parameters of a notebook: what its parameters cell declares, and values that arrive as text."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, TypeVar

from fedmuscle_lib.core.errors import shown

_TYPES: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict}
_EXAMPLES = {list: "[0, 1]", dict: '{"rounds": 2}'}
Value = TypeVar("Value", list[Any], dict[str, Any])


def literal(name: str, value: Any, kind: type[Value]) -> Value:
    """Return the parameter ``name`` as a ``kind``: ``papermill -p`` hands lists and dicts over as text.

    >>> literal("seeds", "[0, 1]", list)
    [0, 1]

    Raises:
        ValueError: ``value`` is not a ``kind`` and is no text of one; the message names the parameter.
    """
    try:
        read = ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # the last two: too deep for the parser
        read = value
    if not isinstance(read, kind):
        raise ValueError(f"parameter {name}: expected a {kind.__name__} such as {_EXAMPLES[kind]}, got {shown(value)}")
    return read


def declared_parameters(path: Path) -> dict[str, str]:
    """Names and annotated types of a notebook's parameters cell."""
    import papermill  # seconds, which a notebook that imports `literal` need not wait for

    found = papermill.inspect_notebook(str(path))
    return {name: parameter["inferred_type_name"].split("[")[0] for name, parameter in found.items()}


def fits(value: Any, type_name: str) -> bool:
    """Whether a parameter that is annotated with ``type_name`` can take ``value``; a whole number is a float too."""
    if isinstance(value, bool):
        return type_name == "bool"
    return isinstance(value, _TYPES.get(type_name, object))
