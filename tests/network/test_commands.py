"""``keys``, ``serve`` and ``join`` as they are typed; and what they say where something is
missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmuscle_lib.cli import app
from fedmuscle_lib.core.command_line import DONE, FAILURE, MISTAKE, carried_out
from fedmuscle_lib.network import party, serve
from fedmuscle_lib.network.terms import PartyFile


def typed(*line: object) -> int:
    return carried_out(app, list(map(str, line)), "fedmuscle_lib")


def test_keys_are_made_once(tmp_path, capsys):
    assert typed("keys", tmp_path, "--users", "1,2", "--host", "aggregator.example") == DONE
    written = capsys.readouterr().out.split()
    assert {Path(name).name for name in written} == {
        "server.pem",
        "server.key",
        *(f"user_{n}.{k}" for n in (1, 2) for k in ("key", "pub")),
    }
    assert typed("keys", tmp_path / "own", "--users", "3") == DONE
    assert [Path(name).name for name in capsys.readouterr().out.split()] == [
        "user_3.key",
        "user_3.pub",
    ]
    assert typed("keys", tmp_path, "--users", "1,2") == DONE and not capsys.readouterr().out
    assert (
        typed("keys", tmp_path, "--users", "1,x") == MISTAKE
        and "users: whole numbers" in capsys.readouterr().err
    )


def test_options_join_the_partys_file(tmp_path, monkeypatch):
    read: list[PartyFile] = []
    monkeypatch.setattr(party.Party, "__init__", lambda self, file, tell: read.append(file))
    monkeypatch.setattr(party.Party, "run", lambda self: None)
    (tmp_path / "party.toml").write_text(
        'server = "a.example:1"\nkey = "k"\nroot = "r"\nstate = "s"\ntask = "IC10"\n[settings]\nlr'
        " = 1e-4\n"
    )
    monkeypatch.chdir(tmp_path)
    options: list[Any] = [
        "-p",
        "user=3",
        "-p",
        "data=here",
        "-p",
        f"model={tmp_path / 'vit'}",
        "-p",
        "train_samples=50",
        "-p",
        "rank=4",
    ]
    assert typed("join", tmp_path / "party.toml", *options, "-p", "limits.rounds=7") == DONE
    (file,) = read
    assert (file.user, file.data, file.model, file.train_samples) == (
        3,
        tmp_path / "here",
        tmp_path / "vit",
        50,
    )
    assert (
        file.settings == {"lr": 1e-4, "rank": 4}
        and file.limits.rounds == 7
        and file.key == tmp_path / "k"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "address: Field required"),
        ("x = [", "not TOML"),
        ("adress = 1", "unknown field 'adress'; did you mean 'address'?"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, capsys, content, why):
    (tmp_path / "server.toml").write_text(content)
    assert typed("serve", tmp_path / "server.toml") == MISTAKE
    said = capsys.readouterr().err
    assert (
        said.startswith(f"error: {tmp_path}/server.toml: ")
        and why in said
        and said.count("\n") == 1
    )
    assert (
        typed("serve", tmp_path / "none.toml") == MISTAKE and "none.toml" in capsys.readouterr().err
    )


def test_what_ends_a_server_is_one_line(tmp_path, capsys, monkeypatch):
    from fedmuscle_lib.network import terms
    from fedmuscle_lib.network.aggregator import Waited

    def waits(file, tell):
        raise Waited("waited 600 s for user 3")

    monkeypatch.setattr(serve, "serve", waits)
    monkeypatch.setattr(terms, "read", lambda *given: None)
    assert (
        typed("serve", tmp_path) == FAILURE
        and capsys.readouterr().err == "error: waited 600 s for user 3\n"
    )
