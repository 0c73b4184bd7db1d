"""Lines of code by room, counted by ``tokenize`` without blank lines, comments and docstrings.

``make lint`` prints them.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(source: str) -> int:
    """Count the lines of a module that hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = (
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
    )
    return len(
        {line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings
    )


def by_room(package: str) -> Counter[str]:
    """Count a package's lines of code by its entries."""
    found: Counter[str] = Counter()
    for path in (ROOT / package).rglob("*.py"):
        found[path.relative_to(ROOT / package).with_suffix("").parts[0]] += lines_of_code(
            path.read_text(encoding="utf8")
        )
    return found


if __name__ == "__main__":
    for package in ("fedmuscle_lib", "data_prep", "tests"):
        rooms = by_room(package)
        listed = (
            ""
            if package == "tests"
            else ": " + ", ".join(f"{name} {lines}" for name, lines in rooms.most_common())
        )
        print(f"{package} has {rooms.total():,} lines of code{listed}")
