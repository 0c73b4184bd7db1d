"""The store: what was written is what is read, damage is told, and shipped runs are served where they are true."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedmuscle_lib import run
from fedmuscle_lib.experiment import TABLES
from fedmuscle_lib.runs import Busy, Damaged, Record, Store, stored
from fedmuscle_lib.runs.address import Address, address_of

HERE = Address("asked", (("data", "d1"), ("model", "m1")), "2.13")


def record(address: Address = HERE) -> Record:
    tables = {name: pd.DataFrame({column: [1, 2] for column in columns}) for name, columns in TABLES.items()}
    tables["metrics"]["value"] = [np.pi, 100 / 3]
    provenance = {"address": str(address), "inputs": dict(address.inputs), "torch": address.torch}
    return Record(tables, provenance)


@pytest.fixture
def layered(tmp_path: Path) -> Store:
    """A store with one shipped run and nothing computed."""
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / f"{HERE}.zip").write_bytes(record().pack())
    return Store(tmp_path / "runs", (shipped,))


def test_what_is_read_is_what_was_written_to_the_bit(tmp_path):
    path = tmp_path / "run.zip"
    path.write_bytes(record().pack())
    read = Record.read(path)
    for name, table in record().tables.items():
        pd.testing.assert_frame_equal(read.tables[name], table, check_exact=True)
    assert read.provenance == record().provenance
    assert read.pack() == path.read_bytes()


def rewritten(content: bytes, name: str, edit) -> bytes:
    """The same zip with one member changed, by somebody who does not know of the checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        for member in old.namelist():
            new.writestr(member, edit(old.read(member)) if member == name else old.read(member))
    return buffer.getvalue()


DAMAGES = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[:-100],
    "no zip": lambda content: b"metrics",
    "a metric": lambda content: rewritten(content, "metrics.csv", lambda text: text.replace(b"3.14", b"99.9")),
    "a word": lambda content: rewritten(content, "metrics.csv", lambda text: text.replace(b"3.14", b"abc")),
    "provenance": lambda content: rewritten(content, "provenance.json", lambda text: text.replace(b"2.13", b"2.14")),
    "a byte": lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named_set_aside_and_counts_as_missing(tmp_path, caplog, damage):
    store = Store(tmp_path)
    entry = store.entry(HERE)
    with entry.lock():
        entry.save(record().pack())
    entry.path.write_bytes(DAMAGES[damage](entry.path.read_bytes()))
    with pytest.raises(Damaged, match="run.zip"):
        Record.read(entry.path)
    assert store.find(HERE) is None
    assert str(entry.path) in caplog.text and "computed again" in caplog.text
    assert not entry.done and entry.path.with_name("run.zip.damaged").exists()


def test_a_damaged_shipped_run_is_told_and_left_where_it_is(layered, caplog):
    (path,) = layered.shipped[0].iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    assert layered.find(HERE) is None and path.exists()
    assert path.name in caplog.text


def test_a_run_computed_again_after_damage_is_the_same(settings, store, caplog):
    first = run(settings(algorithm="local"), progress=str, store=store)
    (path,) = store.root.glob("*/run.zip")
    path.write_bytes(path.read_bytes()[:-50])
    again = run(settings(algorithm="local"), progress=str, store=store)
    pd.testing.assert_frame_equal(first.metrics, again.metrics, check_exact=True)
    assert "computed again" in caplog.text


def test_a_checkpoint_that_a_kill_left_beside_a_finished_run_is_removed(tmp_path):
    store = Store(tmp_path)
    entry = store.entry(HERE)
    with entry.lock():
        entry.save(record().pack())
        entry.save_checkpoint(b"of the last round")
    assert store.find(HERE)
    assert entry.load_checkpoint() is None and entry.done


def test_shipped_runs_lie_below_computed_ones(layered):
    found, entry, caveats = layered.find(HERE)
    assert entry.shipped and caveats == ()
    own = layered.entry(HERE)
    with own.lock():
        own.save(record().pack())
    assert not layered.find(HERE)[1].shipped
    assert [e.shipped for e in layered.entries()] == [False, True]


def test_a_shipped_run_is_shown_where_its_data_are_absent_or_torch_is_another_and_this_is_said(layered):
    absent = replace(HERE, inputs=(("data", ""), ("model", "m1")))
    assert layered.find(absent)[2] == ("data is not here, or not all of it",)
    newer = replace(HERE, torch="2.14")
    assert layered.find(newer)[2] == ("torch 2.13 there, 2.14 here",)


def test_a_shipped_run_is_not_shown_for_other_data_or_another_question(layered):
    assert layered.find(replace(HERE, inputs=(("data", "d2"), ("model", "m1")))) is None
    assert layered.find(replace(HERE, asked="else")) is None


def test_a_shipped_run_fills_a_history(settings, store, tmp_path):
    s = settings(algorithm="local", rounds=1)
    computed = run(s, progress=str, store=store)
    path = store.ship(str(address_of(s)), tmp_path / "shipped")
    elsewhere = Store(tmp_path / "nothing", (path.parent,))
    shipped = run(s, progress=str, store=elsewhere)
    assert shipped.origin == "shipped" and not (tmp_path / "nothing").exists()
    pd.testing.assert_frame_equal(shipped.metrics, computed.metrics, check_exact=True)
    # without data and checkpoints it could not be computed, and is shown all the same
    nowhere = s.model_copy(update={"data_dir": tmp_path / "no data", "models_path": tmp_path / "no models"})
    assert len(stored(nowhere, elsewhere).caveats) >= 3


def test_shipping_refuses_what_is_not_finished_or_not_whole(layered, tmp_path):
    with pytest.raises(FileNotFoundError, match="no finished run"):
        layered.ship("missing", tmp_path)
    entry = layered.entry(HERE)
    with entry.lock():
        entry.save(record().pack()[:-10])
    with pytest.raises(Damaged):
        layered.ship(str(HERE), tmp_path)


def test_deleting_takes_a_run_and_its_checkpoint(layered):
    entry = layered.entry(HERE)
    with entry.lock():
        entry.save(record().pack())
        entry.save_checkpoint(b"x")
    entry.delete()
    assert not entry.folder.exists()
    with pytest.raises(PermissionError, match="shipped"):
        next(layered.entries()).delete()


def test_a_run_that_is_being_computed_is_not_deleted(layered):
    entry = layered.entry(HERE)
    with entry.lock(), pytest.raises(Busy):
        layered.entry(HERE).delete()
    assert entry.folder.exists()


def test_a_stored_file_is_readable_with_common_tools(tmp_path):
    (tmp_path / "run.zip").write_bytes(record().pack())
    shutil.unpack_archive(tmp_path / "run.zip", tmp_path / "out")
    assert json.loads((tmp_path / "out/provenance.json").read_text())["torch"] == "2.13"
    assert pd.read_csv(tmp_path / "out/metrics.csv").value.iloc[0] == pytest.approx(np.pi)
