"""Write the tables of README, RESULTS.md and findings, whose rows ``results.toml`` lists."""

import re
import tomllib
from pathlib import Path

import pandas as pd

from fedmuscle_lib.core.files import ROOT, write
from fedmuscle_lib.core.notebooks import FIGURES, notebook_of
from fedmuscle_lib.fedmuscle.arms import label
from fedmuscle_lib.report.provenance import world_in_words
from fedmuscle_lib.report.statistics import markdown, with_interval

LISTED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf8"))
RIVALS: dict[str, str] = LISTED["rivals"]  # by arm, what the ledger calls them
_ROWS = {one["notebook"]: one for one in LISTED["row"] if "notebook" in one}


def cell(path: Path, where: dict[str, object]) -> dict:
    """The row of a CSV file that has these values; raises ValueError unless it is one."""
    rows = pd.read_csv(path)
    (found,) = rows[(rows[list(where)] == list(where.values())).all(axis=1)].to_dict("records")
    return found


def word(profile: str, **claim: str) -> str:
    """The ledger's word on a claim, after a comma; empty where it has none."""
    rows = pd.read_csv(FIGURES / profile / "claims/claims.csv").reindex(columns=[*claim, "word"])
    own = rows[(rows[list(claim)] == list(claim.values())).all(axis=1)].word.dropna()
    return f", {own.iloc[0]}" if len(own) else ""


def number(row: dict) -> str:
    """A row's Delta or difference with its interval, which no line breaks."""
    value = row["delta"] if "delta" in row else row["difference"]
    return with_interval(value, row["ci_low"], row["ci_high"], 1).replace(" ", "\N{NO-BREAK SPACE}")


def link(folder: Path) -> str:
    """What stands for a folder of results, with the ledger's word; it leads there."""
    one, place = _ROWS.get(notebook_of(folder.name), {}), folder.relative_to(ROOT)
    file = folder / one.get("file", "delta.csv")
    text = number(cell(file, one["row"])) if "row" in one else "page"
    said = word(folder.parent.name, claim=one.get("claim", "")) if folder.name in _ROWS else ""
    return f"[{text}]({place}/README.md){said}"


def delta_of_worlds() -> pd.DataFrame:
    """``delta.csv`` of every world that has one, beside what ``results.toml`` says of it."""
    paths = {FIGURES / one["folder"] / "delta.csv": one for one in LISTED["world"]}
    return pd.concat(pd.read_csv(path).assign(**paths[path]) for path in paths if path.exists())


def worlds() -> str:
    """Delta of ``RIVALS`` in every world; the ledger's words are on FedMuscle above each."""
    rows = [["Δ over local training, %", *map(label, RIVALS)], ["the paper", "+26.7", "", "", ""]]
    found = delta_of_worlds().set_index("algorithm")
    for (world, where, folder), own in found.groupby(["world", "ledger", "folder"], sort=False):
        rows.append([world])
        for arm, rival in RIVALS.items():
            said = word(folder.split("/")[0], where=where, claim=f"FedMuscle above {rival}")
            rows[-1].append(number(own.loc[arm].to_dict()) + said)
    return markdown(rows)


def reproduced() -> str:
    """Each table and figure of the paper, and ours: the paper's number and links to ours."""
    rows = [["the paper", "", "its Δ, %", "`mini`", "`small`", ""]]
    for one in LISTED["row"]:
        folders = [FIGURES / name / one.get("notebook", "none") for name in ("mini", "small")]
        ours = [link(own) if own.exists() else one.get("lacks", "not run") for own in folders]
        page = one.get("page") or f"notebooks/{one['notebook']}.ipynb"
        rows.append([one["paper"], one["shows"], one.get("printed", ""), *ours, f"[open]({page})"])
    return markdown(rows)


def every_page() -> str:
    """Each notebook with links to its results."""
    rows, pages = [["notebook", "results"]], sorted(FIGURES.glob("*/*/README.md"))
    for name in dict.fromkeys([*_ROWS, *(notebook_of(page.parts[-2]) for page in pages)]):
        own = [page for page in pages if notebook_of(page.parts[-2]) == name]
        title = own[0].read_text(encoding="utf8").partition("\n")[0].strip("# ")
        links = [f"{world_in_words(page.parent)}: {link(page.parent)}" for page in own]
        rows.append([f"[{title}](notebooks/{name}.ipynb)", "<br>".join(links)])
    return markdown(rows)


TABLES = {"README.md": reproduced, "RESULTS.md": every_page, "docs/findings.md": worlds}


def page(name: str) -> str:
    """A page with its table, the only one that it has, as the CSV files have it."""
    text, table = (ROOT / name).read_text(encoding="utf8"), TABLES[name]()
    return re.sub(r"(^\|.*\n)+", lambda _: f"{table}\n", text, count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    for name in TABLES:
        write(ROOT / name, page(name))
