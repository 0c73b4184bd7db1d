"""Downloads over a real connection that breaks off, or whose file changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from loopback import Loopback, serving

from data_prep.io import fetch
from data_prep.io.entry import Archive, SourceError
from data_prep.io.fetch import Source, download

CONTENT, OTHER = np.random.RandomState(0).bytes(1_000_000), b"other" * 100_000


@pytest.fixture
def server(monkeypatch) -> Iterator[Loopback]:
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with serving() as state:
        state.files["a.zip"] = CONTENT
        state.etags["a.zip"] = '"one"'
        yield state


def test_a_broken_download_resumes(server, tmp_path):
    server.breaks.extend([4 * fetch._CHUNK, 3 * fetch._CHUNK])
    path = download(f"{server.url}/a.zip", tmp_path / "a.zip")
    assert path.read_bytes() == CONTENT and list(tmp_path.iterdir()) == [path]
    assert [asked for _, asked, _ in server.log] == [None, "bytes=262144-", "bytes=458752-"]
    assert download(f"{server.url}/a.zip", path) == path and len(server.log) == 3


def test_a_stopped_run_is_resumed_by_the_next(server, tmp_path):
    server.breaks.extend([4 * fetch._CHUNK] + [0] * fetch.ATTEMPTS)
    with pytest.raises(SourceError, match=r"262,144 bytes are kept .*run the same command again"):
        download(f"{server.url}/a.zip", tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()
    server.breaks.clear()
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT
    assert server.log[-1] == ("a.zip", "bytes=262144-", 737_856)


@pytest.mark.parametrize("etags", [('"one"', '"two"'), (None, None)])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_changed_or_has_no_ranges_starts_anew(server, tmp_path, etags, ranges):
    server.ranges = ranges
    server.etags = {"a.zip": etags[0]} if etags[0] else {}
    server.breaks.extend([300_000] + [0] * fetch.ATTEMPTS)
    with pytest.raises(SourceError):
        download(f"{server.url}/a.zip", tmp_path / "a.zip")
    server.breaks.clear()
    server.files["a.zip"], server.etags = OTHER, {"a.zip": etags[1]} if etags[1] else {}
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == OTHER


def test_a_part_that_is_longer_than_the_file_starts_anew(server, tmp_path):
    (tmp_path / "a.zip.part").write_bytes(CONTENT + b"more")
    (tmp_path / "a.zip.part.etag").write_text('"one"')
    assert download(f"{server.url}/a.zip", tmp_path / "a.zip").read_bytes() == CONTENT


def test_an_address_that_does_not_exist_is_asked_once_and_named(server, tmp_path):
    with pytest.raises(SourceError, match=r"nothing\.zip: could not be downloaded \(404"):
        download(f"{server.url}/nothing.zip", tmp_path / "nothing.zip")
    assert len(server.log) == 1


def test_a_source_is_a_folder_or_an_address(server, tmp_path):
    archive = Archive("a.zip", "http://official/a.zip")
    source = Source.of(tmp_path / "store", server.url, None)
    assert source.size(archive) == len(CONTENT)
    assert source.size(Archive("b.zip", "http://official/b.zip")) is None
    server.files["SHA256SUMS"] = b"0" * 64 + b"  ./a.zip\n"
    assert source.sums() == {"a.zip": "0" * 64}
    (tmp_path / "a.zip").write_bytes(CONTENT)
    folder = Source.of(tmp_path / "store", tmp_path.as_uri(), None)
    assert folder.obtain(archive) == tmp_path / "a.zip"
    for url, path, why in (
        ("ftp://host", None, "http://HOST, https://HOST or file://FOLDER"),
        (server.url, tmp_path, "give one of them"),
        (None, tmp_path / "nowhere", "no such folder of archives"),
    ):
        with pytest.raises(SourceError, match=why):
            Source.of(tmp_path, url, path)
