from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from rl_contracts.documents.manifest import FileEntry, Manifest, TensorEntry
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import IntegrityError
from rl_contracts.model_files import weight_files
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import Precision
from rl_sampler.policy.verify import (
    Signature,
    TensorKind,
    check_folder,
    check_manifest,
    model_signature,
    run_signature,
)
from tests.contract.rl_sampler.scripted_trainer import policy_manifest
from tests.contract.rl_sampler.tiny_model import Tensors, tensors, write_model
from tests.models.families import SPEC

POINTER = PolicyPointer(version=3, epoch=2, step=1, prefix="p/", manifest_sha256="0")
NORM = "model.norm.weight"


@pytest.fixture(scope="module")
def signature(tmp_path_factory: pytest.TempPathFactory) -> Signature:
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return model_signature(folder, precision="FP32")


def manifest_of(weights: Tensors, data: bytes) -> Manifest:
    return policy_manifest(weights, data, run="run1", version=3, epoch=2, step=1)


def written(folder: Path, weights: Tensors) -> tuple[Manifest, bytes]:
    data = save(weights)
    (folder / "model.safetensors").write_bytes(data)
    return manifest_of(weights, data), data


def test_valid_policy_passes(tmp_path: Path, signature: Signature) -> None:
    manifest, _ = written(tmp_path, tensors(1))
    check_manifest(manifest, pointer=POINTER, signature=signature)
    check_folder(tmp_path, manifest)


def renamed(weights: Tensors) -> Tensors:
    return {("other" if name == NORM else name): tensor for name, tensor in weights.items()}


CHANGES: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "renamed": (renamed, "missing: \\['model.norm.weight'\\], not the model's: \\['other'\\]"),
    "left out": (lambda w: {n: t for n, t in w.items() if n != NORM}, "missing"),
    "added": (lambda w: w | {"lm_head.weight": w[NORM]}, "not the model's"),
    "reshaped": (lambda w: w | {NORM: w[NORM].reshape(8, 8)}, "model.norm.weight is"),
    "another dtype": (lambda w: w | {NORM: w[NORM].astype(np.float16)}, "F16"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_manifest_with_other_tensors_is_refused(signature: Signature, name: str) -> None:
    change, message = CHANGES[name]
    weights = change(tensors(1))
    with pytest.raises(IntegrityError, match=message):
        check_manifest(manifest_of(weights, save(weights)), pointer=POINTER, signature=signature)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 4},
        {"epoch": 1},
        {"step": 7},
        {"kind": "checkpoint"},
        {"files": []},
        {"files": [FileEntry(name="../model.safetensors", size_bytes=1, sha256="0")]},
        {"files": [FileEntry(name="manifest.json", size_bytes=1, sha256="0")]},
        {"files": [FileEntry(name="model.safetensors", size_bytes=1, sha256="0")] * 2},
    ],
)
def test_manifest_of_another_policy_is_refused(
    signature: Signature, changes: dict[str, object]
) -> None:
    weights = tensors(1)
    manifest = manifest_of(weights, save(weights)).model_copy(update=changes)
    with pytest.raises(IntegrityError):
        check_manifest(manifest, pointer=POINTER, signature=signature)


def header_changed(data: bytes, change: Callable[[dict[str, dict[str, object]]], None]) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    body = json.dumps(header).encode()
    return len(body).to_bytes(8, "little") + body + data[8 + length :]


def swap_names(header: dict[str, dict[str, object]]) -> None:
    name, other = "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"
    header[name], header[other] = header[other], header[name]


def overflow(header: dict[str, dict[str, object]]) -> None:
    header[NORM]["data_offsets"] = [0, 1 << 40]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[:-1],
    "empty": lambda data: b"",
    "only a length": lambda data: data[:8],
    "longer": lambda data: data + b"\0",
    "one bit flipped": lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
    "header is no JSON": lambda data: data[:8] + b"x" + data[9:],
    "header of a terabyte": lambda data: (1 << 40).to_bytes(8, "little") + data[8:],
    "names swapped": lambda data: header_changed(data, swap_names),
    "offsets beyond the end": lambda data: header_changed(data, overflow),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file_digest", ["of the good file", "of the bad file"])
def test_damaged_file_is_refused(tmp_path: Path, damage: str, file_digest: str) -> None:
    manifest, data = written(tmp_path, tensors(1))
    bad = DAMAGES[damage](data)
    (tmp_path / "model.safetensors").write_bytes(bad)
    if file_digest == "of the bad file":
        # Even a manifest that vouches for the bad file's digest does not help it.
        entry = FileEntry(
            name="model.safetensors", size_bytes=len(bad), sha256=hashlib.sha256(bad).hexdigest()
        )
        manifest = manifest.model_copy(update={"files": [entry]})
    with pytest.raises(IntegrityError):
        check_folder(tmp_path, manifest)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    manifest, _ = written(tmp_path, tensors(1))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(IntegrityError, match=r"model\.safetensors"):
        check_folder(tmp_path, manifest)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("FP32", "F32"), ("FP16", "F16"), ("BF16", "BF16")]
)
def test_signature_applies_precision_to_floats_only(
    tmp_path: Path, precision: Precision, dtype: str
) -> None:
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true}')
    weights = {"a": np.zeros((2, 3), np.float16), "lm_head.weight": np.zeros(2, np.float32)}
    (tmp_path / "model.safetensors").write_bytes(save(weights | {"i": np.zeros(1, np.int64)}))
    signature = model_signature(tmp_path, precision=precision)
    assert signature.tensors["a"] == TensorKind(dtype, (2, 3))
    assert signature.tensors["i"] == TensorKind("I64", (1,))
    assert signature.optional == {"lm_head.weight"}


@pytest.mark.parametrize(
    ("name", "dtype", "passes"),
    [
        ("gate.e_score_correction_bias", np.float32, True),
        ("gate.e_score_correction_bias", np.float16, True),
        ("gate.weight", np.float32, False),
    ],
)
def test_what_chooses_experts_may_be_in_float32(
    name: str, dtype: type, passes: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(save({name: np.ones(2, np.float16)}))
    signature = model_signature(tmp_path, precision="FP16")
    manifest, _ = written(tmp_path, {name: np.ones(2, dtype)})
    context = contextlib.nullcontext() if passes else pytest.raises(IntegrityError, match="F32")
    with context:
        check_manifest(manifest, pointer=POINTER, signature=signature)


def test_weight_files_match_what_transformers_loads(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).touch()
    assert [path.name for path in weight_files(tmp_path)] == ["a.safetensors", "b.safetensors"]
    (tmp_path / "model.safetensors").touch()
    assert [path.name for path in weight_files(tmp_path)] == ["model.safetensors"]
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"x": "b.safetensors", "y": "b.safetensors"}})
    )
    assert [path.name for path in weight_files(tmp_path)] == ["b.safetensors"]


def test_tensor_listed_in_another_file_is_refused(signature: Signature) -> None:
    weights = tensors(1)
    manifest = manifest_of(weights, save(weights))
    moved = [
        TensorEntry.model_validate(tensor.model_dump() | {"file": "x.safetensors"})
        for tensor in manifest.tensors
    ]
    with pytest.raises(IntegrityError, match="tensors are in"):
        check_manifest(
            manifest.model_copy(update={"tensors": moved}), pointer=POINTER, signature=signature
        )


def test_a_run_with_adapters_of_experts_serves_whole_models(tmp_path: Path) -> None:
    write_model(tmp_path)
    low_rank = {"adapters": {"rank": 4}, "merged": {"rank": 4, "experts": "Adapted"}}
    signatures = {
        name: run_signature(
            tmp_path,
            RLJobSpec.model_validate(SPEC | {"training": SPEC["training"] | {"lora": section}}),
        )
        for name, section in low_rank.items()
    }
    assert signatures["adapters"].adapter is not None
    assert signatures["merged"] == model_signature(tmp_path, precision="FP32")
