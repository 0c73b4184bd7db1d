"""The store: what was written is what is read, damage is told, and shipped runs are served where
they are true.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedmuscle_lib import run
from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.fedmuscle.system import TABLES
from fedmuscle_lib.runs import Busy, Damaged, Record, Store, stored
from fedmuscle_lib.runs.address import Address, address_of
from fedmuscle_lib.runs.archive import SUMS, archive, write_archive
from fedmuscle_lib.runs.store import faults

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


def test_what_is_read_is_what_was_written_to_the_bit(tmp_path):
    path = tmp_path / "run.zip"
    path.write_bytes(record().pack())
    read = Record.read(path)
    for name, table in record().tables.items():
        pd.testing.assert_frame_equal(read.tables[name], table, check_exact=True)
    assert read.provenance == record().provenance
    assert read.pack() == path.read_bytes()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("metrics", "value", "high"),
        ("metrics", "value", np.inf),
        ("costs", "flops", 1.5),
        ("losses", "user", "two"),
        ("losses", "user", None),
    ],
)
def test_values_of_another_type_than_the_system_declares_are_refused(
    tmp_path, table, column, value
):
    path, wrong = tmp_path / "run.zip", record()
    wrong.tables[table][column] = [value, 1]
    path.write_bytes(wrong.pack())
    with pytest.raises(Damaged, match="run.zip: not a readable run"):
        Record.read(path)


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
    "a metric": lambda content: rewritten(
        content, "metrics.csv", lambda text: text.replace(b"3.14", b"99.9")
    ),
    "a word": lambda content: rewritten(
        content, "metrics.csv", lambda text: text.replace(b"3.14", b"abc")
    ),
    "provenance": lambda content: rewritten(
        content, "provenance.json", lambda text: text.replace(b"2.13", b"2.14")
    ),
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


@pytest.mark.parametrize(
    "where", ["zipfile.ZipFile.namelist", "zipfile.ZipFile.read", "pandas.read_csv"]
)
def test_too_little_memory_is_no_damage(tmp_path, monkeypatch, where):
    entry = Store(tmp_path).entry(HERE)
    entry.save(record().pack())

    def none(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(where, none)
        with pytest.raises(MemoryError):
            entry.read()
    assert entry.read() is not None


def test_a_damaged_run_in_a_store_that_is_only_read_counts_as_missing(
    tmp_path, caplog, monkeypatch
):
    store = Store(tmp_path)
    entry = store.entry(HERE)
    with entry.lock():
        entry.save(record().pack())
    entry.path.write_bytes(entry.path.read_bytes()[:-100])

    def refused(source, target):
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr("os.rename", refused)  # whoever runs this may be allowed everything
    assert store.find(HERE) is None and str(entry.path) in caplog.text


def repacked(content: bytes, name: str, edit) -> bytes:
    """The same zip with one member changed, by somebody who gives it the checksum that it needs."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        members = {member: old.read(member) for member in old.namelist()}
    members[name] = edit(members[name])
    members["SHA256SUMS"] = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in members.items()
        if name != "SHA256SUMS"
    ).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as new:
        for member, content in members.items():
            new.writestr(member, content)
    return buffer.getvalue()


def _provenance(**changes):
    return "provenance.json", lambda text: json.dumps(json.loads(text) | changes).encode()


# What no run gives, whatever its checksums say.
FORGERIES = {
    "a word for a value": ("metrics.csv", lambda text: text.replace(b"3.14", b"abc")),
    "no number": ("metrics.csv", lambda text: text.replace(b"3.141592653589793", b"")),
    "infinity": ("metrics.csv", lambda text: text.replace(b"3.141592653589793", b"inf")),
    "half a round": ("metrics.csv", lambda text: text.replace(b"\n1,", b"\n1.5,")),
    "a round fewer": ("metrics.csv", lambda text: text[: text.index(b"\n2,") + 1]),
    "no row": ("metrics.csv", lambda text: text[: text.index(b"\n") + 1]),
    "no table": ("metrics.csv", lambda text: b""),
    "another column": ("metrics.csv", lambda text: text.replace(b"phase", b"phrase")),
    "words for bytes": ("costs.csv", lambda text: text.replace(b"\n2,2", b"\n2,many")),
    "half a character": ("metrics.csv", lambda text: text.replace(b"3.14", b"\xff")),
    "no JSON": ("provenance.json", lambda text: text[:-5]),
    "deep JSON": ("provenance.json", lambda text: b"[" * 100_000),
    "a list": ("provenance.json", lambda text: b"[]"),
    "another run": _provenance(address="another"),
    "no address": _provenance(address=None),
    "inputs that are none": _provenance(inputs=["data"]),
    "digests that are none": _provenance(inputs={"data": 7}),
    "a date that is none": _provenance(finished=7),
    "another system": _provenance(system="os"),
    "a system that is no name": _provenance(system=["fedmuscle"]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_no_run_gives_is_none_though_its_checksums_are_right(tmp_path, caplog, forgery):
    store = Store(tmp_path)
    entry = store.entry(HERE)
    with entry.lock():
        entry.save(repacked(record().pack(), *FORGERIES[forgery]))
    assert store.find(HERE) is None
    (said,) = caplog.messages
    assert str(entry.path) in said and "computed again" in said and said.isprintable()
    assert not entry.done and entry.path.with_name("run.zip.damaged").exists()


def test_a_zip_that_unpacks_to_too_much_or_names_a_file_twice_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("fedmuscle_lib.runs.archive.MOST", 1 << 20)
    path = tmp_path / "run.zip"
    for names in (["metrics.csv"] * 2, ["large.csv"]):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the name
            for name in names:
                file.writestr(name, bytes((1 << 20) + 1) if name == "large.csv" else b"")
        with pytest.raises(
            Damaged, match="run.zip: not a readable zip .*a name twice, or files larger"
        ):
            Record.read(path)


def test_what_is_no_file_is_set_aside_and_again(tmp_path, caplog):
    """Also a second time, when the first one has the name to which it would go."""
    store = Store(tmp_path)
    entry = store.entry(HERE)
    for n in range(1, 3):
        with entry.lock():
            entry.path.mkdir()
            (entry.path / "inside").write_text("kept")
            assert (
                store.find(HERE) is None and list(store.entries())[0].description().settings == {}
            )
            (entry.folder / "checkpoint.pt").mkdir()
            assert entry.load_checkpoint() is None
            entry.save_checkpoint(b"x")
            entry.save(record().pack())
        assert store.find(HERE) is not None
        assert (
            len([*entry.folder.glob("run.zip.damaged*/inside")])
            == len([*entry.folder.glob("checkpoint.pt.damaged*")])
            == n
        )
        entry.path.unlink()
    assert "run.zip: not a file" in caplog.text and "checkpoint.pt: not a file" in caplog.text


def test_a_shipped_run_that_is_not_what_was_shipped_is_named_and_not_shown(layered, caplog):
    """Another run's numbers, with the checksums that they need, are none of the run's; nor is a run
    under another's name.
    """
    (path,) = layered.shipped
    assert layered.find(HERE) is not None and faults(path) == []
    whole = path.read_bytes()
    forged = repacked(record().pack(), "metrics.csv", lambda text: text.replace(b"3.14", b"99.9"))
    path.write_bytes(rewritten(whole, f"{HERE}.zip", lambda content: forged))
    assert layered.find(HERE) is None
    assert f"{path}: {HERE}.zip is not what was written; the run is computed again" in caplog.text
    assert faults(path) == [f"{path}: {HERE}.zip is not what was written"]
    with pytest.raises(Damaged, match=f"{HERE}.zip is not what was written"):
        layered.ship((), path, {str(HERE)})
    write_archive(path, {"other-run": record().pack()})
    assert faults(path) == [f"{path}: other-run.zip: the run {HERE} in the place of other-run"]
    assert len(list(layered.entries())) == 1  # it has not to be read for that


ARCHIVES = {
    "truncated": (lambda whole: whole[:-100], "truncated, or no archive of runs"),
    "half": (lambda whole: whole[: len(whole) // 2], "not a readable zip of ours (BadZipFile"),
    "empty": (lambda whole: b"", "not a readable zip of ours (BadZipFile"),
    "a run": (lambda whole: record().pack(), "truncated, or no archive of runs"),
    "a conflict": (
        lambda whole: rewritten(whole, SUMS, lambda text: b"<<<<<<< ours\n" + text),
        "SHA256SUMS has the line '<<<<<<< ours'",
    ),
    "a file outside": (
        lambda whole: rewritten(whole, SUMS, lambda text: text.replace(b"  ", b"  ../")),
        "SHA256SUMS has the line",
    ),
    "a terminal's": (
        lambda whole: rewritten(whole, SUMS, lambda text: text + b"\x1b[2J"),
        "SHA256SUMS has the line",
    ),
    "a run more": (
        lambda whole: rewritten(whole, SUMS, lambda text: text + b"0" * 64 + b"  b.zip\n"),
        "b.zip lacks its SHA-256, or is missing",
    ),
    "a run less": (
        lambda whole: rewritten(whole, SUMS, lambda text: b""),
        f"{HERE}.zip lacks its SHA-256, or is missing",
    ),
}


@pytest.mark.parametrize("damage", ARCHIVES)
def test_an_archive_that_is_none_is_named(layered, damage):
    (path,) = layered.shipped
    change, why = ARCHIVES[damage]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(Damaged) as refusal:
        layered.find(HERE)
    assert (
        str(refusal.value).startswith(f"{path}: ")
        and why in str(refusal.value)
        and str(refusal.value).isprintable()
    )
    assert faults(path) == [str(refusal.value)]


def test_an_archive_that_is_no_file_is_named_and_one_that_is_missing_is_empty(layered):
    (path,) = layered.shipped
    path.unlink()
    assert layered.find(HERE) is None and list(layered.entries()) == faults(path) == []
    path.mkdir()
    with pytest.raises(Damaged, match=f"{path}: "):
        layered.find(HERE)


def test_equal_runs_are_equal_archives_and_a_damaged_one_leaves_the_others_readable(tmp_path):
    addresses = [f"asked-{n}" for n in "ba"]
    runs = {address: record(HERE).pack() + bytes(n) for n, address in enumerate(addresses)}
    path = tmp_path / "runs.zip"
    write_archive(path, runs)
    content = path.read_bytes()
    write_archive(path, dict(reversed(runs.items())))
    assert path.read_bytes() == content and [
        entry.address for entry in Store(tmp_path, (path,)).entries()
    ] == sorted(addresses)
    at = content.index(runs["asked-a"]) + 100  # it is stored as it is
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(Damaged, match="asked-a.zip is not what was written"):
        archive(path).read("asked-a.zip")
    assert archive(path).read("asked-b.zip") == runs["asked-b"]


SHIPPED = sorted(ROOT.glob("figures/*/runs.zip"))


def test_the_repositorys_runs_are_what_was_shipped():
    """Each is; one in ten is read through."""
    assert SHIPPED
    for path in SHIPPED:
        runs = {name: archive(path).read(name) for name in archive(path).sums}
        assert runs
        for name in [*runs][::10]:
            Record.unpack(runs[name], f"{path}: {name}", name.removesuffix(".zip"))


@pytest.mark.slow
def test_each_of_the_repositorys_runs_is_read_through():
    assert not [fault for path in SHIPPED for fault in faults(path)]


def test_a_damaged_shipped_run_is_told_and_left_where_it_is(layered, caplog):
    (path,) = layered.shipped
    write_archive(path, {str(HERE): record().pack()[:-100]})
    before = path.read_bytes()
    assert layered.find(HERE) is None and path.read_bytes() == before
    assert f"{path}: {HERE}.zip" in caplog.text


def test_a_run_computed_again_after_damage_is_the_same(settings, store, caplog):
    s = settings(algorithm="local", users=(6,), rounds=1)
    first = run(s, progress=str, store=store)
    (path,) = store.root.glob("*/run.zip")
    path.write_bytes(path.read_bytes()[:-50])
    again = run(s, progress=str, store=store)
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
    with pytest.raises(Damaged):
        layered.ship([str(HERE)], tmp_path / "new.zip")
    assert not (tmp_path / "new.zip").exists()


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
