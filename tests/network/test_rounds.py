"""The rounds over any engine: the numbers of one process, whoever is missing."""

from __future__ import annotations

import re

import pytest
import torch
from toys import USERS, assert_same, direct

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.network.history import History
from fedmuscle_lib.network.messages import Answer, Question, pack, unpack
from fedmuscle_lib.network.rounds import Rounds, TooFew


def federate(net, ask, users=USERS):
    """All rounds over an engine; returns what happened."""
    terms = net.file.terms()
    history = History(net.file.folder, terms)
    Rounds(terms, users, ask, history, net.told.append).run()
    return history


@pytest.mark.parametrize("engine", ["direct", "grpc"])
def test_the_numbers_are_those_of_one_process(net, engine, monkeypatch):
    """Over gRPC on loopback although a proxy is set."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # where nobody listens
    net = net(rounds=2)
    parties = net.toys(report=True)
    history = net.federate(parties) if engine == "grpc" else federate(net, direct(parties))
    assert_same(parties, history, net.file.terms())
    assert [row["uplink_bytes"] for row in history.users] == [64 * 8 * 4] * 6
    assert all(row["value"] and row["why_not"] is None for row in history.users)
    assert (net.folder / "server/users.csv").read_text().count("\n") == 7


@pytest.mark.parametrize(
    "gone",
    [
        lambda user, round, batch: user == 3 and round == 1,
        lambda user, round, batch: user == 3 and round == 1 and batch == 1,
    ],
    ids=["a round", "the rest of a round"],
)
def test_a_party_that_does_not_answer_equals_a_run_without_it(net, gone):
    net = net(others=1)
    parties = net.toys()
    answers = direct(parties)

    def ask(questions):
        heads = {user: unpack("", Question, asked)[0] for user, asked in questions.items()}
        at = {user: head.batch.position if head.batch else -1 for user, head in heads.items()}
        there = [user for user in at if not gone(user, heads[user].round, at[user])]
        return answers({user: questions[user] for user in there})

    history = federate(net, ask)
    assert_same(parties, history, net.file.terms(), gone)
    assert [(row["round"], row["user"]) for row in history.users if row["why_not"]] == [(2, 3)]
    assert "the round goes on without user 3: no answer in time" in net.told


@pytest.mark.parametrize("at", range(4))
def test_a_party_that_is_killed_is_asked_the_round_again(net, at):
    """And loses nothing, wherever in the round it is."""
    net = net()
    parties, asked = net.toys(), []
    answers = direct(parties)

    def ask(questions):
        asked.append(questions)
        if len(asked) == 5 + at:  # of the second round, which has four questions
            parties[3] = net.toy(3)
        return answers(questions)

    history = federate(net, ask)
    assert_same(parties, history, net.file.terms())
    assert "user 3: from its checkpoint after round 1" in net.told


@pytest.mark.parametrize("at", range(5))
def test_a_server_that_is_killed_begins_the_round_again(net, at):
    net = net()
    parties, asked = net.toys(), []
    answers = direct(parties)

    def ask(questions):
        asked.append(questions)
        found = answers(questions)
        if len(asked) == 4 + at:  # the last of the first round, or one of the second
            raise InterruptedError("as if it was killed")
        return found

    with pytest.raises(InterruptedError):
        federate(net, ask)
    assert_same(parties, federate(net, answers), net.file.terms())


SPOILT = {
    "not finite": lambda z: z.index_fill(0, torch.tensor([3]), torch.nan),
    r"of shape \(31, 8\)": lambda z: z[1:],
    "as torch.int64": lambda z: z.long(),
    "norm 1.1": lambda z: z * 1.1,
}


@pytest.mark.parametrize("why", SPOILT)
def test_what_is_no_representation_leaves_its_sender_out_and_the_others_go_on(net, why):
    net = net(rounds=1, others=1)
    parties = net.toys()
    represent = parties[3]._represent
    parties[3]._represent = lambda batch: SPOILT[why](represent(batch))
    history = federate(net, direct(parties))
    one, two, three = history.users
    assert one["why_not"] is two["why_not"] is None
    assert re.search(f"user 3 sent .*{why}", three["why_not"]) and three["uplink_bytes"] == 0


def test_too_few_parties_end_the_server_which_says_why_and_repeats_the_round(net):
    net = net()
    parties, asked = net.toys(), []

    def ask(questions):
        asked.append(questions)
        there = questions if len(asked) < 7 else {1}  # in the second round two are gone
        return {user: parties[user].answer(questions[user]) for user in there}

    with pytest.raises(TooFew, match=r"round 2 needs two users and has users 1: {2: 'no answer"):
        federate(net, ask)
    assert_same(parties, federate(net, direct(parties)), net.file.terms())


def test_a_party_answers_a_batch_once_and_under_the_agreed_terms_alone(net):
    net = net()
    party, terms = net.toy(1), net.file.terms()
    begin = Question(step="begin", terms=terms)
    assert unpack("", Answer, party.answer(pack(begin))) == (Answer(), {})
    first, second = (
        pack(Question(step="represent", batch=Batch(0, 0, batch, 32))) for batch in (0, 1)
    )
    assert party.answer(first) != party.answer(second)
    with pytest.raises(RefusedMessage, match="asks for .*, batch 1 again, or for what is no batch"):
        party.answer(first)
    other = begin.model_copy(update={"terms": terms.model_copy(update={"tau": 0.5})})
    with pytest.raises(RefusedMessage, match="the terms are not those agreed on"):
        party.answer(pack(other))
