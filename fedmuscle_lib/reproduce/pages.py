"""Pages of an executed notebook: HTML that asks no other server for anything, and Markdown without
code.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from fedmuscle_lib.core.files import read_json, write
from fedmuscle_lib.core.notebooks import PROVENANCE, runs_of

EXECUTED, PART = "executed.ipynb", "executed.part.ipynb"  # in a notebook's folder
_OFFLINE = """{% extends 'lab/index.html.j2' %}
{% block html_head_js %}{% endblock %}{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}"""
# A figure is linked, since its file lies beside the page. Printed lines are progress.
_BESIDE = """{% extends 'markdown/index.md.j2' %}
{% block data_png %}{% set name = output.metadata.figure or '' %}
{% if name %}![{{ name | replace('_', ' ') }}]({{ name }}.svg){% endif %}{% endblock %}
{% block data_html %}{{ output.data['text/html'] | plain }}{% endblock %}
{% block stream %}{% if 'keep_output' in cell.metadata.tags %}{{ super() }}{% endif %}{% endblock %}
"""
_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)\s]+)")  # in Markdown


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
    place = os.path.relpath(notebooks, executed.parent)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(
                lambda link: link[1] + os.path.normpath(os.path.join(place, link[2])), cell.source
            )
    text, _ = MarkdownExporter(
        exclude_input=True, raw_template=_BESIDE, filters={"plain": _plain}
    ).from_notebook_node(notebook)
    text = re.sub(r"\s*\n\n\n+", "\n\n", text).strip()
    write(executed.with_name("README.md"), f"{text}\n{origin(executed.parent)}")


def _plain(html: str) -> str:
    """HTML without style sheets, which GitHub would print."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    for sheet in soup("style"):
        sheet.decompose()
    return str(soup).strip()


def origin(folder: Path) -> str:
    """The last lines of a page: how long its runs took, with what, and by which command; nothing
    where no runs are named.
    """
    if not (runs := runs_of(folder)):
        return ""
    provenance = read_json(folder / PROVENANCE)
    made_with = dict.fromkeys(
        f"torch {fact['torch']} on {fact['machine']}" for fact in provenance["made_with"]
    )
    told = (
        f"The {len(runs)} runs behind this page,"
        f" {sum(run['origin'] == 'shipped' for run in runs)} of them shipped, took"
        f" {sum(run['seconds'] for run in runs) / 60:,.0f} minutes one after another"
    )
    return f"\n{told}, with {'; '.join(made_with)}:\n\n```\n{provenance['command']}\n```\n"
