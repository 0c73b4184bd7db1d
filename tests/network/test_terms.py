"""Files of the server and of parties, and keys."""

import re
import tomllib
from pathlib import Path

import pytest
from toys import USERS

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.public import public_digest
from fedmuscle_lib.network import keys
from fedmuscle_lib.network.history import History
from fedmuscle_lib.network.terms import Limits, PartyFile, ServerFile, Terms, read

PAGE = (Path(__file__).parents[2] / "docs/federation.md").read_text(encoding="utf8")
TERMS = {"name": "a", "public": {"images": "b"}}


def test_the_pages_files_are_read(tmp_path, mini_world):
    server, party = (
        tomllib.loads(block) for block in re.findall("```toml\n(.*?)```", PAGE, re.DOTALL)
    )
    server["public"] = str(mini_world / "MLC_setup/public_Pascal")
    keys.make(tmp_path / "keys", USERS, ["127.0.0.1"])
    file = tmp_path / "server.toml"
    file.touch()
    read_server = read(ServerFile, file, server)
    assert (
        read_server.folder == tmp_path / "server"
        and read_server.users[2] == tmp_path / "keys/user_2.pub"
    )
    terms = read_server.agreed()
    assert (terms.rounds, terms.others, set(terms.public)) == (20, 2, {"images"})
    own = read(
        PartyFile,
        file,
        party | {"data": str(mini_world), "model": str(mini_world / "models/vit-tiny")},
    )
    own.limits.check(terms)
    settings = own.training(terms)
    assert (
        settings.rounds,
        settings.public_size,
        settings.evaluate_every,
        settings.members[0].number,
    ) == (20, 512, 2, 1)
    assert (
        own.reads == "images"
        and public_digest(own.public_folder, 512, "images") == terms.public["images"]
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"reply": "dense"}, None),
        ({"tau": {"default": 0.2, "1-3": 0.5}}, None),
        ({"round": 3}, "unknown field 'round'; did you mean"),
        ({"rounds": 0}, "rounds: Input should be greater than or equal to 1"),
        ({"tau": {"1-3": 0.5}}, "tau: temperatures by pair need a 'default'"),
        (
            {"tau": {"default": 0.2, "1-33": 0.5}},
            "tau: '1-33' is no pair of users who may join, such as '1-2'",
        ),
        (
            {"tau": {"default": 0.2, "1-3": 0.5, "3-1": 0.5}},
            "tau: '1-3' is listed twice, in both orders",
        ),
        ({"tau_prime": 0.3}, "tau"),
        ({"others": 3}, "others: M = 3, but a user has only 2 other users"),
        ({"public_batch": 100}, "public_batch: B = 100 is larger than the public set of 64"),
        ({"options": {"fedrcl.weight": 1.0}}, "options: no 'fedrcl.weight'"),
    ],
)
def test_terms_that_can_not_be_are_refused(net, given, why):
    file = net(terms=given).file
    if why is None:
        assert file.agreed().temperature("tau", 3, 1) in (0.2, 0.5)
        return
    with pytest.raises(ValueError, match=why):
        file.agreed()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"address": "10.0.0.1:8899", "insecure": True},
            "insecure: only on loopback, such as 127.0.0.1, not at 10.0.0.1:8899",
        ),
        (
            {"certificate": None},
            (
                "an encrypted connection needs a certificate: `python -m fedmuscle_lib keys FOLDER"
                " --host NAME` makes"
            ),
        ),
        ({"insecure": True}, "insecure: certificates are named too"),
        ({"address": "8899"}, "address: an address is host:port"),
        ({"port": 1}, "unknown field 'port'"),
        ({"users": {"1": "a"}}, "users: "),
        ({"bounds": {"fewest": 4}}, "bounds.fewest: 4, but only 3 users may join"),
    ],
)
def test_a_servers_file_that_can_not_be_is_refused(net, given, why):
    with pytest.raises(ValueError, match=why):
        net(**given)


def test_a_partys_settings_say_nothing_that_the_terms_or_its_own_fields_say(net):
    with pytest.raises(ValueError, match="settings: rounds is for the server's terms"):
        net().party_file(1, settings={"profile": "mini", "rounds": 3}).training(net().file.agreed())


def test_an_insecure_connection_is_for_loopback_and_by_name(net):
    assert net(insecure=True, certificate=None, key=None).file.address.loopback
    with pytest.raises(ValueError, match="insecure: only on loopback"):
        net().party_file(1, server="aggregator.example:8899", insecure=True, root=None)


def test_a_party_sees_others_representations_only_if_it_says_so():
    terms = Terms(reply="factored", rounds=1, **TERMS)
    Limits(replies=("gradient", "factored")).check(terms)
    with pytest.raises(ValueError, match="the server sends factored replies"):
        Limits().check(terms)


def test_a_key_that_others_may_read_or_that_is_none_is_refused(tmp_path):
    made = keys.make(tmp_path, [1], ["localhost"])
    assert keys.make(tmp_path, [1], ["localhost"]) == [] and {path.name for path in made} >= {
        "server.pem",
        "server.key",
        "user_1.pub",
    }
    (tmp_path / "user_1.key").chmod(0o644)
    with pytest.raises(DataError, match="others may read this private key"):
        keys.private_key(tmp_path / "user_1.key")
    with pytest.raises(DataError, match="no public key of Ed25519"):
        keys.public_key(tmp_path / "server.pem")


def test_a_signature_is_for_one_federation_user_and_nonce(tmp_path):
    keys.make(tmp_path, [1], ["localhost"])
    public, signature = keys.sign(keys.private_key(tmp_path / "user_1.key"), "a", 1, "nonce")
    assert public == keys.public_key(tmp_path / "user_1.pub") and keys.signed(
        public, signature, "a", 1, "nonce"
    )
    assert not any(
        keys.signed(public, signature, *of)
        for of in (("b", 1, "nonce"), ("a", 2, "nonce"), ("a", 1, "other"))
    )
    assert not keys.signed(public, "no hex", "a", 1, "nonce")


def test_a_servers_state_belongs_to_its_terms(tmp_path):
    history = History(tmp_path, Terms(rounds=2, **TERMS))
    history.finished = 1
    history.add("rounds", round=1, users=2)
    history.keep()
    again = History(tmp_path, Terms(rounds=2, **TERMS))
    assert again.finished == 1 and again.rows == history.rows
    with pytest.raises(DataError, match=r"other terms \(rounds\); name another folder"):
        History(tmp_path, Terms(rounds=3, **TERMS))
    (tmp_path / "state.json").write_text(
        '{"terms": '
        + Terms(rounds=2, **TERMS).model_dump_json()
        + ', "finished": 9, "over": [], "rows": {}}'
    )
    with pytest.raises(DataError, match="no state of a server"):
        History(tmp_path, Terms(rounds=2, **TERMS))
