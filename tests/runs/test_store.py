"""The store: what was written is what is read, damage is told, and shipped runs are served where
they are true.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedmuscle_lib import run
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.fedmuscle.system import TABLES
from fedmuscle_lib.runs import Record, Store, stored
from fedmuscle_lib.runs.address import Address, address_of
from fedmuscle_lib.runs.store import archive, write_archive

HERE = Address("0123456789abcdef", (("data", "d1"), ("model", "m1")), "2.13")


VALUES = {
    int: [1, 2],
    float: [np.pi, 100 / 3],
    str: ["7", "8"],
}  # texts that could be taken for numbers


def record(address: Address = HERE) -> Record:
    tables = {
        name: pd.DataFrame({column: VALUES[kind] for column, kind in columns.items()})
        for name, columns in TABLES.items()
    }
    provenance = {"address": str(address), "inputs": dict(address.inputs), "torch": address.torch}
    provenance |= {"settings": {"rounds": 2}, "finished": "2026-11-22T14:12:07+00:00"}
    return Record(tables, provenance)


@pytest.fixture
def layered(tmp_path) -> Store:
    """A store with one shipped run and nothing computed."""
    shipped = tmp_path / "runs.zip"
    write_archive(shipped, {str(HERE): record().pack()})
    return Store(tmp_path / "runs", (shipped,))


def test_what_is_read_is_what_was_written_to_the_bit():
    content = record().pack()
    read = Record.unpack(content)
    for name, table in record().tables.items():
        pd.testing.assert_frame_equal(read.tables[name], table, check_exact=True)
    assert read.provenance == record().provenance and read.pack() == content


@pytest.mark.parametrize("content", [b"", record().pack()[:-100]])
def test_a_run_that_can_not_be_read_is_renamed_and_counts_as_missing(tmp_path, caplog, content):
    store = Store(tmp_path)
    entry = store.entry(HERE)
    entry.save(content)
    assert store.find(HERE) is None
    assert str(entry.path) in caplog.text and "computed again" in caplog.text
    assert not entry.done and entry.path.with_name("run.zip.damaged").exists()


def test_an_archive_that_can_not_be_read_is_named(layered):
    (path,) = layered.shipped
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=f"{path}: not a readable archive of runs"):
        layered.find(HERE)


def test_equal_runs_are_equal_archives(tmp_path):
    runs = {f"key-{n}": record().pack() + bytes(n) for n in (1, 0)}
    path = tmp_path / "runs.zip"
    write_archive(path, runs)
    content = path.read_bytes()
    write_archive(path, dict(reversed(runs.items())))
    assert path.read_bytes() == content and archive(path) == runs


SHIPPED = sorted(ROOT.glob("figures/*/runs.zip"))


def test_the_repositorys_runs_are_found_and_written_again(tmp_path):
    """One in ten is read through; all are shipped again as they are."""
    for path in SHIPPED:
        runs = archive(path)
        for address in [*runs][::10]:
            assert Record.unpack(runs[address]).provenance["address"] == address
        write_archive(tmp_path / path.parent.name, runs)
        assert archive(tmp_path / path.parent.name) == runs
    assert len(SHIPPED) == 2


def test_shipped_runs_lie_below_computed_ones(layered):
    found, entry, caveats = layered.find(HERE)
    assert entry.shipped and caveats == ()
    own = layered.entry(HERE)
    with own.lock():
        own.save(record().pack())
    assert not layered.find(HERE)[1].shipped
    assert [e.shipped for e in layered.entries()] == [False, True]


def test_a_shipped_run_is_shown_where_its_data_are_absent_or_torch_is_another_and_this_is_said(
    layered,
):
    absent = replace(HERE, inputs=(("data", ""), ("model", "m1")))
    assert layered.find(absent)[2] == (
        "files in data/ are missing on this machine, so shipped results are shown",
    )
    newer = replace(HERE, torch="2.14")
    assert layered.find(newer)[2] == ("torch 2.13 there, 2.14 here",)


def test_a_shipped_run_is_not_shown_for_other_data_or_another_question(layered):
    assert layered.find(replace(HERE, inputs=(("data", "d2"), ("model", "m1")))) is None
    assert layered.find(replace(HERE, key="else")) is None
    more = (*HERE.inputs, ("root_train_image_folder", "d3"))
    for others in (
        more,
        HERE.inputs[1:],
        (("user 1's own", "d1"), HERE.inputs[1]),
        (("user 1's own", ""), HERE.inputs[1]),
    ):
        assert (
            layered.find(replace(HERE, inputs=others)) is None
        )  # a user with data of its own asks another question


def test_a_shipped_run_fills_a_history(settings, store, tmp_path):
    s = settings(algorithm="local", users=(6,), rounds=1)
    computed = run(s, progress=str, store=store)
    store.ship([str(address_of(s))], path := tmp_path / "shipped.zip")
    elsewhere = Store(tmp_path / "nothing", (path,))
    shipped = run(s, progress=str, store=elsewhere)
    assert shipped.origin == "shipped" and not (tmp_path / "nothing").exists()
    pd.testing.assert_frame_equal(shipped.metrics, computed.metrics, check_exact=True)
    # without data and checkpoints it could not be computed, and is shown all the same
    empty = s.model_copy(
        update={"data_dir": tmp_path / "no data", "models_path": tmp_path / "no models"}
    )
    with pytest.raises(
        FileNotFoundError, match="data_dir: .*no data: no such folder"
    ):  # but not where a place was named
        stored(empty, elsewhere)
    for place in (empty.data_dir, empty.models_path):
        place.mkdir()
    assert len(stored(empty, elsewhere).caveats) == 2


def test_shipping_refuses_what_is_not_finished_or_not_whole(layered, tmp_path):
    with pytest.raises(FileNotFoundError, match="no finished run"):
        layered.ship(["missing"], tmp_path / "new.zip")
    entry = layered.entry(HERE)
    with entry.lock():
        entry.save(record().pack()[:-10])
    with pytest.raises(FileNotFoundError, match="no finished run"):
        layered.ship([str(HERE)], tmp_path / "new.zip")
    assert not (tmp_path / "new.zip").exists()
