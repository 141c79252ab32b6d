from __future__ import annotations

from typing import Any

import pytest

from rl_operator.validation.parallelism import of_model
from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import a_spec

TWO = {"resources": {"limits": {"nvidia.com/gpu": 2}}}


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ({}, 1),
        (TWO, 2),
        ({"resources": {"requests": {"amd.com/gpu": "4"}}}, 4),
        ({"processesPerReplica": 3}, 3),
    ],
)
def test_each_gpu_has_a_process(trainer: dict[str, Any], processes: int) -> None:
    spec = a_spec(trainer=trainer)
    assert spec.trainer.processes == processes
    assert not list(of_spec(spec))


@pytest.mark.parametrize(
    ("processes", "reason", "says"),
    [(1, "OptionUnused", "idle"), (8, "OptionUnusable", "would have none")],
)
def test_processes_without_gpus_and_gpus_without_processes_are_refused(
    processes: int, reason: str, says: str
) -> None:
    refusal = next(of_spec(a_spec(trainer=TWO | {"processesPerReplica": processes})))
    assert refusal.field == "spec.trainer.processesPerReplica"
    assert (refusal.value, refusal.reason) == (str(processes), reason)
    assert says in refusal.message
    assert "set it to 2" in refusal.remedy


def test_moments_of_eight_bits_are_refused_beside_two_gpus() -> None:
    training = {"steps": 3, "optimizer": {"kind": "AdamW8bit"}}
    refusal = next(of_spec(a_spec(trainer=TWO, training=training)))
    assert (refusal.field, refusal.value) == ("spec.training.optimizer.kind", "AdamW8bit")


def test_network_policy_none_is_refused_beside_two_gpus() -> None:
    trainer = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    (refusal,) = of_spec(a_spec(trainer=trainer, networkPolicy="None"))
    assert (refusal.field, refusal.value) == ("spec.networkPolicy", "None")
    assert "2 processes" in refusal.message
    assert list(of_spec(a_spec(networkPolicy="None"))) == []


def test_a_mesh_that_the_processes_do_not_make_is_refused_before_a_pod_starts() -> None:
    trainer = {"replicas": 2, "processesPerReplica": 3, "parallelism": {"tp": 4}}
    (refusal,) = of_spec(a_spec(trainer=trainer))
    assert (refusal.field, refusal.value) == ("spec.trainer.parallelism.tp", "4")
    assert "6 processes" in refusal.message
    fits = {"replicas": 2, "processesPerReplica": 2, "parallelism": {"tp": 4}}
    assert not list(of_spec(a_spec(trainer=fits)))


def test_a_mesh_fits_every_number_of_replicas_that_attempts_may_have() -> None:
    elastic = {"minReplicas": 1, "maxReplicas": 3}
    trainer = {"replicas": 2, "processesPerReplica": 2, "elastic": elastic}
    assert not list(of_spec(a_spec(trainer=trainer | {"parallelism": {"tp": 2}})))
    (refusal,) = of_spec(a_spec(trainer=trainer | {"parallelism": {"tp": 4}}))
    assert "With 1 replicas, which trainer.elastic allows" in refusal.message
    (refusal,) = of_spec(a_spec(trainer=trainer | {"parallelism": {"fsdp": 4}}))
    assert "Leave fsdp out" in refusal.remedy


MODEL = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 3072,
    "vocab_size": 151936,
}


def test_a_mesh_that_does_not_divide_the_model_is_refused_with_its_numbers() -> None:
    spec = a_spec(trainer={"processesPerReplica": 16, "parallelism": {"tp": 16}})
    refusal = of_model(spec, MODEL)
    assert refusal is not None
    assert (refusal.field, refusal.value) == ("spec.trainer.parallelism.tp", "16")
    assert "8 heads of keys and values" in refusal.message
    assert of_model(spec, {}) is None, "the trainer knows it"
    fits = a_spec(trainer={"processesPerReplica": 16, "parallelism": {"tp": 8}})
    assert of_model(fits, MODEL) is None


def test_what_an_axis_of_the_mesh_lacks_is_refused_by_name() -> None:
    training = {"steps": 3, "lora": {"dropout": 0.1}}
    trainer = {"processesPerReplica": 2, "parallelism": {"tp": 2}}
    (refusal,) = of_spec(a_spec(trainer=trainer, training=training))
    assert (refusal.field, refusal.value) == ("spec.training.lora.dropout", "0.1")
    assert "on the mesh tp 2" in refusal.message
    assert not list(of_spec(a_spec(trainer={"processesPerReplica": 2}, training=training)))


@pytest.mark.parametrize("sizes", [{"tp": 2}, {"ep": 2}])
def test_adapters_of_experts_are_refused_where_the_mesh_divides_an_expert(
    sizes: dict[str, int],
) -> None:
    training = {"steps": 3, "lora": {"experts": "Adapted"}}
    processes = {"processesPerReplica": 2}
    trainer = {**processes, "parallelism": sizes}
    (refusal,) = of_spec(a_spec(trainer=trainer, training=training))
    assert (refusal.field, refusal.value) == ("spec.training.lora.experts", "Adapted")
    assert "fsdp or cp" in refusal.remedy
    for others in ({}, {"fsdp": 2}, {"cp": 2}, {"replicate": 2}):
        trainer = {**processes, "parallelism": others}
        assert not list(of_spec(a_spec(trainer=trainer, training=training))), others
