"""The page of results leads to every notebook's page and has the numbers of the CSV files."""

import json

import pytest

from fedmuscle_lib import report
from fedmuscle_lib.report.claims import claims
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
    text = next(claim.text for claim in claims() if claim.file.startswith("table1/"))
    (tmp_path / "figures/mini/claims/claims.csv").write_text(
        f'claim,verdict\n"{text}",undecided\nanother,reproduced\n'
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
            " +0.9]](figures/mini/table1/README.md), 1 undecided|"
        ),
        (
            "|[Table 7: losses](notebooks/table7.ipynb)||[-0.3 [-1.6,"
            " +0.9]](figures/mini/table7/README.md)|"
        ),
        "|[Audit](notebooks/audit.ipynb)||[page](figures/mini/audit/README.md)|",
        (
            "|[Claims](notebooks/claims.ipynb)||[1 undecided, 1"
            " reproduced](figures/mini/claims/README.md)|"
        ),
        (
            "|[Controls](notebooks/controls.ipynb)|CNNs: [+4.0 [-1.6,"
            " +0.9]](figures/small/controls/README.md)<br>ViTs, last blocks: [+5.0 [-1.6,"
            " +0.9]](figures/small/controls_setup1_vit/README.md)||"
        ),
    ]


def test_a_variant_is_named_by_what_differs_from_the_usual_page(root):
    usual = {"seeds": [0], "setup": "setup1_unequal"}
    others = {
        "mini/hostile": usual,
        "mini/hostile_liar=5": usual | {"liar": 5, "seeds": [1]},
        "small/hostile_setup1_vit_paper": (
            usual | {"setup": "setup1_vit", "overrides": {"protocol": "paper"}}
        ),
        "mini/hostile_setup1_rounds=2": {"setup": "setup1", "overrides": {"rounds": 2}},
        "mini/fedloge_methods=fedavg": {"methods": ["fedavg"]},
        "mini/fedloge_methods=fedavg_imbalance=0.5": {
            "methods": ["fedavg"],
            "overrides": {"imbalance": 0.5},
        },
    }
    for name, parameters in others.items():
        entry(root, name, name)
        (root / "figures" / name / "provenance.json").write_text(
            json.dumps({"parameters": parameters})
        )
    page = results_page(root)
    cells = (
        "[page](figures/mini/hostile/README.md)<br>user 5 lies: [page]",
        "<br>equal models, rounds 2: [page]",
    )
    cells += ("|ViTs, all blocks: [page]",)
    cells += (
        "|methods fedavg: [page](figures/mini/fedloge_methods=fedavg/",
        "<br>imbalance 0.5: [page]",
    )
    assert [cell for cell in cells if cell not in page] == []
    worlds = {
        name: report.world_in_words(root / "figures/mini" / name)
        for name in ("hostile", "hostile_liar=5", "controls")
    }
    assert worlds == {
        "hostile": "generated",
        "hostile_liar=5": "generated, user 5 lies",
        "controls": "generated, equal models",
    }


def test_a_page_of_no_figures_has_only_its_head(tmp_path):
    assert results_page(tmp_path).startswith("# Results\n") and "figures/mini" not in results_page(
        tmp_path
    )


def test_a_delta_without_its_interval_is_refused(root):
    (root / "figures/mini/table7/delta.csv").write_text(
        "public,algorithm,delta,paper_delta\nvoc,fedmuscle,0,0\n"
    )
    with pytest.raises(KeyError, match="ci_low"):
        results_page(root)


def test_a_variant_without_the_row_that_stands_for_its_table_has_a_link(root):
    entry(root, "small/table7_publics=coco", "Table 7: losses")
    (root / "figures/small/table7_publics=coco/delta.csv").write_text(
        DELTA.format(1).replace("voc", "coco")
    )
    assert "[page](figures/small/table7_publics=coco/README.md)" in results_page(root)
