"""Downloads over a real connection that breaks off, changes under our hands, or has nothing to give."""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from loopback import Loopback, serving

from data_prep.io import fetch
from data_prep.io.archives import opened, plain_name
from data_prep.io.entry import Archive, SourceError
from data_prep.io.fetch import Source, download, head

CONTENT = np.random.RandomState(0).bytes(1_000_000)
OTHER = np.random.RandomState(1).bytes(700_000)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with serving() as state:
        state.files["a.zip"] = CONTENT
        state.etags["a.zip"] = '"one"'
        yield state


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


@pytest.mark.parametrize("etag", ['"one"', 'W/"weak"', None])
def test_a_broken_download_goes_on_where_it_broke_off(server: Loopback, tmp_path: Path, etag: str | None) -> None:
    server.etags = {"a.zip": etag} if etag else {}
    server.breaks.extend([300_000, 200_000])
    path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    assert path.read_bytes() == CONTENT
    assert [asked for _, asked, _ in server.log] == [None, "bytes=300000-", "bytes=500000-"]
    assert sum(sent for *_, sent in server.log) == len(CONTENT)
    assert not _part(path).exists()


def test_a_stopped_run_is_gone_on_with_by_the_next(server: Loopback, tmp_path: Path) -> None:
    server.breaks.extend([400_000] + [0] * fetch.ATTEMPTS)
    with pytest.raises(SourceError, match=r"a\.zip: could not be downloaded .*400,000 bytes are kept.*run the same command again"):
        download(f"{server.url}/a.zip", tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()
    server.breaks.clear()
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT
    assert server.log[-1] == ("a.zip", "bytes=400000-", 600_000)


def test_a_server_without_ranges_starts_anew(server: Loopback, tmp_path: Path) -> None:
    server.ranges = False
    server.breaks.append(300_000)
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT
    assert [sent for *_, sent in server.log] == [300_000, 1_000_000]


@pytest.mark.parametrize("etags", [('"one"', '"two"'), ('W/"one"', 'W/"two"'), (None, None), (None, '"two"')])
def test_a_file_that_changed_meanwhile_starts_anew(server: Loopback, tmp_path: Path, etags: tuple[str | None, str | None]) -> None:
    server.etags = {"a.zip": etags[0]} if etags[0] else {}
    server.breaks.extend([300_000] + [0] * fetch.ATTEMPTS)
    with pytest.raises(SourceError):
        download(f"{server.url}/a.zip", tmp_path / "a.zip")
    server.breaks.clear()
    server.files["a.zip"], server.etags = OTHER, {"a.zip": etags[1]} if etags[1] else {}
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == OTHER


def test_a_part_that_is_whole_already_is_enough(server: Loopback, tmp_path: Path) -> None:
    """As when the run was stopped between the last byte and the renaming."""
    path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    path.rename(_part(path))
    assert download(f"{server.url}/a.zip", path).read_bytes() == CONTENT
    assert server.log[-1] == ("a.zip", "bytes=1000000-", 0)


def test_a_part_that_is_longer_than_the_file_starts_anew(server: Loopback, tmp_path: Path) -> None:
    path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    _part(path).write_bytes(path.read_bytes() + b"more")
    path.unlink()
    assert download(f"{server.url}/a.zip", path).read_bytes() == CONTENT


def test_a_whole_file_is_not_fetched_again_unless_it_is_another_addresss(server: Loopback, tmp_path: Path) -> None:
    server.files["b/a.zip"] = OTHER
    for _ in range(2):
        path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    assert len(server.log) == 1
    server.breaks.extend([100_000] + [0] * fetch.ATTEMPTS)
    with pytest.raises(SourceError):
        download(f"{server.url}/b/a.zip", path)
    server.breaks.clear()
    assert download(f"{server.url}/b/a.zip", path).read_bytes() == OTHER


def test_a_file_that_a_person_put_there_is_taken(server: Loopback, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"by hand")
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == b"by hand"
    assert server.log == []


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(server: Loopback, tmp_path: Path) -> None:
    server.statuses.extend([503, 429, 200])
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT
    server.log.clear()
    with pytest.raises(SourceError, match=r"/absent\.zip: the server answers 404"):
        download(f"{server.url}/absent.zip", tmp_path / "absent.zip")
    assert len(server.log) == 1
    assert head(f"{server.url}/absent.zip") is None
    assert head(f"{server.url}/a.zip") == len(CONTENT)


def test_nobody_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with serving() as gone:
        url = f"{gone.url}/a.zip"
    with pytest.raises(SourceError, match=r"a\.zip: could not be downloaded \(.*refused.*\); run the same command again"):
        download(url, tmp_path / "a.zip")
    with pytest.raises(SourceError, match="neither http nor https"):
        download("file:///etc/hostname", tmp_path / "b")


# --- sources -----------------------------------------------------------------------------------------------------------------

ARCHIVE = Archive("a.zip", "https://example.org/a.zip", 5, None)


def test_a_folder_and_a_file_address_are_read_in_place(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "a.zip").write_bytes(b"12345")
    for source in (Source.of(tmp_path / "store", None, folder), Source.of(tmp_path / "store", folder.as_uri(), None)):
        assert source.obtain(ARCHIVE) == folder / "a.zip"
        assert source.size(ARCHIVE) == 5
        assert not source.official
    (folder / "a.zip").unlink()
    with pytest.raises(SourceError, match=r"a\.zip: no such archive; the official one is at https://example\.org"):
        source.obtain(ARCHIVE)


def test_checksums_beside_the_archives_are_read(server: Loopback, tmp_path: Path) -> None:
    server.files["SHA256SUMS"] = f"{hashlib.sha256(CONTENT).hexdigest()}  a.zip\n".encode()
    assert Source.of(tmp_path, server.url, None).sums() == {"a.zip": hashlib.sha256(CONTENT).hexdigest()}
    assert Source.of(tmp_path, None, None).sums() == {}
    assert list(tmp_path.iterdir()) == []  # nothing that two commands would share
    del server.files["SHA256SUMS"]
    assert Source.of(tmp_path, server.url, None).sums() == {}


@pytest.mark.parametrize("line", [b"oneword", b"abc  a.zip", b"\xff\xfe"])
def test_checksums_that_are_none_are_named(server: Loopback, tmp_path: Path, line: bytes) -> None:
    server.files["SHA256SUMS"] = b"\n" + line + b"\n"
    (tmp_path / "SHA256SUMS").write_bytes(server.files["SHA256SUMS"])
    for source in (Source.of(tmp_path, server.url, None), Source.of(tmp_path, None, tmp_path)):
        with pytest.raises(SourceError, match="SHA256SUMS: line 2 is not a SHA-256 and the name of a file"):
            source.sums()


@pytest.mark.parametrize("status", [405, 501])
def test_a_server_without_head_is_asked_otherwise(server: Loopback, status: int) -> None:
    server.heads = status
    assert head(f"{server.url}/a.zip") == len(CONTENT)
    assert head(f"{server.url}/absent.zip") is None


@pytest.mark.parametrize("url", ["ftp://x/y", "example.org"])
def test_other_addresses_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SourceError, match="http://, https:// or file://"):
        Source.of(tmp_path, url, None)
    with pytest.raises(SourceError, match="give one of them"):
        Source.of(tmp_path, url, tmp_path)


# --- archives ----------------------------------------------------------------------------------------------------------------


def _tar(path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name in ("folder/one", "folder/two"):
            content = np.random.RandomState(2).bytes(3000)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _zip(path: Path, name: str = "folder/one", kind: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = (kind | 0o644) << 16
        archive.writestr(info, np.random.RandomState(2).bytes(3000))
    return path


def _read(path: Path) -> dict[str, bytes]:
    with opened(path) as members:
        return {name: file.read() for name, file in members}


def test_archives_of_each_kind_are_read(tmp_path: Path) -> None:
    whole = _read(_tar(tmp_path / "a.tar"))
    assert list(whole) == ["folder/one", "folder/two"]
    assert _read(_tar(tmp_path / "a.tar.gz", "w:gz")) == whole
    assert _read(_zip(tmp_path / "a.zip")) == {"folder/one": whole["folder/one"]}


@pytest.mark.parametrize("keep", [0, 1, 100, 512, 2000, 512 + 3072, 512 + 3072 + 200, 2 * (512 + 3072)])
def test_a_truncated_tar_is_refused_by_name(tmp_path: Path, keep: int) -> None:
    """Also where it is torn between two members, which Python's reader takes for the end."""
    path = _tar(tmp_path / "a.tar")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match=rf"{path}: a damaged archive"):
        _read(path)


@pytest.mark.parametrize("make", [lambda path: _tar(path, "w:gz"), _zip], ids=["tar.gz", "zip"])
@pytest.mark.parametrize("damage", [lambda b: b[:10], lambda b: b[:-3], lambda b: b[: len(b) // 2], lambda b: b[:2000] + b"?" + b[2001:]])
def test_a_damaged_archive_is_refused_by_name(tmp_path: Path, make: object, damage: object) -> None:
    path = make(tmp_path / "archive")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=rf"{path}: a damaged archive"):
        _read(path)


def test_a_garbled_header_is_refused_by_name(tmp_path: Path) -> None:
    path = _tar(tmp_path / "a.tar")
    content = bytearray(path.read_bytes())
    content[512 + 3072] ^= 1  # the second member's
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"{path}: a damaged archive"):
        _read(path)


@pytest.mark.parametrize("name", ["../out", "/out", "folder/../../out", "a\\..\\out", "c:/out"])
def test_a_name_that_leaves_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    for path in (tmp_path / "a.tar", _zip(tmp_path / "a.zip", name)):
        with pytest.raises(SourceError, match="refused: it holds .* a name that leaves its folder"):
            _read(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("folder/link")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    for path in (tmp_path / "a.tar", _zip(tmp_path / "a.zip", kind=stat.S_IFLNK)):
        with pytest.raises(SourceError, match="refused: it holds .* a link or a device"):
            _read(path)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "c:d", "a\0b"])
def test_a_file_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="refused"):
        plain_name(name, tmp_path)
