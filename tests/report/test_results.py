"""The page of results leads to every notebook's page and has the numbers of the CSV files."""

from shutil import copyfile

import pytest

from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.report.claims import registered
from fedmuscle_lib.report.results import results_page

DELTA = "public,algorithm,delta,ci_low,ci_high,paper_delta\nvoc,local,0,0,0,0\nvoc,fedmuscle,{},-1.5985,0.9241,26.7\n"


def entry(root, place, title, delta=None):
    folder = root / "figures" / place
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(f"# {title}\n\nText.\n")
    if delta is not None:
        (folder / "delta.csv").write_text(DELTA.format(delta))


@pytest.fixture
def root(tmp_path):
    """A repository with pages of four notebooks in two profiles, and what else may lie beside
    them.
    """
    entry(tmp_path, "mini/audit", "Audit")
    entry(tmp_path, "mini/table7", "Table 7: losses", -0.3372)
    entry(tmp_path, "mini/table1", "Table 1: algorithms", 2)
    entry(tmp_path, "small/table1", "Table 1: algorithms", 3)
    entry(tmp_path, "small/controls", "Controls", 4)
    entry(tmp_path, "small/controls_setup1_vit", "Controls", 5)
    entry(tmp_path, "mini/claims", "Claims")
    copyfile(
        FIGURES / "mini/claims/registered.toml", tmp_path / "figures/mini/claims/registered.toml"
    )
    one = next(c for c in registered(FIGURES / "mini") if c.file.startswith("table1/"))
    (tmp_path / "figures/mini/claims/claims.csv").write_text(
        f'claim,family,word,size\n"{one.text}",{one.family},open,\nanother,Table 0,holds,\n'
    )
    (tmp_path / "figures/mini/runs.zip").write_bytes(b"")
    (tmp_path / "figures/README.md").write_text("about figures")
    return tmp_path


def test_each_notebook_has_a_row_and_a_link_in_each_profile(root):
    page = results_page(root).replace("\N{NO-BREAK SPACE}", " ")
    assert page[page.index("|notebook|") :].splitlines() == [
        "|notebook|`small`|`mini`|",
        "|---|---|---|",
        (
            "|[Table 1: algorithms](notebooks/table1.ipynb)|[+3.0 [-1.6,"
            " +0.9]](figures/small/table1/README.md)|[+2.0 [-1.6,"
            " +0.9]](figures/mini/table1/README.md), 1 open|"
        ),
        (
            "|[Table 7: losses](notebooks/table7.ipynb)||[-0.3 [-1.6,"
            " +0.9]](figures/mini/table7/README.md)|"
        ),
        "|[Audit](notebooks/audit.ipynb)||[page](figures/mini/audit/README.md)|",
        ("|[Claims](notebooks/claims.ipynb)||[1 holds, 1 open](figures/mini/claims/README.md)|"),
        (
            "|[Controls](notebooks/controls.ipynb)|CNNs: [+4.0 [-1.6,"
            " +0.9]](figures/small/controls/README.md)<br>ViTs, last blocks: [+5.0 [-1.6,"
            " +0.9]](figures/small/controls_setup1_vit/README.md)||"
        ),
    ]
