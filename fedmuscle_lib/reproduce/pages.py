"""Pages of an executed notebook: HTML that asks no other server for anything, and Markdown without
code.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import read_json, write
from fedmuscle_lib.core.notebooks import PROVENANCE, runs_of

_OFFLINE = """{% extends 'lab/index.html.j2' %}
{% block html_head_js %}{% endblock %}{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}"""
_FIGURE = re.compile(r'plots\.save\(\w+, folder, "(\w+)"')
_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)\s]+)")
_MARK = re.compile(r"<!-- /?from.*?-->")  # of a number that comes from a CSV file
_WORDS = {
    "ci_low": "95 % from",
    "ci_high": "to",
    "delta": "Δ",
    "rho": "ρ",
    "tau": "τ",
    "sse_c": "SSE-C",
}  # of columns
_UNIT = re.compile(r"_([kmg]i?b)$")
_COLUMN = re.compile(r"(?<=<th>)(?:n_)?(\w*[a-z]\w*)(?=</th>)")
_HEAD = re.compile(r"<thead>.*?</thead>", re.DOTALL)
_NUMBERED = re.compile(
    r"(<thead>\s*<tr[^>]*>)<th></th>((?:<th>[^<]+</th>)+</tr></thead><tbody>(?:\s*<tr><th>\d+</th>(?:<td>[^<]*</td>)+</tr>)+</tbody>)"
)
_NUMBER = re.compile(r"(<tr>)<th>\d+</th>")
_INTERVAL = re.compile(
    r"<td>(?=[+-]?\d[\d.]* (?:±|\[))"
)  # a value that must not be parted from its interval
_LAYOUT = re.compile(
    r"<style.*?</style>|</?div>|(?<=>)\s+(?=<(?!tr))", re.DOTALL
)  # of pandas' tables


def export(executed: Path, notebooks: Path) -> None:
    """Write ``executed.html`` and ``README.md`` beside the notebook ``executed``, whose links start
    in the folder ``notebooks``.
    """
    # seconds, as the next line, which a notebook that imports this package need not wait for
    import nbformat
    from nbconvert import HTMLExporter, MarkdownExporter

    logging.getLogger("traitlets").setLevel(logging.ERROR)  # it would miss alternative texts
    notebook = nbformat.read(executed, as_version=4)
    page, _ = HTMLExporter(embed_images=True, raw_template=_OFFLINE).from_notebook_node(notebook)
    write(executed.with_name("executed.html"), page)
    text, _ = MarkdownExporter(exclude_input=True).from_notebook_node(
        _as_read(notebook, os.path.relpath(notebooks, executed.parent))
    )
    text = re.sub(r"\s*\n\n\n+", "\n\n", _MARK.sub("", text)).strip()
    write(executed.with_name("README.md"), f"{text}\n{origin(executed.parent)}")


def origin(folder: Path) -> str:
    """The last lines of a page: how long its runs took, with what, and by which command; nothing
    where no runs are named.
    """
    try:
        runs, provenance = runs_of(folder), read_json(folder / PROVENANCE)
        made_with = "; ".join(
            dict.fromkeys(
                f"torch {fact['torch']} on {fact['machine']}" for fact in provenance["made_with"]
            )
        )
        minutes, command = sum(run["seconds"] for run in runs) / 60, provenance["command"]
        shipped = sum(run["origin"] == "shipped" for run in runs)
    except (DataError, KeyError, TypeError):  # the index page says what is wrong
        return ""
    told = (
        f"The {len(runs)} runs behind this page, {shipped} of them shipped, took {minutes:,.0f}"
        " minutes one after another"
    )
    return f"\n{told}, with {made_with}:\n\n```\n{command}\n```\n"


def _as_read(notebook: Any, place: str) -> Any:
    """The notebook as a page beside its figures: these are linked, and links of its text start at
    ``place``.
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(
                lambda link: link[1] + os.path.normpath(os.path.join(place, link[2])), cell.source
            )
            continue
        names, outputs = iter(_FIGURE.findall(cell.source)), []
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                data["text/html"] = _in_words(_LAYOUT.sub("", data["text/html"]))
            if any(kind.startswith("image/") for kind in data):
                name = next(names, "")
                output.data = (
                    {"text/markdown": f"![{name.replace('_', ' ')}]({name}.svg)"} if name else {}
                )
            if output.output_type != "stream" or "keep_output" in cell.metadata.get(
                "tags", []
            ):  # else it is progress
                outputs.append(output)
        cell.outputs = outputs
    return notebook


def _in_words(table: str) -> str:
    """A table of pandas' for reading: columns named in words, no running numbers of rows, and
    nothing where there is no value.
    """
    table = _NUMBERED.sub(lambda found: found[1] + _NUMBER.sub(r"\1", found[2]), table)
    table = _HEAD.sub(lambda head: _COLUMN.sub(_in_word, head[0]), table).replace(
        "<td>NaN</td>", "<td></td>"
    )
    return _INTERVAL.sub("<td nowrap>", table)


def _in_word(column: re.Match[str]) -> str:
    name = _UNIT.sub(lambda unit: f", {unit[1].upper().replace('I', 'i')}", column[1])
    return _WORDS.get(name) or " ".join(_WORDS.get(word, word) for word in name.split("_"))
