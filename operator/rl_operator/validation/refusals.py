"""What the API server's rules cannot say: options that could not be honoured, refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rl_contracts.documents.sampler import Sampler
from rl_contracts.errors import Refusal
from rl_contracts.spec import scorer_kinds, vision_features
from rl_contracts.spec.agent.user_code import Code
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.correction import WEIGHING
from rl_contracts.spec.algorithm.loss import LOSS_KINDS
from rl_contracts.spec.base import EnvironmentVariable
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import SamplerTemplate
from rl_operator.kube.redact import redacted
from rl_operator.kube.settings import DEFAULT_RULES, JobRules
from rl_operator.kube.weak_memo import WeakMemo
from rl_operator.render import overrides
from rl_operator.render.samplers import programs
from rl_operator.state import pool_ref
from rl_operator.validation import (
    addresses,
    colocated,
    engine_arguments,
    engine_options,
    job_rules,
    objectives,
    parallelism,
    shared_memory,
    unused_options,
)

CHAT_TEMPLATE_RESERVED = (
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "conversation",
    "documents",
    "max_length",
    "messages",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tokenizer_kwargs",
    "tools",
    "truncation",
)
"""Arguments of transformers' ``apply_chat_template``, and what it hands to templates."""


def of_spec(
    spec: RLJobSpec, rules: JobRules = DEFAULT_RULES, *, started: bool = False
) -> Iterator[Refusal]:
    """Refusals of a spec that do not depend on the cluster's state; ``started`` as in job_rules."""
    yield from _refusals_by_spec(spec)
    yield from job_rules.of_spec(spec, rules, started=started)


def _of_spec(spec: RLJobSpec) -> Iterator[Refusal]:
    yield from objectives.unread(spec)
    yield from unused_options.of_spec(spec)
    yield from addresses.of_spec(spec)
    yield from vision_features.of_images(spec)
    yield from _of_chat_template(spec)
    yield from _of_importance_cap(spec.algorithm)
    yield from _of_processes(spec)
    yield from shared_memory.refusals(spec)
    yield from parallelism.refusals(spec)
    yield from colocated.refusals(spec)
    yield from _of_environment("spec.trainer.env", spec.trainer.env, trainer=True)
    yield from overrides.refusals("spec.trainer.podTemplate", spec.trainer.pod_template)
    yield from scorer_kinds.refusals(spec)
    yield from _of_code(spec)
    for index, group in enumerate(spec.samplers):
        yield from _of_template(
            pool_ref.place(index, group),
            group.template,
            corrected=spec.algorithm.off_policy.correction.kind in WEIGHING,
        )


_refusals_by_spec: WeakMemo[RLJobSpec, tuple[Refusal, ...]] = WeakMemo(
    lambda spec: tuple(_of_spec(spec))
)
"""Each reconcile asks, mostly about the same spec."""


def of_template(
    at: str, template: SamplerTemplate, rules: JobRules = DEFAULT_RULES
) -> Iterator[Refusal]:
    """Refusals of a sampler template of a shared pool; ``at`` is its path."""
    yield from _of_template(at, template, corrected=False)
    yield from job_rules.of_template(at, template, rules)


def _of_template(at: str, template: SamplerTemplate, *, corrected: bool) -> Iterator[Refusal]:
    """Refusals of a template; ``corrected`` as in ``engine_arguments``."""
    yield from _of_environment(f"{at}.env", template.env, trainer=False)
    yield from _of_environment(f"{at}.engine.env", template.engine.env, trainer=False)
    yield from overrides.refusals(f"{at}.podTemplate", template.pod_template)
    yield from engine_arguments.refusals(
        f"{at}.engine.args", template.engine.args, corrected=corrected
    )
    yield from engine_options.of_template(at, template)
    yield from unused_options.of_template(at, template)


def of_samplers(spec: RLJobSpec, samplers: Iterable[Sampler]) -> Iterator[Refusal]:
    """Refusals by registered samplers, and scorers that they do not know."""
    known = list(samplers)
    for sampler in known:
        for refusal in sampler.refusals:
            yield replace(refusal, message=redacted(refusal.message))
    yield from _of_scorers(spec, known)


def _of_chat_template(spec: RLJobSpec) -> Iterator[Refusal]:
    """Arguments that would replace what every prompt is rendered with."""
    for name, value in (spec.agent.chat_template_arguments or {}).items():
        if name in CHAT_TEMPLATE_RESERVED or not name.isidentifier():
            yield Refusal(
                field=f"spec.agent.chatTemplateArguments.{name}",
                value=str(value)[:100],
                reason="OptionUnusable",
                message="The samplers set it themselves."
                if name.isidentifier()
                else "It is not a name that a chat template can read.",
                remedy="Remove it.",
            )


def _of_importance_cap(algorithm: Algorithm) -> Iterator[Refusal]:
    """An ImportanceCap whose bounds are never inside those of the loss.

    The loss already stops tokens beyond 1 ± clip, and the correction leaves out those beyond
    1 ± clip * cap * e^(-decay * age), with an age of at most ``maxStaleness``.
    """
    correction, loss = algorithm.off_policy.correction, algorithm.loss
    if correction.kind != "ImportanceCap" or not LOSS_KINDS[loss.kind].stops:
        return
    oldest, cap = algorithm.off_policy.max_staleness, correction.range[1]
    decay = correction.decay or 0.0
    if not correction.strict_in_bound and cap * math.exp(-decay * oldest) < 1:
        return
    helps = f"decay above {math.log(cap) / oldest:.2g}" if oldest else "maxStaleness and decay"
    yield Refusal(
        field="spec.algorithm.offPolicy.correction.kind",
        value=correction.kind,
        reason="OptionUnused",
        message=f"All tokens that it would leave out have no gradient under loss.kind {loss.kind}.",
        remedy=f"Set {helps} without strictInBound, another loss.kind or another correction.",
    )


def _of_processes(spec: RLJobSpec) -> Iterator[Refusal]:
    """Processes that would have no GPU, and GPUs that would have no process."""
    trainer = spec.trainer
    gpus, processes = trainer.gpus, trainer.processes
    if gpus and processes != gpus:
        idle = processes < gpus
        yield Refusal(
            field="spec.trainer.processesPerReplica",
            value=str(processes),
            reason="OptionUnused" if idle else "OptionUnusable",
            message=f"A trainer pod asks for {gpus} GPUs, and each process uses one: "
            + ("the others would stay idle." if idle else "some processes would have none."),
            remedy=f"Remove it, or set it to {gpus}.",
        )
    if spec.network_policy == "None" and trainer.replicas * processes > 1:
        yield Refusal(
            field="spec.networkPolicy",
            value="None",
            reason="OptionUnusable",
            message=f"The trainer has {trainer.replicas * processes} processes, and any pod could "
            "change the gradients that they send each other.",
            remedy="Set it to RunOnly, or have a trainer of one replica with one GPU.",
        )


def _of_code(spec: RLJobSpec) -> Iterator[Refusal]:
    yield from _of_environment("spec.code.env", spec.code.env, trainer=False)
    program = programs.program_of(spec)
    if program is not None:
        yield from _of_environment("spec.agent.program.env", program.env, trainer=False)
    if spec.agent.environment is not None:
        at = "spec.agent.environment.env"
        yield from _of_environment(at, spec.agent.environment.env, trainer=False)
    if spec.needs_code_container or spec.algorithm.unsampled:
        return
    if program is not None:
        yield from _not_in_a_pod(spec.code)
    elif spec.code != Code():
        yield Refusal(
            field="spec.code",
            value="set",
            reason="OptionUnused",
            message="Nothing in this job runs in the container code.",
            remedy="Remove the section, or name your code by an entryPoint.",
        )


def _not_in_a_pod(code: Code) -> Iterator[Refusal]:
    """Options of a container that pods of programs do not have; they use the rest of ``code``."""
    for name in ("env", "env_from", "resources"):
        if getattr(code, name) != getattr(Code(), name):
            alias = Code.model_fields[name].alias or name
            yield Refusal(
                field=f"spec.code.{alias}",
                value="set",
                reason="OptionUnused",
                message="Nothing in this job runs in the container code: agent.program runs in "
                "pods of its own.",
                remedy=f"Use spec.agent.program.{alias}.",
            )


def _of_scorers(spec: RLJobSpec, samplers: Iterable[Sampler]) -> Iterator[Refusal]:
    for sampler in samplers:
        for index, scorer in enumerate(spec.reward.scorers):
            if scorer.kind not in sampler.scorers:
                known = ", ".join(sorted(sampler.scorers)) or "none"
                yield Refusal(
                    field=f"spec.reward.scorers[{index}].kind",
                    value=scorer.kind,
                    reason="ScorerUnknown",
                    message="The samplers know no scorer of this kind.",
                    remedy=f"Use one of: {known}.",
                )


def _of_environment(
    at: str, variables: list[EnvironmentVariable], *, trainer: bool
) -> Iterator[Refusal]:
    for index, variable in enumerate(variables):
        if overrides.reserved_variable(variable.name, trainer=trainer):
            yield Refusal(
                field=f"{at}[{index}].name",
                value=variable.name,
                reason="VariableReserved",
                message="The operator sets this variable itself.",
                remedy="Remove it.",
            )
