"""Typed options of an engine: arguments, GPUs, processors and models that contradict them."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts import engine_server
from rl_operator.validation.engine_options import of_model
from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import a_spec
from tests.unit.rl_operator.rendered import a_deployment, containers_of, pod_of
from tests.unit.rl_operator.validation.test_engine_arguments import OPTIONS

AT = "spec.samplers[0].template.engine"
ALL: dict[str, Any] = {
    "tensorParallel": 4,
    "dataParallel": 2,
    "expertParallel": 2,
    "memoryFraction": 0.85,
    "contextTokens": 16384,
    "weightPrecision": "FP8",
    "cachePrecision": "FP8E4M3",
    "speculation": {"draftTokens": 8, "breadth": 1, "matchTokens": 6},
}
"""Every typed option that SGLang has an argument for."""
CORRECTED = {"offPolicy": {"correction": {"kind": "TIS"}}}


def a_group(*, gpus: int = 0, **engine: Any) -> dict[str, Any]:
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    return {"samplers": [{"name": "main", "template": {"engine": engine, **limits}}]}


def refused(**sections: Any) -> list[tuple[str, str]]:
    spec = a_spec(**({"algorithm": CORRECTED} | sections))
    return [(each.field, each.message) for each in of_spec(spec)]


def engine_of(**engine: Any) -> list[str]:
    pod = pod_of(a_deployment(**a_group(**engine)))
    (served,) = [each for each in containers_of(pod) if each["name"] == "engine"]
    arguments: list[str] = served["args"]
    return arguments


def test_every_option_becomes_an_argument_before_those_of_the_manifest() -> None:
    arguments = engine_of(**ALL, args=["--schedule-policy", "lpm"])
    written = [
        "--tensor-parallel-size",
        "4",
        "--data-parallel-size",
        "2",
        "--expert-parallel-size",
        "2",
        "--mem-fraction-static",
        "0.85",
        "--context-length",
        "16384",
        "--quantization",
        "fp8",
        "--load-format",
        "flash_rl",
        "--kv-cache-dtype",
        "fp8_e4m3",
        "--speculative-algorithm",
        "NGRAM",
        "--speculative-num-draft-tokens",
        "8",
        "--speculative-ngram-max-bfs-breadth",
        "1",
        "--speculative-ngram-max-trie-depth",
        "6",
        "--schedule-policy",
        "lpm",
    ]
    assert arguments[-len(written) :] == written
    assert set(OPTIONS) >= {each for each in written if each.startswith("--")}


def test_unset_options_leave_the_choice_to_the_engine() -> None:
    assert not set(engine_of()) & {each for names in engine_server.NAMES.values() for each in names}


def test_all_options_on_the_gpus_that_they_need_pass() -> None:
    assert refused(**a_group(gpus=8, **ALL)) == []


@pytest.mark.parametrize(
    ("engine", "argument"),
    [
        ({"tensorParallel": 4}, "--tp=4"),
        ({"tensorParallel": 4}, "--tensor-par"),
        ({"dataParallel": 4}, "--dp-size=4"),
        ({"memoryFraction": 0.5}, "--mem-frac=0.5"),
        ({"contextTokens": 16384}, "--context-length=32768"),
        ({"cachePrecision": "FP8E5M2"}, "--kv-cache-dtype=auto"),
        ({"speculation": {}}, "--speculative-num-draft-tokens=4"),
    ],
)
def test_an_argument_that_says_what_a_field_says_is_refused(
    engine: dict[str, Any], argument: str
) -> None:
    (field, message), *_ = refused(**a_group(**engine, args=[argument]))
    assert field == f"{AT}.args[0]"
    assert message == f"engine.{next(iter(engine))} is set and says the same."
    assert refused(**a_group(args=["--tp=4", "--mem-frac=0.5", "--context-length=32768"])) == []


@pytest.mark.parametrize(
    ("gpus", "engine"),
    [
        (8, {"tensorParallel": 4}),
        (1, {"tensorParallel": 2}),
        (2, {"tensorParallel": 2, "dataParallel": 2}),
        (2, {"tensorParallel": 2, "args": ["--pp-size", "2"]}),
        (4, {}),
    ],
)
def test_gpus_that_the_engine_does_not_use_are_refused(gpus: int, engine: dict[str, Any]) -> None:
    ((field, message),) = refused(**a_group(gpus=gpus, **engine))
    assert field == f"{AT}.tensorParallel"
    assert f"its pod has {gpus}" in message


def test_claimed_devices_are_not_counted() -> None:
    assert refused(**a_group(tensorParallel=4)) == []


@pytest.mark.parametrize(("processes", "fits"), [(4, True), (2, False)])
def test_a_colocated_engine_uses_the_trainers_gpus(processes: int, fits: bool) -> None:
    trainer = {"processesPerReplica": processes}
    refusals = refused(placement="Colocated", trainer=trainer, **a_group(tensorParallel=4))
    assert [field for field, _ in refusals] == ([] if fits else [f"{AT}.tensorParallel"])


@pytest.mark.parametrize(
    ("engine", "field"),
    [
        ({"tensorParallel": 2}, "tensorParallel"),
        ({"dataParallel": 2}, "dataParallel"),
        ({"speculation": {}}, "speculation"),
        ({"weightPrecision": "FP8"}, "weightPrecision"),
    ],
)
def test_a_processor_has_neither_gpus_nor_speculation(engine: dict[str, Any], field: str) -> None:
    ((at, message),) = refused(**a_group(**engine, args=["--device", "cpu"]))
    assert at == f"{AT}.{field}"
    assert "--device cpu" in message
    on_cpu = a_group(contextTokens=8192, memoryFraction=0.5, args=["--device", "cpu"])
    assert refused(**on_cpu) == []


@pytest.mark.parametrize("name", ["SGLANG_SIMULATE_ACC_LEN", "SGLANG_RETURN_ORIGINAL_LOGPROB"])
def test_variables_that_make_log_probabilities_wrong_are_refused(name: str) -> None:
    ((field, _),) = refused(**a_group(env=[{"name": "A"}, {"name": name, "value": "1"}]))
    assert field == f"{AT}.env[1].name"


@pytest.mark.parametrize(
    "argument",
    [
        "--speculative-algorithm=EAGLE",
        "--speculative-draft-model-path=/draft",
        "--speculative-accept-threshold-single=0.5",
        "--speculative-accept-threshold-acc=0.5",
    ],
)
def test_speculation_that_is_not_the_policys_is_refused(argument: str) -> None:
    ((field, _),) = refused(**a_group(args=[argument]))
    assert field == f"{AT}.args[0]"


def test_an_engine_is_compared_with_its_model_by_group() -> None:
    model = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "vocab_size": 100,
    }
    spec = a_spec(**a_group(tensorParallel=4))
    refusal = of_model(spec, model)
    assert refusal is not None
    assert (refusal.field, refusal.value) == (f"{AT}.tensorParallel", "4")
    assert of_model(a_spec(**a_group(tensorParallel=2)), model) is None
    assert of_model(spec, {}) is None
    quantized = of_model(a_spec(**a_group(weightPrecision="FP8")), model)
    assert quantized is not None
    assert quantized.field == f"{AT}.weightPrecision"
