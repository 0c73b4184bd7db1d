"""Numbers in prose, kept true: Markdown marks a quoted result with the CSV row that it comes from.

    Delta is <!-- from figures/mini/controls/delta.csv: public=voc algorithm=fedmuscle -->-0.3 %
    [-1.6, +0.9]<!-- /from -->.

The mark selects one row by ``column=value``; a value with a space stands in quotes:
``algorithm='fedmuscle, M = 5'``. The numbers between the two comments are the row's ``delta``,
``difference`` or ``mean``, then ``ci_low`` and ``ci_high``, or the columns that ``show=mean,std``
names. A mark and its numbers stand in one line after a word, in a notebook in a Markdown cell.

``python -m fedmuscle_lib.report.prose`` writes the numbers anew from the CSV files, each with the
digits and the sign that it had, and ends with an error if a claim is false.

A sentence without numbers is kept true by a claim behind it, which selects a row likewise and says
on which side of 0 its interval is:

    FedMuscle gains over local training.<!-- claim figures/mini/controls/delta.csv: public=voc
    algorithm=fedmuscle is above 0 -->

"undecided" is an interval that includes 0. A row of one seed has no interval and can't be
undecided; there the number's sign counts.

A whole table stands between ``<!-- table NAME -->`` and ``<!-- /table -->``, each on a line of its
own (``reproduced.TABLES``).
"""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path

import pandas as pd

from fedmuscle_lib.core import files
from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.report.claims import selected
from fedmuscle_lib.report.reproduced import TABLES

_PAGES = ("*.md", "docs/**/*.md", "notebooks/**/*.ipynb", "figures/**/*.md")
_BEGIN = "<!-- from "
_AT_START = re.compile(rf'^[ "]*{_BEGIN}', re.MULTILINE)
_QUOTE = re.compile(rf"({_BEGIN}(\S+): (.*?) -->)(.*?)(?=<!-- /from -->)")
_CLAIM = re.compile(r"<!-- claim (\S+): (.*?) is (above 0|below 0|undecided) -->")
_TABLE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- /table -->)", re.DOTALL)
_NUMBER = re.compile(r"[-−+]?\d+(?:\.(\d+))?")


def pages(root: Path = ROOT) -> list[Path]:
    """The files that may quote results."""
    return [
        path
        for pattern in _PAGES
        for path in sorted(root.glob(pattern))
        if ".ipynb_checkpoints" not in path.parts
    ]


def from_csv(text: str, root: Path = ROOT) -> str:
    """``text`` with every marked number and table as the CSV files have it.

    Raises:
        ValueError: a mark is not closed in its line, or begins it, its file, row or columns are not
            there, numbers and columns don't match, or a number is not finite.
    """
    if unclosed := text.count(_BEGIN) - len(_QUOTE.findall(text)):
        raise ValueError(
            f"{unclosed} marks '{_BEGIN}FILE: ROW -->' are misspelt or not closed in their line"
        )
    if at_start := len(_AT_START.findall(text)):
        raise ValueError(
            f"{at_start} lines begin with a mark, which Markdown takes for HTML: put a word"
            " before it"
        )
    text = _TABLE.sub(lambda table: f"{table[1]}\n{TABLES[table[2]](root)}\n\n{table[3]}", text)
    return _QUOTE.sub(lambda quote: _rewritten(quote, root), text)


def _rewritten(quote: re.Match[str], root: Path) -> str:
    mark, file, row, quoted = quote.groups()
    try:
        values = _values(root / file, row)
        if not 1 <= (n := len(_NUMBER.findall(quoted))) <= len(values):
            raise ValueError(f"{n} numbers for {len(values)} columns")
        if not all(map(isfinite, values[:n])):
            raise ValueError(f"{', '.join(map(str, values[:n]))}: not all finite")
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{mark} {error}") from None
    left = iter(values)
    return mark + _NUMBER.sub(lambda number: _printed(next(left), like=number), quoted)


def false_claims(text: str, root: Path = ROOT) -> list[str]:
    """The claims in ``text`` that their CSV files contradict, each with the row's numbers.

    Raises:
        ValueError: a claim is misspelt, or its file, row or columns are not there.
    """
    if misspelt := text.count("<!-- claim ") - len(_CLAIM.findall(text)):
        raise ValueError(
            f"{misspelt} claims are misspelt: <!-- claim FILE: ROW is above 0 -->, or below 0, or"
            " undecided"
        )
    found = []
    for file, row, side in _CLAIM.findall(text):
        try:
            value, *ends = _values(root / file, row)
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(f"{file}: {row}: {error}") from None
        low, high = ends if len(ends) == 2 and all(map(isfinite, ends)) else (value, value)
        true = {"above 0": low > 0, "below 0": high < 0, "undecided": low < 0 < high}[side]
        if not true:
            found.append(f"{file}: {row} is not {side}: {value:+.2f} [{low:+.2f}, {high:+.2f}]")
    return found


def _values(path: Path, row: str) -> list[float]:
    where, _, shown = row.replace('\\"', '"').partition(
        " show="
    )  # a notebook's JSON escapes quotes
    rows = selected(pd.read_csv(path, dtype=str, keep_default_na=False), where)
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows instead of one")
    usual = [
        name
        for name in ("delta", "difference", "mean", "ci_low", "ci_high")
        if name in rows and rows[name].item()
    ]
    return [float(value) for value in rows.iloc[0][shown.split(",") if shown else usual]]


def _printed(value: float, like: re.Match[str]) -> str:
    return f"{value:{'' if like[0][0].isdigit() else '+'}.{len(like[1] or '')}f}"


def rewrite(root: Path = ROOT) -> list[Path]:
    """Write every page's marked numbers anew from the CSV files; returns the pages that changed,
    and raises as :func:`from_csv` does.
    """
    changed = {
        path: fresh
        for path in pages(root)
        if (fresh := from_csv(text := path.read_text(encoding="utf8"), root)) != text
    }
    for path, fresh in changed.items():
        files.write(path, fresh)
    return list(changed)


def _main() -> None:
    print(
        "\n".join(str(path.relative_to(ROOT)) for path in rewrite())
        or "Every quoted number is its CSV file's."
    )
    if wrong := [
        claim for page in pages() for claim in false_claims(page.read_text(encoding="utf8"))
    ]:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    _main()
