"""MaxEnt-GRPO: its recipe, its flags, vLLM's, and the script for Slurm."""

from __future__ import annotations

import re
from typing import Any

from rl_console.convert.conversion import Framework
from rl_console.convert.rules import (
    Draft,
    Outcome,
    Rule,
    absent,
    by_hand,
    folder,
    needless,
    to,
    truth,
)

MAXENT = "algorithm.estimator.maxent"
CONTROLLER = "algorithm.kl.controller"
GPU = "nvidia.com/gpu"
TIME = re.compile(r"^(?:(\d+)-)?(\d+):(\d+):(\d+)$")
IGNORED = (
    *("config", "config_file", "main_process_port", "use_vllm", "dtype", "output", "nodes"),
    *("ntasks", "job_name"),
)
VARIABLES = (
    *("TRAIN_ENTRYPOINT", "MAXENT", "VLLM_MODEL", "VLLM_PORT", "VLLM_TP_SIZE"),
    *("VLLM_MEM_UTIL", "VLLM_MAX_LEN"),
)


def _kl(path: str, rule_path: str) -> Rule:
    """The controller of the KL is adaptive as soon as one of its options is set."""

    def apply(draft: Draft, value: Any) -> Outcome:
        draft.put(path, value)
        draft.put(f"{CONTROLLER}.kind", "Adaptive")
        return "mapped", path, "controller Adaptive"

    return Rule(apply=apply, fields=(rule_path,))


def _maxent(draft: Draft, value: Any) -> Outcome:
    if not truth(value) and "maxent" not in str(value):
        return "not needed", "", "the estimator is GRPO"
    draft.put("algorithm.estimator.kind", "MaxEnt")
    draft.put("algorithm.loss.kind", "MaxEnt")
    return "mapped", "algorithm.estimator.kind", "with the loss MaxEnt"


def _of_maxent(name: str) -> Rule:
    path = f"{MAXENT}.{name}"

    def apply(draft: Draft, value: Any) -> Outcome:
        _maxent(draft, True)
        draft.put(path, value)
        return "mapped", path, ""

    return Rule(apply=apply, fields=(path,))


def _gpus(draft: Draft, value: Any) -> Outcome:
    count = int(str(value).rpartition(":")[2])
    # The script gives the first one to vLLM and the others to the trainer.
    draft.put("trainer.resources.limits", {GPU: max(1, count - 1)})
    draft.put("samplers[0].template.resources.limits", {GPU: 1})
    return "mapped", "trainer.resources", "one GPU for the sampler, the others for the trainer"


def _time(draft: Draft, value: Any) -> Outcome:
    path = "lifecycle.activeDeadlineSeconds"
    # YAML 1.1 reads 72:00:00 as seconds already.
    match = TIME.match(str(value))
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        value = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    draft.put(path, int(value))
    return "mapped", path, ""


def _report(draft: Draft, value: Any) -> Outcome:
    if "wandb" not in str(value):
        return "not needed", "", "metrics of every run are in the bucket and for Prometheus"
    draft.put("training.tracking.wandb", "Online")
    draft.put("training.tracking.secretName", "wandb")
    note = "create the Secret wandb with the key WANDB_API_KEY"
    return "mapped", "training.tracking.wandb", note


def _finish(draft: Draft) -> None:
    """The guide's default reward: an exact match in ``<answer>…</answer>``."""
    draft.put("reward.scorers", [{"kind": "ExactMatch"}])
    draft.put("reward.answerSchema", "Answer")


def name_of(written: str) -> str:
    """Names in the table: without dashes, and the variables of the script as they are."""
    return written.replace("-", "_")


QUEUE = by_hand("scheduling.queueName", "with scheduling.provider Kueue, or trainer.nodeSelector")
POD = by_hand("trainer.resources", "requests of the pods, as Kubernetes quantities")
ENGINE = "samplers[0].template.engine"
TENSOR, MEMORY = to(f"{ENGINE}.tensorParallel"), to(f"{ENGINE}.memoryFraction")
FRAMEWORK = Framework(
    rules={
        "gres": Rule(apply=_gpus, fields=("trainer.resources",)),
        "cpus_per_task": POD,
        "mem": POD,
        "partition": QUEUE,
        "account": QUEUE,
        "time": Rule(apply=_time, fields=("lifecycle.activeDeadlineSeconds",)),
        "exclusive": absent("ask for all GPUs of a node"),
        "num_processes": to("trainer.processesPerReplica"),
        "TRAIN_ENTRYPOINT": Rule(apply=_maxent, fields=("algorithm.estimator.kind",)),
        "MAXENT": Rule(apply=_maxent, fields=("algorithm.estimator.kind",)),
        "VLLM_MODEL": folder("model.uri", "models"),
        "model": folder("model.uri", "models"),
        "model_name_or_path": folder("model.uri", "models"),
        "VLLM_PORT": absent("engines listen on loopback alone"),
        "port": absent("engines listen on loopback alone"),
        "VLLM_TP_SIZE": TENSOR,
        "tensor_parallel_size": TENSOR,
        "VLLM_MEM_UTIL": MEMORY,
        "gpu_memory_utilization": MEMORY,
        "VLLM_MAX_LEN": to("agent.sampling.maxContextTokens"),
        "max_model_len": to("agent.sampling.maxContextTokens"),
        "max_completion_length": to("agent.sampling.maxTokensPerTurn"),
        "dataset_name": folder("data.train[0].uri", "datasets"),
        "dataset_mixture": by_hand("data.train[].uri", "one entry for each, with its weight"),
        "system_prompt": to("agent.systemPrompt"),
        "chat_template": to("agent.chatTemplate"),
        "benchmarks": by_hand("data.validation", "ready entries: examples/benchmarks.yaml"),
        "num_generations": to("algorithm.groupSize"),
        "init_kl_coeff": to("algorithm.kl.coefficient"),
        "kl_target": _kl(f"{CONTROLLER}.target", f"{CONTROLLER}.target"),
        "kl_horizon": _kl(f"{CONTROLLER}.horizon", f"{CONTROLLER}.horizon"),
        "maxent_tau": _of_maxent("tau"),
        "maxent_q_temperature": _of_maxent("qTemperature"),
        "maxent_q_epsilon": _of_maxent("qEpsilon"),
        "maxent_length_normalize_ref": _of_maxent("lengthNormalizeReference"),
        "seed": to("training.seed"),
        "learning_rate": to("training.optimizer.learningRate"),
        "max_steps": to("training.steps"),
        "num_train_epochs": to("training.epochs", convert=lambda value: int(float(value))),
        "per_device_train_batch_size": by_hand(
            "training.promptsPerStep", "completions of all devices, divided by num_generations"
        ),
        "gradient_checkpointing": to("training.gradientCheckpointing", convert=truth),
        "report_to": Rule(apply=_report, fields=("training.tracking.wandb",)),
        "wandb_project": to("training.tracking.project"),
        "wandb_entity": to("training.tracking.entity"),
        "run_name": needless("the job's name"),
        "hub_model_id": by_hand("training.checkpoint.hubRepo", "with data.hub.tokenSecretRef"),
        "ignore_data_skip": absent("a restart goes on at the record where the run was"),
        "overwrite_output_dir": absent("a restart goes on at the record where the run was"),
        **{name: needless("part of the launcher") for name in IGNORED},
    },
    name_of=name_of,
    is_option=lambda name: not name.isupper() or name in VARIABLES,
    finish=_finish,
)
