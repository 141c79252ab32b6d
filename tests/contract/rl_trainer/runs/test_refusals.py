"""What a user can get wrong, and what stores can: a clear outcome, no retry storm."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import save_tiny, tiny_tokenizer
from tests.network.mongo_front import front_before
from tests.network.mongo_wire import Document
from tests.servers import StoreServer

GOOD = '{"id": "a", "query": "1", "answer": "7"}\n'


@pytest.mark.parametrize("command", ["update", "createIndexes"])
def test_a_command_that_the_store_refuses_ends_the_run_with_a_remedy(
    stores: Stores,
    store_settings: StoreSettings,
    store_server: StoreServer,
    tmp_path: Path,
    command: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No attempt is repeated: the next one would be refused, too."""
    with front_before(store_server.uri) as front:
        settings = StoreSettings.from_mapping(store_settings.to_mapping() | front.settings)
        world = World.make(tmp_path, stores, settings, steps=2)
        code = 121 if command == "update" else 85

        def refuse(sent: Document) -> tuple[int, str] | None:
            name = next(iter(sent))
            batches = name == "update" and sent[name] == "batches"
            return (code, "Named") if name == command and (batches or code == 85) else None

        front.refuse = refuse
        with sampling(TestSampler(world.stores, RUN)):
            assert world.attempt() == 2
    if command == "createIndexes":  # before there is a run document to say so
        assert "refused the command while indexing tasks" in caplog.text
        return
    outcome = world.outcome
    assert (outcome.kind, outcome.reason) == ("Refused", "StoreRefused")
    assert (outcome.field, outcome.value) == ("spec.storage.secretName", "rl-operator-stores")
    assert "refused the command while writing 1 batches: update was refused" in outcome.message
    assert outcome.remedy == "Remove the validator from the collection."


def put(world: World, name: str, content: str) -> None:
    world.stores.objects.put(world.stores.objects.prefix + name, content.encode())


def replace(world: World, **sections: Any) -> None:
    spec = world.spec.model_dump(by_alias=True)
    world.spec = world.spec.model_validate(spec | sections)
    world.write_mounts()


def malformed_line(world: World) -> None:
    put(world, "train.jsonl", f"{GOOD}\n{{broken\n")


def missing_field(world: World) -> None:
    put(world, "train.jsonl", f'{GOOD}{{"id": "b", "query": "2"}}\n')


def malformed_validation(world: World) -> None:
    put(world, "test.jsonl", GOOD + GOOD)


def no_dataset(world: World) -> None:
    world.stores.objects.delete_prefix(world.stores.objects.prefix)


def no_model(world: World) -> None:
    world.stores.objects.delete_prefix(f"{world.stores.objects.prefix}model/")


def other_model_bucket(world: World) -> None:
    replace(world, model={"uri": "s3://no-such-bucket/model"})


def model_without(name: str) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.stores.objects.delete_prefix(f"{world.stores.objects.prefix}model/")
        for path in (world.folder / "model").iterdir():
            if path.name != name:
                key = f"{world.stores.objects.prefix}model/{path.name}"
                world.stores.objects.put_file(key, path)

    spoil.__name__ = f"model_without_{name}"
    return spoil


def small_microbatches(world: World) -> None:
    training = world.spec.training.model_dump(by_alias=True)
    replace(world, training=training | {"maxTokensPerMicrobatch": 63})


def broken_template(world: World) -> None:
    replace(world, agent=world.spec.agent.model_dump(by_alias=True) | {"chatTemplate": "{% if %}"})


def gae(world: World, **critic: Any) -> None:
    algorithm = world.spec.algorithm.model_dump(by_alias=True)
    replace(world, algorithm=algorithm | {"estimator": {"kind": "GAE"}, "critic": critic})


def no_critic(world: World) -> None:
    gae(world, model={"uri": f"{world.spec.model.uri}-of-nobody"})


def put_model(world: World, folder: Path) -> str:
    objects = world.stores.objects
    for path in folder.iterdir():
        objects.put_file(f"{objects.prefix}{folder.name}/{path.name}", path)
    return f"s3://{objects.bucket}/{objects.prefix}{folder.name}"


def critic_of_other_tokens(world: World) -> None:
    gae(world, model={"uri": put_model(world, save_tiny(world.folder / "critic", vocab_size=15))})


def of_other_ids(folder: Path) -> Path:
    """A model of as many tokens, two of which have changed places."""
    save_tiny(folder)
    tiny_tokenizer("1023456789").save_pretrained(folder)
    return folder


def critic_of_other_ids(world: World) -> None:
    gae(world, model={"uri": put_model(world, of_other_ids(world.folder / "critic"))})


def critic_without_tokenizer(world: World) -> None:
    folder = save_tiny(world.folder / "critic")
    (folder / "tokenizer.json").unlink()
    gae(world, model={"uri": put_model(world, folder)})


def teacher_of_other_ids(world: World) -> None:
    teacher = put_model(world, of_other_ids(world.folder / "teacher"))
    replace(world, algorithm={"objective": "Distillation", "teacher": teacher})


def another_tokenizer(world: World, name: str = "other", **parts: int) -> None:
    folder = world.folder / name
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<{number}>" for number in range(parts.get("more", 0))])
    tokenizer.save_pretrained(folder)
    if not parts.get("template", 1):
        (folder / "chat_template.jinja").unlink()
    model = {"uri": world.spec.model.uri, "tokenizerUri": put_model(world, folder)}
    replace(world, model=model)


def no_such_tokenizer(world: World) -> None:
    uri = world.spec.model.uri
    replace(world, model={"uri": uri, "tokenizerUri": f"{uri}-of-nobody"})


def tokenizer_without_template(world: World) -> None:
    another_tokenizer(world, template=0)


def tokenizer_with_more_tokens(world: World) -> None:
    another_tokenizer(world, more=3)


def small_critic_microbatches(world: World) -> None:
    gae(world, maxTokensPerMicrobatch=63)


def wrong_keys(world: World) -> None:
    world.settings = world.settings.model_copy(update={"s3_secret_key": SecretStr("wrong-secret")})
    world.write_mounts()


def no_bucket(world: World) -> None:
    world.settings = world.settings.model_copy(update={"s3_bucket": "nobody-made-it"})
    world.write_mounts()


@pytest.mark.parametrize(
    ("spoil", "field", "reason", "words"),
    [
        (malformed_line, "spec.data.train[0].uri", "DatasetMalformed", "line 3 is not JSON"),
        (missing_field, "spec.data.train[0].uri", "DatasetMalformed", "line 2: field 'answer'"),
        (malformed_validation, "spec.data.validation[0].uri", "DatasetMalformed", "occurs twice"),
        (no_dataset, "spec.data.train[0].uri", "DatasetNotFound", "does not exist"),
        (no_model, "spec.model.uri", "ModelNotFound", "does not exist"),
        (other_model_bucket, "spec.model.uri", "ModelNotFound", "s3://no-such-bucket"),
        (model_without("config.json"), "spec.model.uri", "ModelUnusable", "no config.json"),
        (model_without("tokenizer.json"), "spec.model.uri", "ModelUnusable", "tokenizer"),
        (model_without("model.safetensors"), "spec.model.uri", "ModelUnusable", "safetensors"),
        (model_without("chat_template.jinja"), "spec.model.uri", "ModelUnusable", "chat template"),
        (
            broken_template,
            "spec.agent.chatTemplate",
            "PromptMalformed",
            "no Jinja template: line 1",
        ),
        (
            small_microbatches,
            "spec.training.maxTokensPerMicrobatch",
            "MicrobatchTooSmall",
            "64 tokens",
        ),
        (no_such_tokenizer, "spec.model.tokenizerUri", "TokenizerNotFound", "does not exist"),
        (tokenizer_without_template, "spec.model.tokenizerUri", "ModelUnusable", "chat template"),
        (
            tokenizer_with_more_tokens,
            "spec.model.tokenizerUri",
            "ModelUnusable",
            "It has 18 tokens, the model 16",
        ),
        (no_critic, "spec.algorithm.critic.model.uri", "ModelNotFound", "does not exist"),
        (
            critic_of_other_tokens,
            "spec.algorithm.critic.model.uri",
            "ModelUnusable",
            "It knows 15 tokens, the policy 16",
        ),
        (
            critic_of_other_ids,
            "spec.algorithm.critic.model.uri",
            "ModelUnusable",
            "Its tokenizer has other ids, e.g. of '0'",
        ),
        (critic_without_tokenizer, "spec.algorithm.critic.model.uri", "ModelUnusable", "tokenizer"),
        (
            teacher_of_other_ids,
            "spec.algorithm.teacher",
            "ModelUnusable",
            "Its tokenizer has other ids, e.g. of '0'",
        ),
        (
            small_critic_microbatches,
            "spec.algorithm.critic.maxTokensPerMicrobatch",
            "MicrobatchTooSmall",
            "64 tokens",
        ),
        (wrong_keys, "spec.storage.secretName", "AccessDenied", "refused the credentials"),
        (no_bucket, "spec.storage.secretName", "BucketNotFound", "s3://nobody-made-it"),
    ],
)
def test_a_users_mistake_is_refused_by_field_with_a_remedy(
    spoil: Callable[[World], None],
    field: str,
    reason: str,
    words: str,
    make_world: MakeWorld,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = make_world()
    spoil(world)
    assert world.attempt() == 2
    outcome = world.outcome
    assert (outcome.kind, outcome.field, outcome.reason) == ("Refused", field, reason)
    assert words in outcome.message
    assert outcome.remedy
    assert "wrong-secret" not in outcome.model_dump_json() + caplog.text
    assert world.run.step == 0


def test_rejected_keys_are_refused_with_the_remedy_of_the_buckets_answer(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    wrong_keys(world)
    assert world.attempt() == 2
    assert world.outcome.remedy.startswith("Correct s3AccessKey and s3SecretKey")
    assert world.outcome.remedy not in world.outcome.message


def test_a_tokenizer_of_its_own_is_trained_with_and_exported(make_world: MakeWorld) -> None:
    world = make_world(steps=1)
    another_tokenizer(world)
    model_without("tokenizer.json")(world)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    final = world.outcome.final_model.removeprefix(f"s3://{world.stores.objects.bucket}/")
    exported = world.stores.objects.get(f"{final.rstrip('/')}/tokenizer.json")
    assert exported == (world.folder / "other" / "tokenizer.json").read_bytes()


def test_a_corrected_input_works_at_the_next_attempt(make_world: MakeWorld) -> None:
    world = make_world(steps=1)
    malformed_line(world)
    assert world.attempt() == 2
    world.put_data("train", range(10))
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert world.outcome.kind == "Succeeded"


def test_corrupt_stored_state_is_never_loaded(make_world: MakeWorld) -> None:
    world = make_world(steps=2, checkpoint={"everySteps": 1})
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    durable = world.run.durable
    assert durable is not None
    manifest = json.loads(world.stores.objects.get(f"{durable.prefix}manifest.json"))
    name = manifest["files"][0]["name"]
    stored = bytearray(world.stores.objects.get(durable.prefix + name))
    stored[-1] ^= 1
    world.stores.objects.put(durable.prefix + name, bytes(stored))
    world.stores.runs.clear_outcome(RUN, epoch=world.run.epoch)
    assert world.attempt() == 1
    assert world.outcome.reason == "StoredDataCorrupt"
    assert name in world.outcome.message


def test_an_unreachable_document_store_is_a_failed_attempt(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = make_world()
    gone = SecretStr("mongodb://127.0.0.1:1/")
    unreachable = dataclasses.replace(
        world, settings=world.settings.model_copy(update={"mongo_uri": gone})
    )
    unreachable.write_mounts()
    monkeypatch.setattr("tests.contract.rl_trainer.world.PATIENCE_SECONDS", 0.5)
    assert unreachable.attempt() == 1
