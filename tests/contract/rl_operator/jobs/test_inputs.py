"""Bad inputs: named by field, value and remedy; no storm of writes; the job recovers by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rl_operator.kube import kinds
from tests.contract.rl_operator.world import TRAIN, World
from tests.examples import first
from tests.servers import deaf_port
from tests.waiting import until

Change = Callable[[World], None]


def no_secret(world: World) -> None:
    world.apiserver.kubectl("-n", world.namespace, "delete", "secret", "rl-operator-stores")


def secret_with(**changes: str) -> Change:
    return lambda world: world.make_secret(**changes)


def without(name: str) -> Change:
    return lambda world: _delete(world, name)


def with_object(name: str, data: bytes) -> Change:
    return lambda world: world.stores.objects.put(f"{world.settings.s3_prefix}{name}", data)


def _delete(world: World, name: str) -> None:
    objects = world.stores.objects
    objects.call(
        "deleting", lambda: objects._client.remove_object(objects.bucket, _key(world, name))
    )


def _key(world: World, name: str) -> str:
    return f"{world.settings.s3_prefix}{name}"


SECRET = "spec.storage.secretName"
BAD: dict[str, tuple[Change, str, str, str]] = {
    "no Secret": (no_secret, "StoresSecretMissing", SECRET, "no such Secret"),
    "a key is missing": (secret_with(s3Bucket=""), "StoresSecretMalformed", SECRET, "s3Bucket"),
    "no URI": (secret_with(mongoUri="http://x"), "StoresSecretMalformed", SECRET, "mongodb://"),
    "wrong key": (
        secret_with(s3SecretKey="wrong"),
        "BucketAccessDenied",
        SECRET,
        "Correct s3AccessKey",
    ),
    "no bucket": (secret_with(s3Bucket="not-there"), "BucketNotFound", SECRET, "does not exist"),
    "model is incomplete": (
        without("model/tokenizer.json"),
        "ModelIncomplete",
        "spec.model.uri",
        "tokenizer.json",
    ),
    "no data": (without("train.jsonl"), "DatasetNotFound", "spec.data.train[0].uri", "train.jsonl"),
    "malformed line": (
        with_object("test.jsonl", TRAIN + b"{nonsense\n"),
        "DatasetMalformed",
        "spec.data.validation[0].uri",
        "line 2",
    ),
    "broken array": (
        with_object("train.jsonl", b'[{"id": "a"'),
        "DatasetMalformed",
        "spec.data.train[0].uri",
        "line 1 is not JSON",
    ),
    "bucket server is down": (
        secret_with(s3Endpoint=f"http://127.0.0.1:{deaf_port()}"),
        "BucketUnreachable",
        SECRET,
        "start the server",
    ),
    "store is down": (
        secret_with(mongoUri=f"mongodb://127.0.0.1:{deaf_port()}/"),
        "StateStoreUnreachable",
        SECRET,
        "start the server",
    ),
}


@pytest.mark.parametrize(
    ("spoil", "reason", "field", "words"), first(9, BAD.values()), ids=BAD.keys()
)
def test_job_stalls_on_a_bad_input_and_continues_once_it_is_fixed(
    world: World, spoil: Change, reason: str, field: str, words: str
) -> None:
    world.make_secret()
    world.upload_inputs()
    spoil(world)
    job = world.make_job()
    world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == reason
    assert stalled["message"].startswith(field)
    assert words in stalled["message"]
    assert "secret" not in stalled["message"].replace("secretName", "").replace("Secret", "")
    assert world.condition(job, "Failed") == {}
    assert world.objects(kinds.SAMPLER_POOL) == []

    before = world.writes.count
    world.settle(job)
    assert world.writes.count == before  # no storm

    world.make_secret()
    world.upload_inputs()

    def mended() -> bool:
        world.settle(job)
        return not world.condition(job, "Stalled")

    until(mended, what="the job to go on", seen=lambda: world.status(job))
    assert [pool["metadata"]["name"] for pool in world.objects(kinds.SAMPLER_POOL)] == ["job-main"]


def test_separate_tokenizer_is_checked_in_its_own_folder(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    without("model/tokenizer.json")(world)
    root = f"s3://{world.settings.s3_bucket}/{world.settings.s3_prefix}"
    model = {"uri": f"{root}model", "tokenizerUri": f"{root}tokenizer"}

    def await_reason(reason: str) -> None:
        def seen() -> str:
            job = world.make_job(model=model)
            world.settle(job)
            stalled = world.condition(job, "Stalled")
            assert not stalled or stalled["message"].startswith("spec.model.tokenizerUri")
            return str(stalled.get("reason", ""))

        until(lambda: seen() == reason, what=reason or "the job to go on", seen=seen)

    await_reason("TokenizerNotFound")
    with_object("tokenizer/other.json", b"{}")(world)
    await_reason("TokenizerIncomplete")
    with_object("tokenizer/tokenizer.json", b"{}")(world)
    await_reason("")


def test_scorer_that_no_image_has_stalls_the_job_before_any_pod(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(reward={"scorers": [{"kind": "Magic"}]})
    world.settle(job)
    assert world.condition(job, "Stalled")["reason"] == "ScorerUnknown"
    assert world.objects(kinds.SAMPLER_POOL) == []


def test_scorer_unknown_to_the_samplers_stalls_the_job(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    group = {"name": "main", "template": {"image": "registry.example/derived:1"}}
    job = world.make_job(reward={"scorers": [{"kind": "Magic"}]}, samplers=[group])
    run = str(world.settle(job)["runId"])
    world.start_samplers(run)
    status = world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert (status["attempt"], stalled["reason"]) == (0, "ScorerUnknown")
    assert stalled["message"].startswith("spec.reward.scorers[0].kind = 'Magic'")
    assert "ExactMatch" in stalled["message"]

    world.make_job(reward={"scorers": [{"kind": "ExactMatch"}]}, samplers=[group])
    world.settle(job)
    world.start_samplers(run)
    assert world.settle(job)["attempt"] == 1


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"trainer": {"env": [{"name": "RL_RUN"}]}}, "spec.trainer.env[0].name"),
        (
            {"samplers": [{"name": "main", "template": {"engine": {"args": ["--port=1"]}}}]},
            "spec.samplers[0].template.engine.args[0]",
        ),
    ],
)
def test_unsupported_option_is_refused(world: World, sections: dict[str, Any], field: str) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(**sections)
    world.settle(job)
    assert world.condition(job, "Stalled")["message"].startswith(field)


@pytest.mark.soak
def test_job_survives_a_store_outage_mid_run(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job()
    run = str(world.settle(job)["runId"])
    world.start_samplers(run)
    assert world.settle(job)["attempt"] == 1
    world.start_operator()
    world.make_secret(mongoUri=f"mongodb://127.0.0.1:{deaf_port()}/")
    status = world.settle(job)
    assert world.condition(job, "StateStoreReachable")["status"] == "False"
    assert (status["phase"], status["attempt"]) == ("Recovering", 1)
    world.make_secret()

    def reached() -> bool:
        world.settle(job)
        return world.condition_now(job, "StateStoreReachable")

    until(reached, what="the store to be reached again", seen=lambda: world.status(job))


MODEL = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 3072,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}, "nodeSelector": {"memory-test": "small"}}


def test_a_training_that_cannot_fit_its_gpus_is_refused_before_any_pod(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    with_object("model/config.json", json.dumps(MODEL).encode())(world)
    labels = {"nvidia.com/gpu.memory": "8192", "memory-test": "small"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small", "labels": labels}}
    world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(node))

    job = world.make_job(trainer=GPU)
    world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == "MemoryTooSmall"
    assert "spec.training.memory.deviceGiB = '8'" in stalled["message"]
    assert "weights 2.22 + gradients 2.22 + moments 4.44 = 8.88 GiB" in stalled["message"]
    assert world.condition(job, "MemoryFits")["reason"] == "TooLarge"
    assert world.objects(kinds.SAMPLER_POOL) == []

    world.make_job(trainer=GPU, training={"steps": 1, "memory": {"check": "Warn"}})
    world.settle(job)
    assert not world.condition(job, "Stalled")
    assert world.condition(job, "MemoryFits")["status"] == "False"
    assert len(world.objects(kinds.SAMPLER_POOL)) == 1
    world.apiserver.kubectl("delete", "node", "small")


def test_a_mesh_that_does_not_divide_the_model_is_refused_before_any_pod(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    with_object("model/config.json", json.dumps(MODEL).encode())(world)
    job = world.make_job(trainer={"processesPerReplica": 16, "parallelism": {"tp": 16}})
    world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert "spec.trainer.parallelism.tp = '16': The model has 8 heads of keys" in stalled["message"]
    assert world.objects(kinds.SAMPLER_POOL) == []


def test_sequences_longer_than_the_model_takes_are_refused_before_any_pod(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    config = MODEL | {"max_position_embeddings": 40_960}
    with_object("model/config.json", json.dumps(config).encode())(world)
    job = world.make_job(agent={"sampling": {"maxContextTokens": 131_072}})
    world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == "ContextTooLong"
    assert "spec.agent.sampling.maxContextTokens = '131072'" in stalled["message"]
    assert "at most 40960 tokens" in stalled["message"]
    assert world.objects(kinds.SAMPLER_POOL) == []

    world.make_job(agent={"sampling": {"maxContextTokens": 40_960}})
    world.settle(job)
    assert not world.condition(job, "Stalled")
