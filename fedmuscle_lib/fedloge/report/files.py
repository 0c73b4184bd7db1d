"""What a notebook of this system leaves in its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core import files
from fedmuscle_lib.data.labelled_sets import FOLDER
from fedmuscle_lib.fedloge.report.tables import UNSAID, Run, costs, departures, table
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.report import provenance
from fedmuscle_lib.report.provenance import save


def write(histories: Sequence[Run], folder: Path, overview: pd.DataFrame, others: Sequence[Run] = ()) -> None:
    """Write table, costs and departures as CSV files, ``overview.csv``, and where they come from.

    Args:
        overview: the notebook's table as it is to be read, which the page of results and the index show.
        others: runs that the folder's other files are about.
    """
    save(table(histories), folder / "table.csv")
    save(costs(histories), folder / "costs.csv")
    save(departures(histories), folder / "departures.csv")
    save(overview.reset_index(), folder / "overview.csv")
    files.write(folder / "provenance.json", json.dumps(provenance_of([*histories, *others], folder.name), indent=1) + "\n")


def provenance_of(histories: Sequence[Run], folder: str) -> dict[str, Any]:
    """What ``report.provenance.provenance_of`` says of the runs, and what the manifest of their data says."""
    s = histories[0].settings
    names = [{"algorithm": history.settings.algorithm, "seed": history.settings.seed} for history in histories]
    usual = Settings(profile=s.profile).model_dump(mode="json")
    data = provenance.manifests(s.data_dir, [f"{FOLDER}/{s.data}"])
    return provenance.provenance_of(histories, folder, names, usual, UNSAID - {"evaluate_every"}, data)
