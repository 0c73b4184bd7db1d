"""``notebook``: the skeleton of a new ablation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmuscle_lib.reproduce import NOTEBOOKS

SKELETON = Path(__file__).with_name("skeleton.ipynb")


def command(
    name: Annotated[
        str, typer.Argument(help="Of the notebook and of its folder of results, such as depth.")
    ],
    folder: Annotated[Path, typer.Option(help="Where it is laid down.")] = NOTEBOOKS,
) -> None:
    """Lay down the skeleton of an ablation notebook: claim, parameters, runs over one setting,
    table, figure, how to read it. A notebook of this name is left as it is.
    """
    if not name.isidentifier():
        raise ValueError(f"notebook: a name such as depth or my_study is needed, not {name!r}")
    path = folder / f"{name}.ipynb"
    with path.open("x", encoding="utf8") as file:
        file.write(SKELETON.read_text(encoding="utf8").replace("NAME", name))
    print(f"{path}\nrun it: python -m fedmuscle_lib reproduce {name}, or open it in JupyterLab")
