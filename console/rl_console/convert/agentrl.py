"""Options of AgentRL's training script."""

from __future__ import annotations

from rl_console.convert.conversion import Framework
from rl_console.convert.rules import (
    Draft,
    Line,
    Outcome,
    Rule,
    absent,
    by_hand,
    choice,
    folder,
    needless,
    to,
    truth,
    when,
)

GPU = "trainer.resources.limits"
LOSSES = {
    "grpo": {"algorithm.loss.kind": "PPOClip", "algorithm.estimator.kind": "GRPO"},
    "gspo": {"algorithm.loss.kind": "GSPO", "algorithm.estimator.kind": "GRPO"},
    "cispo": {"algorithm.loss.kind": "CISPO", "algorithm.estimator.kind": "GRPO"},
    "minirl": {"algorithm.loss.kind": "MiniRL", "algorithm.estimator.kind": "DrGRPO"},
}
KEPT_GRADIENTS = {"gradientBelow", "gradientAbove"}
PARALLEL = "trainer.parallelism has replicate, fsdp, tp, cp and ep"
BATCH = "training.promptsPerStep"
AGGREGATION = "algorithm.loss.aggregation"
CORRECTION = "algorithm.offPolicy.correction"
ROLLOUTS = "data.rollouts.runId"


def _token_level(draft: Draft, value: object) -> Outcome:
    if truth(value):
        kind = "TokenMean"
    elif truth(draft.given.get("skip_length_normalization", False)):
        kind = "SequenceSum"
    else:
        kind = "SequenceMean"
    draft.put(AGGREGATION, kind)
    return "mapped", AGGREGATION, ""


def _kept_gradient(name: str) -> Rule:
    """Of tokens beyond the clip; the kind of loss is set at the end, whatever the order."""
    path = f"algorithm.loss.{name}"

    def apply(draft: Draft, value: object) -> Outcome:
        if str(draft.given.get("loss_calculater", "grpo")).lower() != "grpo":
            return "by hand", path, "with kind CEGPPO, in place of the loss of loss_calculater"
        draft.put(path, float(str(value)))
        return "mapped", path, "loss kind CEGPPO"

    return Rule(apply=apply, fields=(path,))


def _processes(draft: Draft, value: object) -> Outcome:
    draft.put(GPU, {"nvidia.com/gpu": value})
    return "mapped", GPU, "each GPU has a process"


def _sync(draft: Draft, value: object) -> Outcome:
    if not truth(value):
        return "not needed", "", "the default of maxStaleness is 1"
    draft.put("algorithm.offPolicy.maxStaleness", 0)
    return "mapped", "algorithm.offPolicy.maxStaleness", "sampling and training take turns"


def _evaluation(draft: Draft, value: object) -> Outcome:
    path = "training.evaluation.everySteps"
    if str(value).lower() in ("no", "false"):
        return "not needed", "", "without data.validation nothing is evaluated"
    return "by hand", path, "name data.validation, and after how many steps to evaluate"


def _finish(draft: Draft) -> None:
    """Prompts of a step: samples of all devices, divided by the samples of a group."""
    given = draft.given
    if not KEPT_GRADIENTS.isdisjoint(draft.get("algorithm.loss") or {}):
        draft.put("algorithm.loss.kind", "CEGPPO")
    keys = ("per_device_train_batch_size", "gradient_accumulation_steps")
    if not any(key in given for key in keys):
        return
    samples = int(given.get("nproc_per_node", 1)) * int(given.get("nnodes", 1))
    for key in keys:
        samples *= int(given.get(key, 1))
    group = int(given.get("num_generations", 8))
    prompts = max(1, samples // group)
    draft.put(BATCH, prompts)
    note = f"{samples} samples of a step / {group} of a group = {prompts} prompts"
    draft.lines.append(Line(option="", value="", state="mapped", field=BATCH, note=note))


_BATCH = Rule(apply=lambda draft, value: ("mapped", BATCH, "see the sum below"), fields=(BATCH,))
STORE = needless("the Secret of storage.secretName names both stores")


def _sampling(draft: Draft, value: object) -> Outcome:
    if truth(value):
        return "not needed", "", "samplers always run"
    note = "the run whose rollouts are stored, with algorithm.objective Offline"
    return "by hand", ROLLOUTS, note


FRAMEWORK = Framework(
    rules={
        "model_name_or_path": folder("model.uri", "models"),
        "answer_schema": choice(
            "reward.answerSchema", {"answer": "Answer", "boxed": "Boxed", "auto": "Auto"}
        ),
        "scorer": choice("reward.scorers[0].kind", {"math": "Math"}),
        "mcp_manager_url": by_hand(
            "agent.mcpServers[].url", "an entry for each server, with agent.kind ToolLoop"
        ),
        "judge_prompt_template": by_hand("reward.scorers[].judge", "the judge's prompt"),
        "browse_tools": by_hand("agent.browse.tools", "empty: long results of every tool"),
        "default_purpose": by_hand("agent.browse.purpose", "what a result is read for"),
        "enable_sampling": Rule(apply=_sampling, fields=("algorithm.objective", ROLLOUTS)),
        "sync_sampling": Rule(apply=_sync, fields=("algorithm.offPolicy.maxStaleness",)),
        "num_generations": to("algorithm.groupSize"),
        "max_new_tokens": to("agent.sampling.maxTokensPerTurn"),
        "max_prompt_tokens": to("agent.sampling.maxPromptTokens"),
        "dynamic_batching": needless("sequences are packed by training.maxTokensPerMicrobatch"),
        "loss_seq_chunk_size": needless("training.maxTokensPerMicrobatch is Auto"),
        "target_concurrency": by_hand(
            "samplers[].template.maxConcurrentGroups", "in groups, for each sampler pod"
        ),
        "max_concurrent_samples_per_process": by_hand(
            "samplers[].template.maxConcurrentGroups", "in groups, for each sampler pod"
        ),
        "inf_tp_size": to("samplers[0].template.engine.tensorParallel"),
        "inf_ep_size": to("samplers[0].template.engine.expertParallel"),
        "inf_mem_ratio": to("samplers[0].template.engine.memoryFraction"),
        "eval_strategy": Rule(apply=_evaluation, fields=("training.evaluation.everySteps",)),
        "loss_calculater": choice("algorithm.loss.kind", LOSSES),
        "token_level_loss": Rule(apply=_token_level, fields=(AGGREGATION,)),
        "skip_length_normalization": needless("it is part of algorithm.loss.aggregation"),
        "strict_in_bound": when(
            {f"{CORRECTION}.strictInBound": True, f"{CORRECTION}.kind": "ImportanceCap"}
        ),
        "epsilon": to("algorithm.loss.clipLow"),
        "epsilon_higher": to("algorithm.loss.clipHigh"),
        "beta1": _kept_gradient("gradientBelow"),
        "beta2": _kept_gradient("gradientAbove"),
        "importance_weight_cap_ratio": to(f"{CORRECTION}.cap", note="correction ImportanceCap"),
        "out_of_date_decay": to(f"{CORRECTION}.decay", note="correction ImportanceCap"),
        "drop_zero_advantage": when({"algorithm.shaping.dropZeroAdvantage": True}),
        "minimal_advantage": to("algorithm.shaping.minimalAdvantage"),
        "skip_non_positive_advantage": when({"algorithm.shaping.skipNonPositiveAdvantage": True}),
        "max_trained_count": to("algorithm.offPolicy.maxTrainings"),
        "retrained_interval": to("algorithm.offPolicy.retrainInterval"),
        "activation_offloading": when({"training.offloadActivations": True}),
        "tp_size": to("trainer.parallelism.tp"),
        "pp_size": absent(PARALLEL),
        "ep_size": to("trainer.parallelism.ep"),
        "cp_size": to("trainer.parallelism.cp"),
        "per_device_train_batch_size": _BATCH,
        "gradient_accumulation_steps": _BATCH,
        "learning_rate": to("training.optimizer.learningRate"),
        "save_steps": to("training.checkpoint.everySteps"),
        "max_steps": to("training.steps"),
        "num_train_epochs": to("training.epochs", convert=lambda value: int(float(value))),
        "seed": to("training.seed"),
        "db_connection_string": STORE,
        "oss_connection_string": STORE,
        "enable_oss": needless("the bucket is always used"),
        "output_dir": needless("status.finalModel names the folder in the bucket"),
        "nproc_per_node": Rule(apply=_processes, fields=(GPU,)),
        "nnodes": to("trainer.replicas"),
    },
    name_of=lambda name: name.replace("-", "_"),
    is_option=lambda name: not name.isupper(),
    finish=_finish,
)
