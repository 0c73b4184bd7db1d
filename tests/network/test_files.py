"""Files of the server and of parties, certificates, messages, and the commands as they are typed."""

from __future__ import annotations

import json
import pickle
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import which

import pytest
import torch
from hypothesis import given, strategies

from fedmuscle_lib.__main__ import main
from fedmuscle_lib.core.command_line import DONE, FAILURE, MISTAKE
from fedmuscle_lib.core.errors import DataError, RefusedMessage
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.network import certificates, join, server
from fedmuscle_lib.network.history import History
from fedmuscle_lib.network.messages import Answer, Question, pack, unpack
from fedmuscle_lib.network.rounds import TooFew
from fedmuscle_lib.network.terms import PartyFile, ServerFile, read

PAGE = (Path(__file__).parents[2] / "docs/federation.md").read_text(encoding="utf8")


def test_the_pages_files_are_read(tmp_path, mini_world):
    for name, block in zip(
        ("server", "party"), re.findall("```toml\n(.*?)```", PAGE, re.DOTALL), strict=True
    ):
        (tmp_path / f"{name}.toml").write_text(block)
    world = {"data": mini_world, "model": mini_world / "models/vit-tiny"}
    public = mini_world / "MLC_setup/public_Pascal"
    ours = read(ServerFile, tmp_path / "server.toml", {"public": public})
    assert (ours.folder, ours.address) == (tmp_path / "server", "127.0.0.1:0")
    party = read(PartyFile, tmp_path / "party.toml", {"server": "127.0.0.1:1", **world})
    party.check_public(ours.terms())
    settings = party.training(1, ours.terms())
    assert (settings.rounds, settings.public_size) == (ours.rounds, ours.public_size)
    assert settings.members[0].task == party.task and settings.evaluate_every == 2


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"round": 3}, "unknown setting 'round'; did you mean"),
        ({"rounds": 0}, "rounds: Input should be greater than or equal to 1"),
        ({"tau_prime": 0.3}, "tau_prime = 0.3 exceeds tau = 0.2"),
        ({"others": 3}, "others: M = 3, but a user has only 2 other users"),
        ({"address": "8899"}, "address: String should match pattern"),
        ({"users": [1]}, "users: "),
        ({"users": [0, 1, 2]}, "users.0: Input should be greater than or equal to 1"),
        ({"folder": ""}, "folder: the path is empty"),
        ({"wait": 0}, "wait: Input should be greater than 0"),
    ],
)
def test_a_servers_file_that_can_not_be_is_refused(net, given, why):
    with pytest.raises(ValueError, match=why):
        net(**given)


def test_a_partys_file_that_can_not_be_is_refused(net):
    net = net()
    terms = net.file.terms()
    with pytest.raises(ValueError, match="task: no task 'IC11'; did you mean 'IC10'"):
        net.party_file(1, task="IC11")
    with pytest.raises(ValueError, match="folder: String should have at least 1 character"):
        net.party_file(1, folder="")
    with pytest.raises(DataError, match="public_COCO: another public set than the federation's"):
        net.party_file(1, public="coco").check_public(terms)


def test_a_servers_state_belongs_to_its_terms_and_no_other_file_is_touched(net, tmp_path):
    terms = net().file.terms()
    (tmp_path / ".state.json-0123abcd").touch()
    History(tmp_path, terms).add({"round": 1}, [])
    assert History(tmp_path, terms).rounds == [{"round": 1}]
    assert (tmp_path / ".state.json-0123abcd").exists()
    with pytest.raises(DataError, match="other terms; name another folder"):
        History(tmp_path, terms.model_copy(update={"tau": 0.5}))


# --- certificates


def test_certificates_are_made_once_and_a_new_one_joins_them(tmp_path):
    names = [path.name for path in certificates.make(tmp_path, [1, 2], ["127.0.0.1", "a.example"])]
    assert names == ["authority.pem", "root.pem", "server.pem", "user_1.pem", "user_2.pem"]
    assert certificates.user_of(tmp_path / "user_2.pem") == 2
    (tmp_path / "server.pem").unlink()  # it is renewed
    assert [path.name for path in certificates.make(tmp_path, [1, 3], ["127.0.0.1"])] == [
        "server.pem",
        "user_3.pem",
    ]
    (tmp_path / "authority.pem").unlink()
    with pytest.raises(DataError, match="authority.pem: no such file"):
        certificates.make(tmp_path, [4], [])


@pytest.mark.skipif(which("openssl") is None, reason="there is no openssl")
def test_a_party_makes_its_own_key_as_the_page_says(tmp_path):
    certificates.make(tmp_path, [], ["127.0.0.1"])
    (commands,) = re.findall(r"```bash\s+(openssl .*?)```", PAGE, re.DOTALL)
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, capture_output=True, check=True)
    assert certificates.user_of(tmp_path / "user_2.pem") == 2
    root = certificates.pair(tmp_path / "authority.pem")[1]
    certificates.pair(tmp_path / "user_2.pem")[1].verify_directly_issued_by(root)


@pytest.mark.parametrize("host", ["127.0.0.1:8899", "https://x", ""])
def test_a_useless_host_is_refused(tmp_path, host):
    with pytest.raises(ValueError, match="host: a name or an address without a port, not"):
        certificates.make(tmp_path, [], [host])
    assert not list(tmp_path.iterdir())


def test_a_certificate_that_can_not_be_used_is_told_by_name(tmp_path):
    certificates.make(tmp_path, [1, 2], ["localhost"])
    one, two = (tmp_path / f"user_{user}.pem" for user in (1, 2))
    with pytest.raises(
        DataError, match="server.pem: its common name is not a user's number .*'server'"
    ):
        certificates.user_of(tmp_path / "server.pem")
    with pytest.raises(DataError, match="user_9.pem: no such file"):
        certificates.user_of(tmp_path / "user_9.pem")
    two.chmod(0o644)
    with pytest.raises(DataError, match="user_2.pem: others can read this private key"):
        certificates.pair(two)
    key, certificate = (each.read_text().partition("-----BEGIN CERT") for each in (one, two))
    one.write_text(key[0] + certificate[1] + certificate[2])
    with pytest.raises(DataError, match="user_1.pem: the private key is not that of the cert"):
        certificates.pair(one)
    one.write_text(key[0])
    with pytest.raises(DataError, match="user_1.pem: no certificate with its private key in PEM"):
        certificates.pair(one)


# --- messages

QUESTION = Question(step="represent", round=2, batch=Batch(2, 0, 1, 4))
Z = torch.arange(12.0).view(3, 4)


def tensor(kind: str, shape: list[int], size: int) -> bytes:
    """A message with a tensor of a kind that torch lacks, or of an impossible shape."""
    head = json.dumps({"z": {"dtype": kind, "shape": shape, "data_offsets": [0, size]}}).encode()
    return pack(QUESTION) + len(head).to_bytes(8, "little") + head + bytes(size)


def test_a_message_is_read_as_it_was_written():
    head, tensors = unpack("user 1", Question, pack(QUESTION, {"z": Z.T}))
    assert head == QUESTION and torch.equal(tensors["z"], Z.T)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xff\xff\xff{}",
        pickle.dumps(Z),
        pack(Answer()),
        pack(QUESTION, {"z": Z})[:-1],
        pack(QUESTION) + b"\x80\x04.",
        pack(QUESTION) + (1 << 60).to_bytes(8, "little") + b"{}",
        tensor("F4", [8], 4),
        tensor("F8_E8M0", [4], 4),
        tensor("F32", [0, 2**63], 0),
    ],
)
def test_anything_else_is_refused_with_its_sender_in_one_line(content):
    with pytest.raises(RefusedMessage, match=r"^user 1 sent no readable Question \([^\n]*\)$"):
        unpack("user 1", Question, content)


@given(strategies.binary(max_size=64))
def test_whatever_bytes_come_are_refused_or_read(content):
    for start in (b"", pack(QUESTION)):
        try:
            unpack("user 1", Question, start + content)
        except RefusedMessage as error:
            assert str(error).startswith("user 1 sent ")


# --- commands


def test_certificates_need_no_torch(tmp_path):
    code = (
        "import sys; from fedmuscle_lib.__main__ import main;"
        f"code = main(['certificates', {str(tmp_path)!r}, '--user', '3', '--host', 'localhost']);"
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [Path(name).name for name in done.stdout.split()] == [
        "authority.pem",
        "root.pem",
        "server.pem",
        "user_3.pem",
    ]


def test_options_join_the_partys_file(tmp_path, monkeypatch):
    files: list[PartyFile] = []
    monkeypatch.setattr(join, "join", lambda file, tell: files.append(file))
    (tmp_path / "party.toml").write_text(
        'server = "a.example:1"\ncertificate = "c"\nroot = "r"\nstate = "s"\ntask = "IC10"\n'
        "[settings]\nlr = 1e-4\n"
    )
    monkeypatch.chdir(tmp_path)
    options = ["-p", "data=here", "-p", "model=vit", "-p", "train_samples=50", "-p", "rank=4"]
    assert main(["join", str(tmp_path / "party.toml"), *options]) == DONE
    (file,) = files
    assert (file.data, file.certificate) == (tmp_path / "here", tmp_path / "c")
    assert file.settings == {"lr": 1e-4, "rank": 4} and file.train_samples == 50


def test_a_wrong_file_and_what_ends_a_server_are_one_line(tmp_path, capsys, net, monkeypatch):
    file = tmp_path / "server.toml"
    for content, why in {
        "": "folder: Field required",
        "x = [": "",
        "adress = 1": "unknown setting 'adress'; did you mean 'address'?",
    }.items():
        file.write_text(content)
        assert main(["serve", str(file)]) == MISTAKE
        said = capsys.readouterr().err
        assert said.startswith(f"error: {file}: ") and why in said and said.count("\n") == 1
    assert main(["serve", str(tmp_path / "none.toml")]) == MISTAKE
    assert "none.toml: no such file" in capsys.readouterr().err

    def ends(file, tell):
        raise TooFew("round 1 needs two users")

    monkeypatch.setattr(server, "serve", ends)
    ours = net().file.model_dump(mode="json")
    file.write_text("".join(f"{name} = {json.dumps(ours[name])}\n" for name in ours))
    assert tomllib.loads(file.read_text()) and main(["serve", str(file)]) == FAILURE
    assert capsys.readouterr().err == "error: round 1 needs two users\n"


def test_a_port_that_is_taken_is_told_before_anything_is_read(net):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RuntimeError, match=f"Failed to bind to address {address}"):
            server.serve(net(address=address, public="/nowhere").file)
