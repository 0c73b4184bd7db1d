"""Pretraining on texts: it learns, is repeatable, and saves what the library loads; and what of it
is shipped.
"""

from __future__ import annotations

import json
import math
import random
from itertools import islice
from pathlib import Path

import miniature_archives as miniature
import pytest
import torch
from safetensors import safe_open

from data_prep import SMALL_WEIGHTS
from data_prep.__main__ import main
from data_prep.datasets import CATALOGUE, topics
from data_prep.pretrain import language_models
from data_prep.pretrain.language_models import Contrast, Recipe, pretrain, train_tokenizer
from data_prep.pretrain.text_backbones import CORPUS, NAME, RECIPE
from fedmuscle_lib.data.encodings import Tokens
from fedmuscle_lib.fedmuscle.profiles import PROFILES
from fedmuscle_lib.fedmuscle.setups import SETUPS
from fedmuscle_lib.models import architecture_of, load_backbone, load_tokenizer
from fedmuscle_lib.models.base import UserModel
from fedmuscle_lib.models.text import TextEncoder
from fedmuscle_lib.tasks import TASKS

ARCHITECTURES = ("bert", "distilbert", "gpt2")
every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
WORDS = ("red", "blue", "green", "amber", "white", "black", "violet", "ochre")
FACTS = {"world": "a test", "data": "Of a test.", "command": "make test", "license": "mit"}


def parrot(n: int, seed: int) -> list[str]:
    """Texts that say one word over and over: any token tells every other, and its frequency tells
    nothing.
    """
    rng = random.Random(seed)
    return [" ".join([rng.choice(WORDS)] * rng.randint(5, 9)) for _ in range(n)]


def recipe(name: str, **other: object) -> Recipe:
    small = {
        "hidden": 32,
        "layers": 1,
        "heads": 2,
        "mlp": 32,
        "vocabulary": 300,
        "longest": 12,
        "steps": 2,
    }
    return Recipe(**{"architecture": name} | small | other)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("weights")
    for name in ARCHITECTURES:
        settings = recipe(name, steps=80, lr=1e-2, batch=32)
        pretrain(name, settings, parrot(400, seed=0), parrot(100, seed=1), out, FACTS)
    return out


def report(folder: Path) -> dict:
    return json.loads((folder / "pretraining.json").read_text())


# --- training


@every_architecture
def test_it_learns_what_frequencies_do_not_tell(trained, name):
    found = report(trained / name)
    assert found["trivial_accuracy"] < 0.3
    assert found["trivial_perplexity"] == pytest.approx(
        len(WORDS), rel=0.35
    )  # the first word of a text is another token to GPT-2
    assert found["accuracy"] > 0.9
    assert (
        found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-2)
        and found["perplexity"] < 2
    )
    card = (trained / name / "README.md").read_text()
    assert (
        f"{found['accuracy']:.1%} of the tokens guessed, perplexity {found['perplexity']}" in card
    )
    assert (
        f"# {name} of a test" in card and "remade by: `make test`" in card and "Of a test." in card
    )


@every_architecture
def test_it_is_repeatable(name, tmp_path):
    for folder, seed in (("one", 0), ("two", 0), ("three", 1)):
        torch.rand(7)
        pretrain(
            name, recipe(name, seed=seed), parrot(40, 0), parrot(20, 1), tmp_path / folder, FACTS
        )
    for file in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json"):
        one, two, three = (
            (tmp_path / folder / name / file).read_bytes() for folder in ("one", "two", "three")
        )
        assert one == two
        assert (one == three) == (file != "model.safetensors")


@every_architecture
def test_contrast_brings_the_texts_of_a_topic_together(trained, name, tmp_path):
    """A topic is a pair of words that no text holds together: guessing tokens can't tell that they
    belong together.
    """

    def pairs(rng):
        return tuple(
            [" ".join([word] * rng.randint(5, 9)) for word in half]
            for half in (WORDS[:4], WORDS[4:])
        )

    contrast = Contrast(pairs, "A topic is a pair of words.", steps=40, lr=1e-2)
    settings = recipe(name, steps=40, lr=1e-2, batch=32)
    pretrain(name, settings, parrot(400, seed=0), parrot(100, seed=1), tmp_path, FACTS, contrast)
    for folder, contrasted in ((trained, False), (tmp_path, True)):
        model, tokens = user_model(folder / name, name), Tokens(load_tokenizer(folder / name), 12)
        with torch.no_grad():
            unit = torch.nn.functional.normalize(
                model.features(tokens.encode([" ".join([word] * 6) for word in WORDS])), dim=1
            )
        partners = (unit @ unit.T).fill_diagonal_(-1).argmax(1).tolist() == [
            (i + 4) % 8 for i in range(8)
        ]
        said = "A topic is a pair of words." in (folder / name / "README.md").read_text()
        steps = report(folder / name).get("contrast_steps")
        assert (partners, said, steps) == (contrasted, contrasted, 40 if contrasted else None)


def test_bert_and_distilbert_read_alike(trained):
    one, two = ((trained / name / "tokenizer.json").read_bytes() for name in ("bert", "distilbert"))
    assert one == two


def test_a_vocabulary_is_the_texts_own_whatever_their_order():
    """Also that of a process to come, which numbers what it hashes another way."""
    texts = miniature_prose()
    found = [
        train_tokenizer(recipe("bert", vocabulary=200), given)
        for given in (texts, texts, texts[::-1])
    ]
    assert found[0].get_vocab() == found[1].get_vocab() == found[2].get_vocab()
    assert len(found[0]) == 200
    assert (
        found[0].decode(found[0]("Anna's own words!").input_ids, skip_special_tokens=True)
        == "anna ' s own words!"
    )


def miniature_prose() -> list[str]:
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz'!"
    return [
        "".join(rng.choice(letters) + rng.choice(("", "", "", " ")) for _ in range(60))
        for _ in range(50)
    ]


@every_architecture
def test_a_long_text_is_cut_and_nothing_of_it_is_lost(name):
    tokenizer = train_tokenizer(recipe(name), WORDS)
    text = " ".join(WORDS * 4)
    pieces = language_models._pieces(tokenizer, [text, "red"], 12)
    assert max(len(piece["input_ids"]) for piece in pieces) == 12
    own = [i for piece in pieces for i, special in zip(*piece.values(), strict=True) if not special]
    assert tokenizer.decode(own[: len(tokenizer(text, add_special_tokens=False).input_ids)]) == text


def test_every_text_is_read_before_one_is_read_again():
    pieces = [{"input_ids": [i] * (1 + i % 7), "special_tokens_mask": []} for i in range(130)]
    steps = islice(language_models._draws(pieces, recipe("bert", batch=10)), 27)
    drawn = [[piece["input_ids"][0] for piece in step] for step in steps]
    assert [len(step) for step in drawn] == [10] * 27
    for first in (0, 13):
        assert sorted(sum(drawn[first : first + 13], [])) == list(range(130))
    assert drawn[:13] != drawn[13:26]


@pytest.mark.parametrize(
    ("texts", "held_out", "said"),
    [
        ([], ["a b"], "some: there is no text"),
        (["", " \n"], ["a b"], "some: there is no text"),
        (["a b"], [], "some: there is no held-out text"),
        (["a", "b"], ["a b"], "some: no text has a token to guess from another"),
        (["a b"], ["a"], "some: no held-out text has a token to guess from another"),
    ],
)
def test_texts_that_teach_nothing_are_refused(texts, held_out, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        pretrain("some", recipe("gpt2"), texts, held_out, tmp_path, FACTS)
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_diverges_ends(tmp_path):
    with pytest.raises(FloatingPointError, match="some: the mean loss is nan"):
        pretrain(
            "some", recipe("gpt2", lr=float("inf"), steps=4), ["a b"] * 4, ["a b"], tmp_path, FACTS
        )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_architecture_lists_the_known(tmp_path):
    with pytest.raises(
        ValueError, match="architecture 'elmo' is not known; known: bert, distilbert, gpt2"
    ):
        pretrain("some", recipe("elmo"), ["a b"], ["a b"], tmp_path, FACTS)


# --- what the library makes of it


def user_model(folder: Path, name: str) -> UserModel:
    options = {"proj_dim": 8, "rank": 2, "lora_alpha": 2, "head_hidden": 8, "head_on": "features"}
    head = "language model" if name == "gpt2" else "two layers"
    return architecture_of(folder)(
        load_backbone(folder), 2, head=head, lora_layers="attention", lora_blocks="all", **options
    ).eval()


@every_architecture
def test_features_tell_texts_apart(trained, name):
    """Those of one word lie together, however often a text says it, and those of another
    elsewhere.
    """
    model, tokens = user_model(trained / name, name), Tokens(load_tokenizer(trained / name), 12)
    with torch.no_grad():
        features = [
            model.features(tokens.encode([" ".join([word] * n) for word in WORDS])) for n in (5, 8)
        ]
    assert isinstance(model, TextEncoder)
    assert torch.cdist(*features).argmin(1).tolist() == list(range(len(WORDS)))


def test_the_library_finds_the_perplexity_that_was_reported(trained):
    model, tokens, task = (
        user_model(trained / "gpt2", "gpt2"),
        Tokens(load_tokenizer(trained / "gpt2"), 12),
        TASKS["TG"],
    )
    ids = tokens.encode(parrot(100, seed=1))
    targets = ids.masked_fill(ids == tokens.tokenizer.eos_token_id, -100)
    with torch.no_grad():
        found = task.score(task.count(model(ids), targets))
    assert found == pytest.approx(
        report(trained / "gpt2")["perplexity"], rel=0.02
    )  # which is not of half precision


# --- what is shipped


def test_what_is_shipped_says_that_the_recipe_made_it():
    folder = SMALL_WEIGHTS / NAME
    found = report(folder)
    assert {
        key: found[key] for key in ("architecture", "layers", "hidden", "steps", "lr", "seed")
    } == {
        key: getattr(RECIPE, key)
        for key in ("architecture", "layers", "hidden", "steps", "lr", "seed")
    }
    model, tokenizer = load_backbone(folder), load_tokenizer(folder)
    assert sum(p.numel() for p in model.parameters()) == found["parameters"]
    assert len(tokenizer) == found["vocabulary"] == model.config.vocab_size
    assert model.config.max_position_embeddings == RECIPE.longest
    assert (
        found["accuracy"] > found["trivial_accuracy"]
        and found["perplexity"] < found["trivial_perplexity"]
    )
    card = (folder / "README.md").read_text()
    assert "python -m data_prep text-backbones --archives" in card and "non-commercial" in card
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3e6
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(key).get_dtype() for key in weights.keys()} == {"F16"}  # noqa: SIM118  no mapping


def test_the_backbone_has_not_read_the_data_set_of_its_users():
    users = [
        user
        for user in SETUPS["setup2_generation"]
        if PROFILES["small"]["backbones"][user.model] == NAME
    ]
    assert users and CATALOGUE[CORPUS].folder not in {TASKS[user.task].folder for user in users}


# --- command line


@pytest.fixture
def archives(tmp_path) -> Path:
    folder = tmp_path / "where/ever/archives"
    folder.mkdir(parents=True)
    miniature.topics(folder, "yahoo_answers_csv", 3, 10)
    return folder


def _exit_code(*arguments: object) -> int:
    return main(["text-backbones", *map(str, arguments)])


def test_the_command_line(archives, tmp_path, capsys):
    assert _exit_code("--archives", archives, "--out", tmp_path, "--steps", 1, "--texts", 60) == 0
    assert f"-> {tmp_path / NAME}" in capsys.readouterr().out
    assert report(tmp_path / NAME)["texts"] == 60
    card = " ".join((tmp_path / NAME / "README.md").read_text().split())
    assert "the first 60 rows of train.csv, of 10 classes, and the first 120 of test.csv" in card
    assert "bytes are not the official" in card
    assert (
        "`python -m data_prep text-backbones --archives ever/archives --texts 60 --steps 1`" in card
    )
    assert str(tmp_path) not in card


def test_an_excerpt_is_the_first_rows(archives):
    rows = topics.excerpt(
        CATALOGUE["yahoo"], archives / "yahoo_answers_csv.tar.gz", {"train": 12, "test": 3}
    )
    assert [label for label, _ in rows["train"]] == [*range(10), 0, 1]
    assert [text.split()[:2] for _, text in rows["test"]] == [["test", str(i)] for i in range(3)]


def test_a_missing_archive_is_named(tmp_path, capsys):
    assert _exit_code("--archives", "nowhere", "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert (
        "nowhere/yahoo_answers_csv.tar.gz: no such archive; `python -m data_prep yahoo` fetches it"
        in error
    )
    assert len(error.splitlines()) == 1 and list(tmp_path.iterdir()) == []


def test_a_damaged_archive_is_named(archives, tmp_path, capsys):
    path = archives / "yahoo_answers_csv.tar.gz"
    path.write_bytes(path.read_bytes()[:500])
    assert _exit_code("--archives", archives, "--out", tmp_path / "out") == 2
    assert "yahoo_answers_csv.tar.gz: a damaged archive" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
