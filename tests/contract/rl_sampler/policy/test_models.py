"""Models of a run outside of its training, by programs: handed out and promoted, in real stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from rl_console.actions.models.fetching import CONNECTION, fetch, index
from rl_contracts import handout, ids
from rl_contracts.adapters import PARTS, tensor_name
from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.handout import HandedModel
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.model_folder import BaseLocations, ModelLocation
from rl_sampler.policy.base import stage_base
from tests.contract.rl_sampler.engine.lora import SECTION, AdapterTrainer, adapter
from tests.contract.rl_sampler.pods import new_pod, put_model
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import tensors
from tests.samples.manifests import a_job
from tests.waiting import HUNG_SECONDS, until

PROGRAM = [sys.executable, "-m", "rl_sampler.models"]


@pytest.fixture
def environment(tmp_path: Path, store_settings: StoreSettings, stores: Stores) -> dict[str, str]:
    return environment_of(tmp_path / "pod", store_settings, stores)


def environment_of(
    folder: Path, settings: StoreSettings, stores: Stores, **sections: Any
) -> dict[str, str]:
    pod = new_pod(
        folder,
        engine_url="http://127.0.0.1:9",
        settings=settings,
        stores=stores,
        sections=sections,
    )
    return {**os.environ, **pod.environment}


def publish(trainer: ScriptedTrainer, seed: int) -> PolicyPointer:
    """Publish a version, and list it in the catalogue as a trainer does."""
    return listed(trainer, trainer.publish(seed=seed))


def listed(trainer: ScriptedTrainer, pointer: PolicyPointer) -> PolicyPointer:
    record = PolicyRecord(
        id=ids.policy_id(trainer.run, pointer.version, pointer.epoch),
        run=trainer.run,
        **pointer.model_dump(include={"version", "epoch", "step", "prefix", "manifest_sha256"}),
        parent=pointer.version - 1,
        size_bytes=1,
        published_at=1.0,
        publish_seconds=1.0,
    )
    trainer.stores.policies.put([record])
    return pointer


def ran(environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HUNG_SECONDS,
        check=False,
    )
    return done.returncode, done.stderr


@contextmanager
def handing_out(environment: dict[str, str], arguments: Sequence[str]) -> Iterator[HandedModel]:
    url = f"http://127.0.0.1:{handout.PORT}"
    with subprocess.Popen([*PROGRAM, "hand-out", *arguments], env=environment) as process:

        def staged() -> HandedModel | None:
            assert process.poll() is None
            try:
                return index(url)
            except CONNECTION:
                return None

        try:
            yield until(staged, what="the staged model")
        finally:
            process.terminate()
            process.wait(timeout=HUNG_SECONDS)


def test_a_version_is_handed_out_as_it_was_published(
    trainer: ScriptedTrainer, environment: dict[str, str], tmp_path: Path
) -> None:
    publish(trainer, seed=1)
    publish(trainer, seed=2)
    url, folder, lines = f"http://127.0.0.1:{handout.PORT}", tmp_path / "here", list[str]()
    folder.mkdir()
    with handing_out(environment, ["--version", "2"]) as model:
        names = {file.name for file in model.files}
        assert {"config.json", "tokenizer.json", "model.safetensors"} <= names
        assert not names & {"manifest.json", "pointer.json"}
        weights = next(file for file in model.files if file.name == "model.safetensors")
        whole = Path(environment["RL_WEIGHTS_FOLDER"]) / "model" / weights.name
        # As an interrupted download left it.
        (folder / f"{weights.name}.partial").write_bytes(whole.read_bytes()[:100])
        for file in model.files:
            fetch(url, file, folder, say=lines.append)
    assert {path.name for path in folder.iterdir()} == names
    got, wanted = load_file(folder / "model.safetensors"), tensors(2)
    assert all((got[name] == wanted[name]).all() for name in wanted)
    assert json.loads((folder / "config.json").read_bytes())["dtype"] == "float32"
    assert len(lines) == len(names)


@pytest.mark.soak
def test_a_promoted_version_is_a_model_for_jobs_and_stays_the_same(
    trainer: ScriptedTrainer, environment: dict[str, str], stores: Stores, tmp_path: Path
) -> None:
    publish(trainer, seed=1)
    publish(trainer, seed=2)
    objects = stores.objects
    prefix = f"{objects.prefix}promoted/sums/"
    uri = objects.uri(prefix)
    # As a promotion that was interrupted leaves it.
    objects.put(f"{prefix}model.safetensors", b"half")
    assert ran(environment, "promote", "--name", "sums", "--version", "2")[0] == 0
    first = {stored.key: stored for stored in objects.list(prefix)}
    code, log = ran(environment, "promote", "--name", "sums", "--version", "2")
    assert (code, "is complete already" in log) == (0, True)
    assert {stored.key: stored for stored in objects.list(prefix)} == first
    place = BaseLocations(model=ModelLocation.own(uri))
    stage_base(objects, places=place, folder=tmp_path / "base")
    got, wanted = load_file(tmp_path / "base" / "model.safetensors"), tensors(2)
    assert all((got[name] == wanted[name]).all() for name in wanted)

    again = {**environment, "RL_WEIGHTS_FOLDER": str(tmp_path / "again")}
    code, log = ran(again, "promote", "--name", "sums", "--uri", uri)
    assert (code, "is complete already" in log) == (0, True), "an exported folder, and the same"
    other = {**environment, "RL_WEIGHTS_FOLDER": str(tmp_path / "other")}
    code, log = ran(other, "promote", "--name", "sums", "--version", "1")
    assert (code, "holds another model" in log) == (2, True)


@pytest.mark.soak
def test_an_adapter_is_promoted_as_the_model_that_it_is_merged_into(
    store_settings: StoreSettings, stores: Stores, tiny_model: Path, tmp_path: Path
) -> None:
    put_model(stores, tiny_model)
    trainer = AdapterTrainer(stores, folder=tiny_model)
    listed(trainer, trainer.give(seed=3))
    section = {"rank": SECTION.rank, "alpha": SECTION.alpha}
    training = {**a_job()["spec"]["training"], "lora": section}
    lab = environment_of(tmp_path / "pod", store_settings, stores, training=training)
    code, log = ran(lab, "promote", "--name", "merged", "--version", "1")
    assert code == 0, log
    uri = stores.objects.uri(f"{stores.objects.prefix}promoted/merged/")
    place = BaseLocations(model=ModelLocation.own(uri))
    stage_base(stores.objects, places=place, folder=tmp_path / "base")
    got, base = (
        load_file(tmp_path / "base" / "model.safetensors"),
        load_file(tiny_model / "model.safetensors"),
    )
    factors = adapter(tiny_model, trainer.entry, 3)
    layer = "model.layers.1.mlp.down_proj"
    first, second = (factors[tensor_name(layer, part)] for part in PARTS)
    wanted = base[f"{layer}.weight"] + SECTION.alpha / SECTION.rank * (second @ first)
    assert np.allclose(got[f"{layer}.weight"], wanted, atol=1e-6)
    assert (got["model.embed_tokens.weight"] == base["model.embed_tokens.weight"]).all()
    assert set(got) == set(base)


def test_a_model_that_does_not_exist_is_refused_in_a_sentence(
    trainer: ScriptedTrainer, environment: dict[str, str], stores: Stores
) -> None:
    code, log = ran(environment, "promote", "--name", "x", "--version", "7")
    assert (code, "has no version 7 (any more)" in log) == (2, True)
    uri = stores.objects.uri(f"{stores.objects.prefix}nowhere")
    code, log = ran(environment, "hand-out", "--uri", uri)
    assert (code, "has no manifest.json" in log) == (2, True)
