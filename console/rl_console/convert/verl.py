"""Hydra overrides of verl and AgentFly."""

from __future__ import annotations

from typing import Any

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

ESTIMATORS = {
    "gae": {"algorithm.estimator.kind": "GAE", "algorithm.critic": {}},
    "grpo": "GRPO",
    "reinforce_plus_plus": "REINFORCEPlusPlus",
    "rloo": "RLOO",
    "remax": "ReMax",
}
KL = {"kl": "K1", "k1": "K1", "abs": "Abs", "mse": "K2", "k2": "K2", "low_var_kl": "K3"}
KL |= {"k3": "K3", "full": "Full"}
COMPARING = ("GRPO", "RLOO")
"""Estimators that compare the members of a group."""
REWARDS = {"math_reward_string_equal": "Math", "code_reward": "Code"}
GPU = "nvidia.com/gpu"
TENSOR = "samplers[0].template.engine.tensorParallel"


def _agent_type(draft: Draft, value: Any) -> Outcome:
    if not truth(draft.given.get("agent.use_agent", True)):
        return "not needed", "", "agent.kind SingleTurn is the run without an agent"
    if str(value) == "gui":
        note = "ToolLoop or ReAct, with screenshots from an MCP server: docs/guides/images.md"
        return "by hand", "agent.kind", note
    kinds = {"hf": "ToolLoop", "react": "ReAct", "code": "Code"}
    if str(value) not in kinds:
        return "by hand", "agent.kind", f"{value} is none of {', '.join(kinds)}, gui"
    draft.put("agent.kind", kinds[str(value)])
    return "mapped", "agent.kind", ""


def _use_agent(draft: Draft, value: Any) -> Outcome:
    if truth(value):
        return "not needed", "", "agent.agent_type says which kind"
    draft.put("agent.kind", "SingleTurn")
    return "mapped", "agent.kind", ""


def _mini_batch(draft: Draft, value: Any) -> Outcome:
    path = "training.promptsPerUpdate"
    if value == draft.given.get("data.train_batch_size"):
        return "not needed", "", "one update for each step is the default"
    draft.put(path, value)
    return "mapped", path, ""


RETRIEVAL_TOOLS = ("dense_retrieve", "asyncdense_retrieve")
BUILT_IN_TOOLS = {"answer": "Answer", "calculator": "Calculator"}
BUILT_IN_TOOLS |= dict.fromkeys(RETRIEVAL_TOOLS, "Search")
"""Tools of AgentFly that need no code."""
WEB_SEARCH = "google_search"
"""How the names of AgentFly's tools for web searches begin."""
OF_WEB_SEARCH = (
    f"{WEB_SEARCH} asks a provider, whose answers change while a run trains: instead use "
    "agent.builtInTools [Search] with agent.search, which asks a collection of your own"
)
SEARCH_URL = "http://search:8000/retrieve"
"""Of the service in examples/search."""
OF_RETRIEVAL = "start a retrieval service over your collection, and name it in agent.search.url"


def _tools(draft: Draft, value: Any) -> Outcome:
    names = value if isinstance(value, list) else [value]
    if draft.given.get("agent.agent_type") == "code":
        return "not needed", "", "agent.kind Code runs Python by itself"
    built_in = [BUILT_IN_TOOLS[name] for name in names if name in BUILT_IN_TOOLS]
    own = [name for name in names if name not in BUILT_IN_TOOLS]
    notes = []
    if built_in:
        draft.put("agent.builtInTools", sorted(set(built_in)))
    if "Search" in built_in:
        draft.put("agent.search.url", SEARCH_URL)
        notes.append(OF_RETRIEVAL)
    for name in own:
        draft.add("agent.tools", {"entryPoint": f"tools:{name}"})
    if own:
        draft.put("code.configMapRef.name", "tools")
        notes.append("put these functions as tools.py into the ConfigMap, or name MCP servers")
    if any(str(name).startswith(WEB_SEARCH) for name in own):
        notes.append(OF_WEB_SEARCH)
    path = "agent.tools[].entryPoint" if own else "agent.builtInTools"
    return "by hand" if notes else "mapped", path, "; ".join(notes)


def _reward(draft: Draft, value: Any) -> Outcome:
    path = "reward.scorers[0].kind"
    if str(value) in REWARDS:
        draft.put(path, REWARDS[str(value)])
        return "mapped", path, ""
    draft.put("reward.scorers[0]", {"kind": "Own", "entryPoint": f"rewards:{value}"})
    draft.put("code.configMapRef.name", draft.get("code.configMapRef.name") or "rewards")
    note = f"put the function {value} as rewards.py into the ConfigMap of code.configMapRef"
    return "by hand", "reward.scorers[].entryPoint", note


def _frequency(path: str, unset: str) -> Rule:
    def apply(draft: Draft, value: Any) -> Outcome:
        if int(value) < 1:
            return "not needed", "", unset
        draft.put(path, int(value))
        return "mapped", path, ""

    return Rule(apply=apply, fields=(path,))


def _logger(draft: Draft, value: Any) -> Outcome:
    if "wandb" not in str(value):
        return "not needed", "", "metrics of every run are in the bucket and for Prometheus"
    draft.put("training.tracking.wandb", "Online")
    draft.put("training.tracking.secretName", "wandb")
    note = "create the Secret wandb with the key WANDB_API_KEY"
    return "mapped", "training.tracking.wandb", note


def _length(draft: Draft, value: Any) -> Outcome:
    if "agent.max_tokens_per_turn" in draft.given:
        return "not needed", "", "agent.max_tokens_per_turn says it"
    draft.put("agent.sampling.maxTokensPerTurn", value)
    return "mapped", "agent.sampling.maxTokensPerTurn", ""


def _groups(draft: Draft, value: Any) -> Outcome:
    draft.put("algorithm.groupSize", value)
    return "mapped", "algorithm.groupSize", ""


def _clip(draft: Draft, value: Any) -> Outcome:
    for name in ("Low", "High"):
        if f"actor.clip_ratio_{name.lower()}" not in draft.given:
            draft.put(f"algorithm.loss.clip{name}", value)
    return "mapped", "algorithm.loss.clipLow", "and clipHigh"


def _later(path: str) -> Rule:
    """The option belongs to the KL or the critic, which are decided together at the end."""
    return Rule(apply=lambda draft, value: ("mapped", path, ""), fields=(path,))


def _of_critic(path: str, rule: Rule) -> Rule:
    def apply(draft: Draft, value: Any) -> Outcome:
        if draft.given.get("algorithm.adv_estimator", "gae") != "gae":
            return "not needed", "", "only the estimator GAE has a critic"
        return rule.apply(draft, value)

    return Rule(apply=apply, fields=(path,))


def _nodes(draft: Draft, value: Any) -> Outcome:
    draft.put("trainer.replicas", value)
    return "mapped", "trainer.replicas", ""


def _gpus(draft: Draft, value: Any) -> Outcome:
    draft.put("trainer.resources.limits", {GPU: value})
    return "mapped", "trainer.resources", "samplers ask for GPUs of their own"


def _tensor_parallel(draft: Draft, value: Any) -> Outcome:
    draft.put("samplers[0].template.resources.limits", {GPU: value})
    return to(TENSOR).apply(draft, value)


def _kl(draft: Draft) -> None:
    """Where the KL is, how it is estimated, and its coefficient: several options say it."""
    given = draft.given
    in_reward = truth(given.get("algorithm.use_kl_in_reward", False))
    in_loss = truth(given.get("actor.use_kl_loss", False))
    if not in_reward and not in_loss:
        return
    of_reward = given.get("algorithm.kl_ctrl.kl_coef", 0.001)
    of_loss = given.get("actor.kl_loss_coef", 0.001)
    draft.put("algorithm.kl.placement", "Reward" if in_reward else "Loss")
    draft.put("algorithm.kl.coefficient", of_reward if in_reward else of_loss)
    written = given.get("algorithm.kl_penalty") if in_reward else given.get("actor.kl_loss_type")
    if str(written).lower() in KL:
        draft.put("algorithm.kl.estimator", KL[str(written).lower()])
    if in_reward and in_loss:
        draft.put("algorithm.kl.loss.coefficient", of_loss)
    if in_reward and given.get("algorithm.kl_ctrl.type") == "adaptive":
        draft.put("algorithm.kl.controller.kind", "Adaptive")
        draft.put("algorithm.kl.controller.target", given.get("algorithm.kl_ctrl.target_kl", 0.1))
        horizon = given.get("algorithm.kl_ctrl.horizon", 10000)
        draft.put("algorithm.kl.controller.horizon", horizon)


def _finish(draft: Draft) -> None:
    _kl(draft)
    given = draft.given
    if not truth(given.get("algorithm.use_kl_in_reward", False)):
        _explain(draft, "algorithm.kl_", "only with algorithm.use_kl_in_reward")
    if not truth(given.get("actor.use_kl_loss", False)):
        _explain(draft, "actor.kl_loss_", "only with actor.use_kl_loss")
    if draft.get("algorithm.estimator.kind") is None:
        draft.put("algorithm.estimator.kind", "GAE")
        draft.put("algorithm.critic", {})
    if draft.get("data.train[0].uri"):
        for split in ("train", "validation"):
            for source in draft.spec["data"].get(split, []):
                source["columns"] = {"query": "question"}
    draft.name = str(given.get("trainer.experiment_name", draft.name)).lower().replace("_", "-")


def _explain(draft: Draft, prefix: str, note: str) -> None:
    """Say of options whose names begin so that nothing reads them."""
    draft.lines = [
        Line(option=line.option, value=line.value, state="not needed", note=note)
        if FRAMEWORK.name_of(line.option).startswith(prefix)
        else line
        for line in draft.lines
    ]


def name_of(written: str) -> str:
    """The name in the table: the guide leaves ``actor_rollout_ref`` and ``init_args`` out."""
    return written.removeprefix("actor_rollout_ref.").replace("agent.init_args.", "agent.")


MICRO = needless("training.maxTokensPerMicrobatch is Auto: as many tokens as fit the GPU")
CRITIC = "algorithm.critic"
KL_PATH = "algorithm.kl"
FRAMEWORK = Framework(
    rules={
        "agent.use_agent": Rule(apply=_use_agent, fields=("agent.kind",)),
        "agent.agent_type": Rule(apply=_agent_type, fields=("agent.kind",)),
        "agent.model_name_or_path": folder("model.uri", "models"),
        "model.path": folder("model.uri", "models"),
        "agent.template": needless("the tokenizer's own chat template, or agent.chatTemplate"),
        "agent.tools": Rule(
            apply=_tools,
            fields=("agent.builtInTools", "agent.search.url", "agent.tools[].entryPoint"),
            state="by hand",
        ),
        "agent.reward_name": Rule(apply=_reward, fields=("reward.scorers[].kind",)),
        "agent.backend": needless("always asynchronous"),
        "agent.max_turns": to("agent.maxTurns"),
        "agent.num_chains": Rule(apply=_groups, fields=("algorithm.groupSize",)),
        "agent.max_tokens_per_turn": to("agent.sampling.maxTokensPerTurn"),
        "rollout.response_length": Rule(apply=_length, fields=("agent.sampling.maxTokensPerTurn",)),
        "data.max_prompt_length": to("agent.sampling.maxPromptTokens"),
        "data.max_response_length": Rule(
            apply=_length, fields=("agent.sampling.maxTokensPerTurn",)
        ),
        "rollout.n": Rule(apply=_groups, fields=("algorithm.groupSize",)),
        "rollout.temperature": to("agent.sampling.temperature"),
        "actor.clip_ratio": Rule(
            apply=_clip, fields=("algorithm.loss.clipLow", "algorithm.loss.clipHigh")
        ),
        "actor.clip_ratio_low": to("algorithm.loss.clipLow"),
        "actor.clip_ratio_high": to("algorithm.loss.clipHigh"),
        "actor.ppo_epochs": to("training.passesPerStep"),
        "actor.grad_clip": to("training.optimizer.maxGradientNorm"),
        "algorithm.adv_estimator": choice("algorithm.estimator.kind", ESTIMATORS),
        "algorithm.gamma": to("algorithm.estimator.gamma", convert=float),
        "algorithm.lam": to("algorithm.estimator.lam", convert=float),
        "algorithm.use_kl_in_reward": _later(f"{KL_PATH}.placement"),
        "actor.use_kl_loss": _later(f"{KL_PATH}.placement"),
        "actor.kl_loss_coef": _later(f"{KL_PATH}.coefficient"),
        "algorithm.kl_penalty": _later(f"{KL_PATH}.estimator"),
        "actor.kl_loss_type": _later(f"{KL_PATH}.estimator"),
        "algorithm.kl_ctrl.type": _later(f"{KL_PATH}.controller"),
        "algorithm.kl_ctrl.kl_coef": _later(f"{KL_PATH}.coefficient"),
        "algorithm.kl_ctrl.target_kl": _later(f"{KL_PATH}.controller"),
        "algorithm.kl_ctrl.horizon": _later(f"{KL_PATH}.controller"),
        "actor.entropy_coeff": to("algorithm.entropyCoefficient"),
        "critic.model.path": _of_critic(
            f"{CRITIC}.model.uri", folder(f"{CRITIC}.model.uri", "models")
        ),
        "critic.ppo_mini_batch_size": _of_critic(
            f"{CRITIC}.promptsPerUpdate", to(f"{CRITIC}.promptsPerUpdate")
        ),
        "critic.ppo_micro_batch_size_per_gpu": _of_critic(
            f"{CRITIC}.maxTokensPerMicrobatch", needless("by tokens, Auto as the policy's")
        ),
        "trainer.critic_warmup": _of_critic(f"{CRITIC}.warmupSteps", to(f"{CRITIC}.warmupSteps")),
        "data.train_files": folder("data.train[0].uri", "datasets"),
        "data.val_files": folder("data.validation[0].uri", "datasets"),
        "data.train_batch_size": to("training.promptsPerStep"),
        "data.val_batch_size": absent("all validation prompts are queued at once"),
        "actor.ppo_mini_batch_size": Rule(apply=_mini_batch, fields=("training.promptsPerUpdate",)),
        "actor.ppo_micro_batch_size_per_gpu": MICRO,
        "rollout.log_prob_micro_batch_size_per_gpu": MICRO,
        "actor.optim.lr": to("training.optimizer.learningRate"),
        "model.enable_gradient_checkpointing": to("training.gradientCheckpointing", convert=truth),
        "actor.fsdp_config.param_offload": when({"training.offloadParameters": True}),
        "actor.fsdp_config.optimizer_offload": when({"training.offloadOptimizer": True}),
        "ref.fsdp_config.param_offload": when({"training.offloadReference": True}),
        "trainer.total_training_steps": to("training.steps"),
        "trainer.total_epochs": to("training.epochs"),
        "trainer.nnodes": Rule(apply=_nodes, fields=("trainer.replicas",)),
        "trainer.n_gpus_per_node": Rule(apply=_gpus, fields=("trainer.resources",)),
        "trainer.save_freq": _frequency(
            "training.checkpoint.everySteps", "checkpoints are always made: a restart needs them"
        ),
        "trainer.test_freq": _frequency("training.evaluation.everySteps", "the default"),
        "trainer.val_before_train": to("training.evaluation.beforeTraining", convert=truth),
        "trainer.resume_mode": choice(
            "training.checkpoint.resume.mode",
            {"auto": "Auto", "disable": "Never", "resume_path": "From"},
        ),
        "trainer.resume_from_path": by_hand(
            "training.checkpoint.resume.uri", "upload the checkpoint, and name its folder"
        ),
        "trainer.logger": Rule(apply=_logger, fields=("training.tracking.wandb",)),
        "trainer.project_name": to("training.tracking.project"),
        "trainer.experiment_name": to("training.tracking.runName", note="and the job's name"),
        "rollout.name": needless("the engine is SGLang"),
        "rollout.tensor_model_parallel_size": Rule(apply=_tensor_parallel, fields=(TENSOR,)),
        "rollout.gpu_memory_utilization": to("samplers[0].template.engine.memoryFraction"),
    },
    name_of=name_of,
    is_option=lambda name: "." in name or name.startswith(("agent", "data", "trainer")),
    finish=_finish,
)
