"""``RESULTS.md``: FedMuscle in every world, then each notebook with a link to its page in every
profile, from committed files alone.

``python -m fedmuscle_lib.report.results`` writes it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedmuscle_lib.core import files
from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.notebooks import notebook_of
from fedmuscle_lib.report.claims import counted, words
from fedmuscle_lib.report.prose import from_csv
from fedmuscle_lib.report.reproduced import PROFILES, gain, listed
from fedmuscle_lib.report.statistics import markdown
from fedmuscle_lib.report.world_table import variant_in_words

_HEAD = """# Results

`make reference` makes this page from the files below `figures/`; edit nothing here.

## FedMuscle and its controls in every world

Δ is the mean over all users of the improvement over local training, in per cent, after the last
alignment, the end of Algorithm 1. Brackets are 95 % t intervals over seeds; one seed has none.
"Self" is alignment with a user's own frozen copy, "head only" a frozen backbone. Tuned local
training has hyper-parameters that were chosen on the validation split.

<!-- table worlds -->
<!-- /table -->

![The same as a figure](figures/worlds.svg)

## Every notebook

A link leads to a notebook's tables and figures with their source, without code. Its text is a Δ
where one number stands for the notebook: FedMuscle's, that of our `directed`, or in `table3` how
much the Muscle loss changes CreamFL's Δ in small galleries. Verdicts of [corrected
tests](notebooks/claims.ipynb) on the paper's claims follow. `small` has real images, `mini` is a
generated world in which LoRA adapts every block. [Findings](docs/findings.md) says what the results
mean, [README](README.md#what-is-reproduced) why a cell is empty and where Figures 1 and 6 are.

"""


def results_page(root: Path) -> str:
    """The page's text; ``root`` is that of the repository."""
    pages: dict[str, list[Path]] = {}
    for page in sorted(root.glob("figures/*/*/README.md")):
        pages.setdefault(notebook_of(page.parent.name), []).append(page)
    papers = [one["notebook"] for one in listed() if "notebook" in one]
    ordered = sorted(
        pages, key=lambda name: (papers.index(name) if name in papers else len(papers), name)
    )
    profiles = PROFILES[::-1]  # real images first
    rows = [["notebook", *(f"`{profile}`" for profile in profiles)]]
    for name in ordered:
        title = pages[name][0].read_text(encoding="utf8").partition("\n")[0].removeprefix("# ")
        own = {
            profile: [page for page in pages[name] if page.parts[-3] == profile]
            for profile in profiles
        }
        rows.append(
            [
                f"[{title}](notebooks/{name}.ipynb)",
                *("<br>".join(_cell(page, root) for page in own[each]) for each in profiles),
            ]
        )
    return f"{_HEAD}{markdown(rows)}\n"


def _cell(page: Path, root: Path) -> str:
    folder = page.parent
    link = f"[{_headline(folder)}]({page.relative_to(root)})"
    told = ", ".join(filter(None, [link, words(folder.parent).get(folder.name)]))
    return ": ".join(filter(None, [variant_in_words(folder), told]))


def _headline(folder: Path) -> str:
    """The Delta that stands for a notebook, or the verdicts that it counts."""
    rows, notebook = (
        {one["notebook"]: one for one in listed() if "row" in one},
        notebook_of(folder.name),
    )
    if notebook == "controls":
        return gain(folder, {"row": "algorithm=fedmuscle"})
    if folder.name == "claims":
        return counted(pd.read_csv(folder / "claims.csv").word)
    return gain(folder, rows[notebook]) if notebook in rows else "page"


if __name__ == "__main__":
    files.write(ROOT / "RESULTS.md", from_csv(results_page(ROOT)))
