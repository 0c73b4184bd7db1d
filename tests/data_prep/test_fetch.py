"""Downloads over a real connection that breaks off, changes under our hands, or has nothing to
give.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import stat
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from loopback import Loopback, answering, serving

from data_prep.io import fetch
from data_prep.io.archives import LARGEST, opened, plain_name
from data_prep.io.entry import Archive, SourceError
from data_prep.io.fetch import Source, download, size_of

CONTENT = np.random.RandomState(0).bytes(1_000_000)
OTHER = np.random.RandomState(1).bytes(700_000)


@pytest.fixture
def server(monkeypatch) -> Iterator[Loopback]:
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with serving() as state:
        state.files["a.zip"] = CONTENT
        state.etags["a.zip"] = '"one"'
        yield state


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


@pytest.mark.parametrize("etag", ['"one"', 'W/"weak"', None])
def test_a_broken_download_goes_on_where_it_broke_off(server, tmp_path, etag):
    server.etags = {"a.zip": etag} if etag else {}
    server.breaks.extend([300_000, 200_000])
    path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    assert path.read_bytes() == CONTENT
    assert [asked for _, asked, _ in server.log] == [None, "bytes=300000-", "bytes=500000-"]
    assert sum(sent for *_, sent in server.log) == len(CONTENT)
    assert not _part(path).exists()


def test_a_stopped_run_is_gone_on_with_by_the_next(server, tmp_path):
    server.breaks.extend([400_000] + [0] * fetch.ATTEMPTS)
    with pytest.raises(
        SourceError,
        match=(
            r"a\.zip: could not be downloaded .*400,000 bytes are kept.*run the same command again"
        ),
    ):
        download(f"{server.url}/a.zip", tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()
    server.breaks.clear()
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT
    assert server.log[-1] == ("a.zip", "bytes=400000-", 600_000)


def test_a_server_without_ranges_starts_anew(server, tmp_path):
    server.ranges = False
    server.breaks.append(300_000)
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT
    assert [sent for *_, sent in server.log] == [300_000, 1_000_000]


@pytest.mark.parametrize(
    "etags", [('"one"', '"two"'), ('W/"one"', 'W/"two"'), (None, None), (None, '"two"')]
)
def test_a_file_that_changed_meanwhile_starts_anew(server, tmp_path, etags):
    server.etags = {"a.zip": etags[0]} if etags[0] else {}
    server.breaks.extend([300_000] + [0] * fetch.ATTEMPTS)
    with pytest.raises(SourceError):
        download(f"{server.url}/a.zip", tmp_path / "a.zip")
    server.breaks.clear()
    server.files["a.zip"], server.etags = OTHER, {"a.zip": etags[1]} if etags[1] else {}
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == OTHER


def test_a_part_that_is_whole_already_is_enough(server, tmp_path):
    """As when the run was stopped between the last byte and the renaming."""
    path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    path.rename(_part(path))
    assert download(f"{server.url}/a.zip", path).read_bytes() == CONTENT
    assert server.log[-1] == ("a.zip", "bytes=1000000-", 0)


def test_a_part_that_is_longer_than_the_file_starts_anew(server, tmp_path):
    path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    _part(path).write_bytes(path.read_bytes() + b"more")
    path.unlink()
    assert download(f"{server.url}/a.zip", path).read_bytes() == CONTENT


def test_a_whole_file_is_not_fetched_again_unless_it_is_another_addresss(server, tmp_path):
    server.files["b/a.zip"] = OTHER
    for _ in range(2):
        path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    assert len(server.log) == 1
    server.breaks.extend([100_000] + [0] * fetch.ATTEMPTS)
    with pytest.raises(SourceError):
        download(f"{server.url}/b/a.zip", path)
    server.breaks.clear()
    assert download(f"{server.url}/b/a.zip", path).read_bytes() == OTHER


def test_a_file_that_a_person_put_there_is_taken(server, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"by hand")
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == b"by hand"
    assert server.log == []


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(server, tmp_path):
    server.statuses.extend([503, 429, 200])
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT
    server.log.clear()
    with pytest.raises(SourceError, match=r"/absent\.zip: the server answers 404"):
        download(f"{server.url}/absent.zip", tmp_path / "absent.zip")
    assert len(server.log) == 1
    assert size_of(f"{server.url}/absent.zip") is None
    assert size_of(f"{server.url}/a.zip") == len(CONTENT)


def test_nobody_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with serving() as gone:
        url = f"{gone.url}/a.zip"
    with pytest.raises(
        SourceError,
        match=(
            r"a\.zip: could not be downloaded \(.*refused.*\); nothing is kept; run the same"
            r" command again"
        ),
    ):
        download(url, tmp_path / "a.zip")
    with pytest.raises(SourceError, match="neither http nor https"):
        download("file:///etc/hostname", tmp_path / "b")


# --- servers that mean harm


def _said(
    status: str = "200 OK", body: bytes = b"", length: object = None, **headers: object
) -> bytes:
    """An answer; ``length`` is what it says that its body has, "" for not saying it."""
    headers = {"Content-Length": len(body) if length is None else length} | {
        k.replace("_", "-"): v for k, v in headers.items()
    }
    lines = [
        f"HTTP/1.1 {status}",
        *(f"{name}: {value}" for name, value in headers.items() if value != ""),
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin1") + body


def _from(header: bytes) -> int:
    """Where the range of a request begins."""
    found = re.search(rb"(?i)^range: bytes=(\d+)-", header, re.MULTILINE)
    return int(found[1]) if found else 0


def _changing_etags(number: int, header: bytes) -> bytes:
    """Another file at every request, none of which comes whole."""
    start = _from(header)
    status, told = ("206 Partial", f"bytes {start}-999999/1000000") if start else ("200 OK", "")
    return _said(
        status,
        CONTENT[start : start + 300_000],
        len(CONTENT) - start,
        ETag=f'"{number}"',
        Content_Range=told,
    )


def _wrong_ranges(number: int, header: bytes) -> bytes:
    start = _from(header)
    if not start:
        return _said(body=CONTENT[:300_000], length=len(CONTENT), ETag='"one"')
    return _said(
        "206 Partial", CONTENT[5:300_000], ETag='"one"', Content_Range="bytes 5-299999/1000000"
    )


ENDLESS = {
    "another ETag every time": (_changing_etags, "discarded"),
    "another range than asked for": (_wrong_ranges, "broke off at 300,000"),
    "416 for a whole file": (
        lambda *_: _said("416 Range Not Satisfiable", Content_Range="bytes */7"),
        "416",
    ),
    "a part of a file that was asked for whole": (
        lambda *_: _said("206 Partial", b"abc", Content_Range="bytes 0-2/3"),
        "answers 206",
    ),
    "no content": (lambda *_: _said("204 No Content", length=""), "answers 204"),
    "a longer file than it sends": (
        lambda *_: _said(body=CONTENT[:5], length=9),
        "broke off at 5 of 9",
    ),
    "a byte a connection": (lambda n, header: _wrong_byte(header), r"broke off at 5 of 1,000,000"),
    "nothing": (lambda *_: b"", "closed connection"),
    "no HTTP": (lambda *_: b"\x1b[2J no HTTP\r\n", "no HTTP"),
    "redirects to itself": (
        lambda *_: _said("302 Found", Location="/a.zip"),
        "Exceeded 10 redirects",
    ),
    "redirects to ever new places": (
        lambda n, _: _said("302 Found", Location=f"/a{n}.zip"),
        "Exceeded 10 redirects",
    ),
    "redirects to a file": (
        lambda *_: _said("302 Found", Location="file:///etc/hostname"),
        "No connection adapters",
    ),
    "redirects to another kind of server": (
        lambda *_: _said("302 Found", Location="ftp://127.0.0.1:1/a.zip"),
        "No connection adapters",
    ),
    "redirects to no address": (lambda *_: _said("302 Found", Location="http://[::1/a"), "IPv6"),
    "a header without an end": (
        lambda *_: b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000,
        "100 headers",
    ),
    "an answer that does not begin": (
        lambda *_: b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000,
        "closed connection",
    ),
    "a body without an end": (
        lambda *_: _said(length="", Transfer_Encoding="chunked", body=b"f4241\r\n" + CONTENT),
        "IncompleteRead",
    ),
    "more than any archive has": (lambda *_: _said(length=1 << 50), "at most"),
    "a status of many words": (
        lambda *_: _said(f"404 {'x' * 5000}\x1b[31m"),
        r"answers 404 x+\.\.\.",
    ),
}


def _wrong_byte(header: bytes) -> bytes:
    """One byte more of the file at every request."""
    start = _from(header)
    status, told = ("206 Partial", f"bytes {start}-999999/1000000") if start else ("200 OK", "")
    return _said(
        status, CONTENT[start : start + 1], len(CONTENT) - start, ETag='"one"', Content_Range=told
    )


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_download_ends_whatever_the_server_does(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    answer, reason = ENDLESS[kind]
    with answering(answer) as (url, asked), pytest.raises(SourceError, match=reason) as refusal:
        download(f"{url}/a.zip", tmp_path / "a.zip")
    assert (
        str(refusal.value).startswith(f"{url}/a.zip: ")
        and str(refusal.value).isprintable()
        and len(str(refusal.value)) < 500
    )
    assert len(asked) <= 12 * fetch.ATTEMPTS  # ten redirections each
    assert not (tmp_path / "a.zip").exists()
    if _part(tmp_path / "a.zip").exists():
        kept = _part(tmp_path / "a.zip").read_bytes()
        assert CONTENT.startswith(
            kept
        ) and f"{len(kept):,} bytes are kept in {_part(tmp_path / 'a.zip')}" in str(refusal.value)


def test_a_part_is_kept_where_the_server_alone_is_wrong(server, tmp_path, monkeypatch):
    """It sends another range than it was asked for; asked for the whole file, it gives it."""
    server.breaks.extend([400_000] + [0] * fetch.ATTEMPTS)
    with pytest.raises(SourceError):
        download(f"{server.url}/a.zip", tmp_path / "a.zip")

    def answer(number, header):
        if _from(header):
            assert _part(tmp_path / "a.zip").stat().st_size == 400_000
            return _said(
                "206 Partial", CONTENT[5:], ETag='"one"', Content_Range="bytes 5-999999/1000000"
            )
        return _said(body=CONTENT, ETag='"one"')

    with answering(answer) as (url, asked):
        note = tmp_path / "a.zip.note.json"
        note.write_text(note.read_text().replace(server.url, url))
        assert download(f"{url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT
    assert [_from(header) for header in asked] == [400_000, 0]


def test_a_server_that_sends_a_byte_now_and_then_is_left(tmp_path, monkeypatch):
    """By a clock on which every look takes five seconds, the file would come in two months."""
    now = itertools.count(0, 5)
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    monkeypatch.setattr(fetch, "_CHUNK", 1)
    monkeypatch.setattr(
        fetch, "time", SimpleNamespace(monotonic=lambda: float(next(now)), sleep=time.sleep)
    )
    with answering(lambda *_: _said(body=CONTENT[:1000])) as (url, asked):
        with pytest.raises(
            SourceError, match=r"could not be downloaded \(the server sent \d+ bytes in 6\d s\)"
        ):
            download(f"{url}/a.zip", tmp_path / "a.zip")
        with pytest.raises(SourceError, match=r"SHA256SUMS: the server sent \d+ bytes in 6\d s"):
            Source.of(tmp_path, url, None).sums()
    assert len(asked) == fetch.ATTEMPTS + 1


def test_a_server_whose_answer_does_not_begin_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    monkeypatch.setattr(fetch, "WINDOW", 0.1)
    late = answering(lambda *_: time.sleep(0.5) or _said(body=CONTENT))
    with (
        late as (url, asked),
        pytest.raises(
            SourceError, match=r"\(the server's answer did not begin in 0\.1 s\); nothing is kept"
        ),
    ):
        download(f"{url}/a.zip", tmp_path / "a.zip")
    assert len(asked) == fetch.ATTEMPTS


def test_a_body_that_goes_on_and_on_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    monkeypatch.setattr(fetch, "MOST", 700_000)
    endless = answering(lambda *_: _said(body=CONTENT, length=""))
    with endless as (url, _), pytest.raises(SourceError, match="sends more than 700,000 bytes"):
        download(f"{url}/a.zip", tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told_by_the_files_name(server, tmp_path):
    _part(tmp_path / "a.zip").symlink_to("/dev/full")
    server.breaks.append(0)  # the link is no part of a file of this server's, and would be removed
    (tmp_path / "a.zip.note.json").write_text(json.dumps({"url": f"{server.url}/a.zip"}))
    with pytest.raises(OSError, match=r"a\.zip\.part: No space left on device"):
        fetch._receive([CONTENT], _part(tmp_path / "a.zip"), 1, None, True)


@pytest.mark.parametrize(
    "note", ["", "{", "[]", "null", '{"url": 5}', '{"url": "URL", "etag": ["one"]}', "[" * 100_000]
)
def test_a_note_that_is_none_costs_a_download(server, tmp_path, note):
    _part(tmp_path / "a.zip").write_bytes(b"other")
    (tmp_path / "a.zip.note.json").write_text(note.replace("URL", f"{server.url}/a.zip"))
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT


# --- sources

ARCHIVE = Archive("a.zip", "https://example.org/a.zip", 5, None)


def test_a_folder_and_a_file_address_are_read_in_place(tmp_path):
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "a.zip").write_bytes(b"12345")
    for source in (
        Source.of(tmp_path / "store", None, folder),
        Source.of(tmp_path / "store", folder.as_uri(), None),
    ):
        assert source.obtain(ARCHIVE) == folder / "a.zip"
        assert source.size(ARCHIVE) == 5
        assert not source.official
    (folder / "a.zip").unlink()
    with pytest.raises(
        SourceError, match=r"a\.zip: no such archive; the official one is at https://example\.org"
    ):
        source.obtain(ARCHIVE)


def test_checksums_beside_the_archives_are_read(server, tmp_path):
    server.files["SHA256SUMS"] = f"{hashlib.sha256(CONTENT).hexdigest()}  a.zip\n".encode()
    assert Source.of(tmp_path, server.url, None).sums() == {
        "a.zip": hashlib.sha256(CONTENT).hexdigest()
    }
    assert Source.of(tmp_path, None, None).sums() == {}
    assert list(tmp_path.iterdir()) == []  # nothing that two commands would share
    del server.files["SHA256SUMS"]
    assert Source.of(tmp_path, server.url, None).sums() == {}


@pytest.mark.parametrize("name", ["a.zip", "./a.zip", "*a.zip", "*./a.zip", ".//a.zip"])
def test_a_checksum_is_of_its_file_however_its_name_is_spelt(tmp_path, name):
    """As ``sha256sum``, with ``-b``, and ``find -exec`` spell it."""
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\r\n")
    assert Source.of(tmp_path, None, tmp_path).sums() == {"a.zip": "0" * 64}


@pytest.mark.parametrize("content", ["", "\n\n", f"{'0' * 64}  a.zip\n{'1' * 64}  ./a.zip\n"])
def test_checksums_that_say_nothing_or_two_things_are_named(tmp_path, content):
    (tmp_path / "SHA256SUMS").write_text(content)
    with pytest.raises(
        SourceError,
        match=(
            "SHA256SUMS: (holds no checksum|line 2 has another checksum for a file that is named"
            " before)"
        ),
    ):
        Source.of(tmp_path, None, tmp_path).sums()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_checksums_that_are_no_file_are_named(tmp_path, make):
    """And not taken for none."""
    make(tmp_path / "SHA256SUMS")
    with pytest.raises(SourceError, match="SHA256SUMS: not a file"):
        Source.of(tmp_path, None, tmp_path).sums()


@pytest.mark.parametrize("line", [b"oneword", b"abc  a.zip", b"\xff\xfe"])
def test_checksums_that_are_none_are_named(server, tmp_path, line):
    server.files["SHA256SUMS"] = b"\n" + line + b"\n"
    (tmp_path / "SHA256SUMS").write_bytes(server.files["SHA256SUMS"])
    for source in (Source.of(tmp_path, server.url, None), Source.of(tmp_path, None, tmp_path)):
        with pytest.raises(
            SourceError, match="SHA256SUMS: line 2 is not a SHA-256 and the name of a file"
        ):
            source.sums()


@pytest.mark.parametrize("status", [405, 501])
def test_a_server_without_head_is_asked_otherwise(server, status):
    server.heads = status
    assert size_of(f"{server.url}/a.zip") == len(CONTENT)
    assert size_of(f"{server.url}/absent.zip") is None


@pytest.mark.parametrize("url", ["ftp://x/y", "example.org"])
def test_other_addresses_are_refused(tmp_path, url):
    with pytest.raises(SourceError, match="http://HOST, https://HOST or file://"):
        Source.of(tmp_path, url, None)
    with pytest.raises(SourceError, match="give one of them"):
        Source.of(tmp_path, url, tmp_path)


# --- archives


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


def test_archives_of_each_kind_are_read(tmp_path):
    whole = _read(_tar(tmp_path / "a.tar"))
    assert list(whole) == ["folder/one", "folder/two"]
    assert _read(_tar(tmp_path / "a.tar.gz", "w:gz")) == whole
    assert _read(_zip(tmp_path / "a.zip")) == {"folder/one": whole["folder/one"]}


@pytest.mark.parametrize(
    "keep", [0, 1, 100, 512, 2000, 512 + 3072, 512 + 3072 + 200, 2 * (512 + 3072)]
)
def test_a_truncated_tar_is_refused_by_name(tmp_path, keep):
    """Also where it is torn between two members, which Python's reader takes for the end."""
    path = _tar(tmp_path / "a.tar")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match=rf"{path}: a damaged archive"):
        _read(path)


@pytest.mark.parametrize("make", [lambda path: _tar(path, "w:gz"), _zip], ids=["tar.gz", "zip"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:10],
        lambda b: b[:-3],
        lambda b: b[: len(b) // 2],
        lambda b: b[:2000] + b"?" + b[2001:],
    ],
)
def test_a_damaged_archive_is_refused_by_name(tmp_path, make, damage):
    path = make(tmp_path / "archive")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=rf"{path}: a damaged archive"):
        _read(path)


def test_a_garbled_header_is_refused_by_name(tmp_path):
    path = _tar(tmp_path / "a.tar")
    content = bytearray(path.read_bytes())
    content[512 + 3072] ^= 1  # the second member's
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"{path}: a damaged archive"):
        _read(path)


@pytest.mark.parametrize("name", ["../out", "/out", "folder/../../out", "a\\..\\out", "c:/out"])
def test_a_name_that_leaves_the_archive_is_refused(tmp_path, name):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    for path in (tmp_path / "a.tar", _zip(tmp_path / "a.zip", name)):
        with pytest.raises(SourceError, match="refused: it holds .* a name that leaves its folder"):
            _read(path)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("folder/link")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    for path in (tmp_path / "a.tar", _zip(tmp_path / "a.zip", kind=stat.S_IFLNK)):
        with pytest.raises(SourceError, match="refused: it holds .* a link or a device"):
            _read(path)


def _header(
    name: str, size: int, kind: bytes = tarfile.REGTYPE, headers: dict[str, str] | None = None
) -> bytes:
    """A tar member's header, without the content that it promises."""
    member = tarfile.TarInfo(name)
    member.size, member.type, member.pax_headers = size, kind, headers or {}
    return member.tobuf(tarfile.PAX_FORMAT if headers else tarfile.GNU_FORMAT)


def _sparse(size: int, **others: str) -> dict[str, str]:
    return {f"GNU.sparse.{key}": value for key, value in ({"realsize": str(size)} | others).items()}


SPARSE = {
    "old": _header("one", 0, tarfile.GNUTYPE_SPARSE),
    "0.1": _header("one", 0, headers=_sparse(10**15, map="0,0")),
    "1.0": _header("one", 512, headers=_sparse(10**15, major="1", minor="0")) + b"0\n" + bytes(510),
    "1.0 garbage": (
        _header("one", 512, headers=_sparse(5, major="1", minor="0")) + b"garbage\n" + bytes(504)
    ),
}


@pytest.mark.parametrize("content", SPARSE.values(), ids=SPARSE.keys())
def test_sparse_files_are_refused_by_name(tmp_path, content):
    """A hundred bytes would be read as petabytes of zeros."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(content + bytes(1024)))
    with pytest.raises(SourceError, match=rf"{path}: .* a sparse file"):
        _read(path)


@pytest.mark.parametrize("size", [LARGEST + 1, 8**11 - 1, 1 << 80])
def test_a_member_larger_than_any_data_set_has_is_refused_unread(tmp_path, size):
    tar, packed = tmp_path / "a.tar", _zip(tmp_path / "a.zip")
    tar.write_bytes(_header("folder/one", size) + bytes(1024))
    content = bytearray(packed.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 24  # where the directory says how large the file is
    content[at : at + 4] = min(size, 2**32 - 2).to_bytes(4, "little")
    packed.write_bytes(content)
    for path in (tar, packed):
        with pytest.raises(
            SourceError, match=rf"{path}: refused: it holds 'folder/one', of [\d,]+ bytes"
        ):
            _read(path)


@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE]
)
def test_a_name_is_not_read_if_it_is_huge_or_nested(tmp_path, kind):
    path = tmp_path / "a.tar"
    for content, why in (
        (_header("x", 2 << 30, kind), "a name of 2,147,483,648 bytes"),
        (_header("x", 0, kind) * 3000, "RecursionError"),
    ):
        path.write_bytes(content + bytes(1024))
        with pytest.raises(SourceError, match=rf"{path}: a damaged archive \(.*{why}"):
            _read(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_any_compression_is_refused_by_name(tmp_path, method):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("folder/one", np.random.RandomState(2).bytes(3000))
    content = path.read_bytes()
    path.write_bytes(content[:45] + np.random.RandomState(3).bytes(500) + content[545:])
    with pytest.raises(SourceError, match=rf"{path}: a damaged archive"):
        _read(path)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "there"),
        ValueError("own"),
        RecursionError("own"),
    ],
)
def test_an_error_of_the_code_that_takes_the_members_is_not_the_archives(tmp_path, error):
    for path in (
        _tar(tmp_path / "a.tar"),
        _tar(tmp_path / "a.tar.gz", "w:gz"),
        _zip(tmp_path / "a.zip"),
    ):
        with pytest.raises(type(error)) as caught, opened(path) as members:
            for _, _ in members:
                raise error
        assert caught.value is error


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "c:d", "a\0b"])
def test_a_file_name_is_no_path(tmp_path, name):
    with pytest.raises(SourceError, match="refused"):
        plain_name(name, tmp_path)
