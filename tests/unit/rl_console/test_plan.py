from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_console import app
from rl_console.errors import FAILED, DoesNotFitError, PlanError, UsageError
from rl_console.plan import plan
from tests.models.families import SIZES
from tests.samples.manifests import a_job

QWEN = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}

TRAIN_ALONE = {"train": [{"name": "sums", "uri": "s3://data/sums.jsonl"}]}


def planned(folder: Path, config: dict[str, Any], **sections: Any) -> list[str]:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "job.yaml").write_text(yaml.safe_dump(a_job(**sections)))
    lines = []
    with suppress(DoesNotFitError):
        for line in plan(folder / "job.yaml", folder / "config.json", device_gib=80):
            lines.append(line)
    return lines


def test_a_teacher_is_not_counted_and_no_fit_is_claimed(tmp_path: Path) -> None:
    algorithm = {"objective": "Distillation", "teacher": "s3://models/teacher", "groupSize": 1}
    lines = planned(tmp_path, {"model_type": "llama", **SIZES}, algorithm=algorithm)
    assert lines[3].strip() == (
        "The sums do not count the model of spec.algorithm.teacher: its sizes are not known here."
    )
    assert not any("fits by formula" in line for line in lines)


def test_a_small_model_fits(tmp_path: Path) -> None:
    lines = planned(tmp_path, {"model_type": "llama", **SIZES})
    assert "microbatches of 32768 tokens (Auto)" in lines[1]
    assert lines[3].strip() == "it fits by formula"


def test_eight_billion_parameters_do_not_fit_one_gpu(tmp_path: Path) -> None:
    lines = planned(tmp_path, QWEN)
    assert lines[0] == "model: qwen3, 8.19 billion parameters"
    assert "it cannot fit: weights, gradients and moments alone exceed it" in lines[3]
    assert "training.lora" in lines[3]


def test_no_number_of_tokens_is_a_remedy_where_weights_alone_are_too_large(tmp_path: Path) -> None:
    lines = planned(tmp_path, QWEN)
    assert "Tokens" not in lines[3]
    assert "gradientCheckpointing" not in lines[3]


def test_a_remedy_begins_with_the_tokens_that_auto_chose(tmp_path: Path) -> None:
    lines = planned(
        tmp_path, QWEN | {"num_hidden_layers": 19}, training={"steps": 1, "precision": "BF16"}
    )
    assert "microbatches of 8192 tokens (Auto)" in lines[1]
    assert "it may not fit" in lines[3]
    assert "from 32768" not in lines[3]


@pytest.mark.parametrize(
    ("config", "engine"),
    [(QWEN, {}), (QWEN | {"num_hidden_layers": 2}, {"memoryFraction": 0.06})],
    ids=["the trainer", "an engine"],
)
def test_a_job_that_cannot_fit_is_an_error_after_all_lines(
    tmp_path: Path,
    config: dict[str, Any],
    engine: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    samplers = [{"name": "main", "template": {"engine": engine}}]
    planned(tmp_path, config, samplers=samplers)
    files = ["-f", str(tmp_path / "job.yaml"), "--config", str(tmp_path / "config.json")]
    assert app.run(["plan", *files]) == FAILED
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].startswith("  it makes 1 trainer pod")
    assert shown.err == (
        "error: job cannot fit on GPUs of 80 GiB. The lines above say what to change\n"
    )


def test_a_job_that_trains_nothing_is_not_too_large(tmp_path: Path) -> None:
    sampling = {"objective": "Sampling", "groupSize": 4}
    lines = planned(tmp_path, QWEN, algorithm=sampling, data=TRAIN_ALONE, training={"steps": 1})
    assert lines[3].strip() == "nothing is trained: the trainer needs less than that"


def test_a_family_whose_formula_is_not_known_is_refused_with_those_that_are(tmp_path: Path) -> None:
    known = "qwen2_5_vl, qwen3_vl$"
    with pytest.raises(PlanError, match=rf"model_type is 'bert', .* llama, mistral, .*{known}"):
        planned(tmp_path, {**QWEN, "model_type": "bert"})


def plan_of(folder: Path, samplers: list[dict[str, Any]]) -> list[str]:
    return planned(folder, QWEN, samplers=samplers, training={"steps": 1, "precision": "BF16"})


def test_engines_are_planned_by_group(tmp_path: Path) -> None:
    samplers = [
        {"name": "main", "template": {"engine": {"args": ["--tp", "2"]}}},
        {"name": "tiny", "template": {"engine": {"memoryFraction": 0.2}}},
        {"name": "shared", "poolRef": {"name": "pool"}},
    ]
    lines = [line.strip() for line in plan_of(tmp_path, samplers)]
    assert lines[4] == (
        "of its host the first pod needs published 45.77 + checkpoint 91.54 + export 15.26 = "
        "152.56 GiB, and 9.27 GiB to load the model"
    )
    assert lines[5] == (
        "samplers main: each of an engine's 2 GPUs (tensor 2) holds weights 7.63 + cache 59.62 "
        "GiB, 84% of 80 GiB, + 0.12 GiB for the engine's table of requests"
    )
    assert lines[6].startswith("the cache holds 868305 tokens, ")
    assert lines[7].startswith(
        "samplers tiny: each of an engine's 1 GPUs (tensor 1) holds weights 15."
    )
    assert lines[8].startswith("the cache cannot hold one episode of 8192 tokens: raise ")
    assert lines[9] == (
        "it makes 1 trainer pod of 0 GPUs, 1 pod of 0 GPUs in SamplerPool job-main, "
        "1 pod of 0 GPUs in SamplerPool job-tiny, no pod of group shared, which is of SamplerPool "
        "pool; 0 GPUs in all"
    )
    assert len(lines) == 10


def test_the_gpus_of_all_pods_are_added_up(tmp_path: Path) -> None:
    gpus = {"limits": {"nvidia.com/gpu": 2}}
    scaled = {"mode": "Builtin", "minReplicas": 3, "maxReplicas": 6}
    lines = planned(
        tmp_path,
        QWEN,
        trainer={"replicas": 2, "resources": gpus},
        samplers=[{"name": "main", "template": {"resources": gpus, "autoscaling": scaled}}],
    )
    assert lines[-1].strip() == (
        "it makes 2 trainer pods of 2 GPUs, 3 to 6 pods of 2 GPUs in SamplerPool job-main; 10 GPUs "
        "in all"
    )


def test_what_the_api_server_would_refuse_is_refused(tmp_path: Path) -> None:
    twice = [{"name": "main"}, {"name": "main"}]
    with pytest.raises(PlanError, match=r"^job: spec\.samplers"):
        plan_of(tmp_path, twice)


def test_slots_of_adapters_are_planned(tmp_path: Path) -> None:
    text = "\n".join(planned(tmp_path, QWEN, training={"steps": 1, "lora": {"rank": 64}}))
    assert "8 slots of adapters 2.60 + cache" in text
    assert "slots of adapters" not in "\n".join(planned(tmp_path, QWEN, training={"steps": 1}))


def test_typed_options_of_an_engine_are_planned(tmp_path: Path) -> None:
    engine = {"tensorParallel": 4, "dataParallel": 2, "contextTokens": 16384, "speculation": {}}
    lines = plan_of(tmp_path, [{"name": "main", "template": {"engine": engine}}])
    assert "an engine's 8 GPUs (tensor 4 × data 2) holds weights 3.81 " in lines[5]
    assert lines[7].strip() == (
        "speculation: at most 48 requests run at a time (48 unless --max-running-requests says "
        "otherwise), each with 12 guessed tokens a pass"
    )


def test_an_engine_that_cannot_divide_the_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"samplers main.* 32 attention heads, which 3 GPUs"):
        plan_of(tmp_path, [{"name": "main", "template": {"engine": {"tensorParallel": 3}}}])


def test_a_config_without_sizes_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"config\.json cannot .*no usable num_attention_heads"):
        planned(tmp_path, {"model_type": "llama"})


def test_a_manifest_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    (tmp_path / "job.yaml").write_text("spec: [")
    with pytest.raises(UsageError, match=r"job\.yaml: line 1: expected "):
        list(plan(tmp_path / "job.yaml", tmp_path / "config.json", device_gib=80))


def test_a_manifest_is_read_as_validate_reads_it(tmp_path: Path) -> None:
    """A rate without a point is a number, and a folder is its files."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    (tmp_path / "jobs").mkdir()
    written = yaml.safe_dump(a_job(training={"steps": 1, "optimizer": {"learningRate": 7}}))
    (tmp_path / "jobs" / "job.yaml").write_text(written.replace("7", "1e-6"))
    lines = list(plan(tmp_path / "jobs", tmp_path / "config.json", device_gib=800))
    assert lines[1].startswith("job: 1 processes")
