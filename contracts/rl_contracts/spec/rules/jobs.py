"""Rules of an RLJob that compare several sections, in CEL, for the API server."""

from __future__ import annotations

from collections.abc import Mapping

from rl_contracts.spec.algorithm.algorithm import UNSAMPLED
from rl_contracts.spec.algorithm.estimator import OF_ONE
from rl_contracts.spec.algorithm.off_policy import MAX_WAIT_SECONDS
from rl_contracts.spec.base import listed, rule

MOST_POD_SETS = 8
"""Of a Kueue Workload; the trainer's is one of them."""

OF_SECTIONS = (
    rule(
        "self.training.precision != 'FP16' || !has(self.algorithm.critic)",
        "training.precision is FP16, and a critic's losses are not scaled: set it to BF16 or FP32, "
        "or use an estimator without a critic",
        field="training.precision",
    ),
    rule(
        "!self.training.offloadReference || self.algorithm.objective == 'Distillation' || "
        "(has(self.algorithm.kl) && !has(self.training.lora))",
        "training.offloadReference moves the reference model to host memory, and this job has "
        "none: remove it, or set algorithm.kl without training.lora",
        field="training.offloadReference",
    ),
    rule(
        "!has(self.training.checkpoint.hubRepo) || has(self.data.hub.tokenSecretRef) || "
        "self.data.hub.?trustedPublisher.orValue('') == self.training.checkpoint.hubRepo",
        "training.checkpoint.hubRepo is {self.training.checkpoint.hubRepo}, and uploading needs a "
        "token: set data.hub.tokenSecretRef to one that may write there, or "
        "data.hub.trustedPublisher to that repository",
        field="training.checkpoint.hubRepo",
    ),
    rule(
        "self.networkPolicy == 'RunOnly' || !self.weightSync.transport.relay",
        "weightSync.transport.relay is true, and with networkPolicy None any pod could read "
        "weights from samplers: set relay to false or networkPolicy to RunOnly",
        field="weightSync.transport.relay",
    ),
    rule(
        "self.networkPolicy == 'RunOnly' || "
        "(self.trainer.replicas * self.trainer.?processesPerReplica.orValue(1) == 1 && "
        "self.trainer.?elastic.maxReplicas.orValue(1) == 1)",
        "networkPolicy is None, and any pod could change the gradients that the trainer's "
        "processes send each other: set networkPolicy to RunOnly, or have one trainer process",
        field="networkPolicy",
    ),
    rule(
        "self.training.optimizer.kind != 'AdamW8bit' || "
        "self.trainer.replicas * self.trainer.?processesPerReplica.orValue(1) == 1",
        "training.optimizer.kind AdamW8bit is for a trainer of one process: use AdamW, or set "
        "trainer.replicas and processesPerReplica to 1",
        field="training.optimizer.kind",
    ),
    rule(
        "!has(self.algorithm.critic) || !has(self.training.steps) || "
        "self.algorithm.critic.warmupSteps < self.training.steps",
        "algorithm.critic.warmupSteps must be below training.steps, else the policy is never "
        "trained: {self.algorithm.critic.warmupSteps} is not below {self.training.steps}",
        field="algorithm.critic.warmupSteps",
    ),
    rule(
        "self.algorithm.offPolicy.onStale != 'Wait' || "
        f"self.algorithm.offPolicy.?maxWaitSeconds.orValue({MAX_WAIT_SECONDS}) < "
        "self.lifecycle.progressDeadlineSeconds",
        f"algorithm.offPolicy.maxWaitSeconds, {MAX_WAIT_SECONDS} when unset, must be below "
        "lifecycle.progressDeadlineSeconds, which is {self.lifecycle.progressDeadlineSeconds}: a "
        "step that waits longer is taken for one that hangs",
        field="algorithm.offPolicy.maxWaitSeconds",
    ),
)
"""Rules on options of two sections."""

OF_LORA = (
    rule(
        "!has(self.training.lora) || self.training.lora.experts == 'Adapted' || "
        "self.weightSync.pause == 'Retract'",
        "weightSync.pause is {self.weightSync.pause}, and with training.lora nothing pauses: "
        "running requests keep their adapter; remove pause",
        field="weightSync.pause",
    ),
    rule(
        "!has(self.training.lora) || !has(self.training.lora.quantization) || "
        "!has(self.algorithm.critic) || has(self.algorithm.critic.model)",
        "training.lora.quantization is {self.training.lora.quantization}, and the critic trains "
        "all weights of the model that it starts from, which cannot be quantized: set "
        "algorithm.critic.model or remove quantization",
        field="training.lora.quantization",
    ),
    rule(
        "!has(self.training.lora) || !has(self.algorithm.kl) || "
        "!has(self.algorithm.kl.refreshEverySteps)",
        "algorithm.kl.refreshEverySteps is {self.algorithm.kl.refreshEverySteps}, and with "
        "training.lora the reference is the model without its adapters: remove it, or train all "
        "weights",
        field="algorithm.kl.refreshEverySteps",
    ),
)
"""Rules on what does not go with adapters."""

OF_QUEUE = (
    rule(
        "self.scheduling.provider != 'Kueue' || self.scheduling.samplerQuota == 'None' || "
        f"size(self.samplers) < {MOST_POD_SETS}",
        "spec.samplers has {size(self.samplers)} groups, and a Kueue Workload has at most "
        f"{MOST_POD_SETS} pod sets, of which the trainer is one: have at most {MOST_POD_SETS - 1} "
        "groups",
        field="samplers",
    ),
    rule(
        "self.scheduling.provider != 'Kueue' || self.samplers.all(group, !has(group.poolRef))",
        "spec.samplers[].poolRef does not go with scheduling.provider Kueue, since no queue admits "
        "a shared pool's pods: give the group a template, or set provider to None",
        field="samplers",
    ),
    rule(
        "self.scheduling.provider != 'Kueue' || self.scheduling.samplerQuota != 'MaxReplicas' || "
        "self.samplers.all(group, !has(group.template) || !has(group.template.rollout) || "
        "!has(group.template.rollout.maxSurge) || "
        "string(group.template.rollout.maxSurge) in ['0', '0%'])",
        "spec.samplers[].template.rollout.maxSurge must be 0 with scheduling.provider Kueue: these "
        "pods would come on top of those that the queue admits",
        field="samplers",
    ),
)
"""Rules on what would take more than a queue admits."""

OF_JOB = (
    rule(
        "self.algorithm.objective == 'Evaluation' || !has(self.training.steps) || "
        "!has(self.training.epochs)",
        "training.steps and training.epochs are both set: remove one",
        field="training.epochs",
    ),
    rule(
        "self.algorithm.objective == 'Evaluation' || has(self.training.steps) || "
        "has(self.training.epochs)",
        "neither training.steps nor training.epochs is set: set one",
        field="training",
    ),
    rule(
        "self.algorithm.objective in ['Evaluation', 'Offline'] || has(self.data.train) || "
        "has(self.data.rollouts)",
        "data.train is missing: name at least one source of training data",
        field="data.train",
    ),
    rule(
        "has(self.data.rollouts) == (self.algorithm.objective == 'Offline')",
        "data.rollouts goes with algorithm.objective Offline, which needs it; objective is "
        "{self.algorithm.objective}: set data.rollouts.runId to an earlier run, or remove it",
        field="data.rollouts",
    ),
    rule(
        "!has(self.data.rollouts) || (!has(self.data.train) && size(self.data.validation) == 0 && "
        "size(self.data.test) == 0)",
        "data.rollouts takes the place of data.train, and without samplers nothing is evaluated: "
        "remove data.train, validation and test; a job with objective Evaluation can evaluate the "
        "final model",
        field="data.rollouts",
    ),
    rule(
        "!has(self.data.rollouts) || self.data.rollouts.runId != self.runId",
        "data.rollouts.runId is {self.data.rollouts.runId}, this job's own run: name an earlier "
        "one, or remove spec.runId",
        field="data.rollouts.runId",
    ),
    rule(
        "self.algorithm.objective != 'Evaluation' || "
        "size(self.data.validation) + size(self.data.test) > 0",
        "algorithm.objective Evaluation needs data to evaluate on: set data.validation or "
        "data.test",
        field="data",
    ),
    rule(
        "size(self.data.validation) > 0 || !has(self.training.evaluation.everySteps)",
        "training.evaluation.everySteps is {self.training.evaluation.everySteps} and needs "
        "data.validation: add a source or remove everySteps",
        field="training.evaluation.everySteps",
    ),
    rule(
        "self.weightSync.everySteps <= self.algorithm.offPolicy.maxStaleness + 1",
        "weightSync.everySteps must be at most algorithm.offPolicy.maxStaleness + 1: "
        "{self.weightSync.everySteps} is more than "
        "{self.algorithm.offPolicy.maxStaleness + 1}",
        field="weightSync.everySteps",
    ),
    rule(
        "!has(self.rollouts.completion.minimum) || "
        "self.rollouts.completion.minimum <= self.algorithm.groupSize",
        "rollouts.completion.minimum must not exceed algorithm.groupSize: "
        "{self.rollouts.completion.minimum} is more than {self.algorithm.groupSize}",
        field="rollouts.completion.minimum",
    ),
    rule(
        "!has(self.rollouts.completion.minimum) || "
        "self.rollouts.completion.minimum >= self.algorithm.estimator.?k.orValue(2) || "
        f"self.algorithm.estimator.kind in {listed(OF_ONE)}",
        "rollouts.completion.minimum is {self.rollouts.completion.minimum}, and "
        "algorithm.estimator.kind {self.algorithm.estimator.kind} compares more members: set it to "
        "at least 2, and to at least estimator.k where there is one",
        field="rollouts.completion.minimum",
    ),
    rule(
        "!has(self.algorithm.kl) || !has(self.algorithm.kl.controller.horizon) || "
        "self.training.promptsPerStep * self.algorithm.groupSize < "
        "5 * self.algorithm.kl.controller.horizon",
        "algorithm.kl.controller.horizon is {self.algorithm.kl.controller.horizon}, and a step of "
        "{self.training.promptsPerStep * self.algorithm.groupSize} rollouts could take the "
        "coefficient to 0, from where it never rises: set horizon above a fifth of these rollouts",
        field="algorithm.kl.controller.horizon",
    ),
    rule(
        f"!(self.algorithm.objective in {listed(UNSAMPLED)}) || "
        "size(self.samplers) + size(self.reward.scorers) == 0",
        "algorithm.objective {self.algorithm.objective} uses no samplers and no scorers: remove "
        "spec.samplers and spec.reward.scorers",
        field="algorithm.objective",
    ),
    rule(
        f"self.algorithm.objective in {listed(UNSAMPLED)} || size(self.samplers) > 0",
        "spec.samplers is empty, and algorithm.objective {self.algorithm.objective} needs "
        "samplers: add a group",
        field="samplers",
    ),
    rule(
        f"self.algorithm.objective in {listed(UNSAMPLED)} || size(self.reward.scorers) > 0",
        "spec.reward.scorers is empty, and algorithm.objective {self.algorithm.objective} needs "
        "rewards: add a scorer",
        field="reward.scorers",
    ),
    rule(
        "self.runId == oldSelf.runId && self.managedBy == oldSelf.managedBy",
        "spec.managedBy and spec.runId cannot change: make a new job",
    ),
)
"""Rules on how long a run is, on what it samples, and on what it is evaluated with."""


ONLY_RAISED = {"training": ("steps", "epochs")}
"""Fields of fixed sections that may be raised while the job is suspended."""


def fixed(sections: Mapping[str, Mapping[str, bool]], unless: str, message: str) -> dict[str, str]:
    """One rule for all of these sections, whose message names the section that was changed.

    A write changes either the spec or the status, and most writes are of a status. So the sections
    are compared last: when the status has changed, they have not, and comparing them would take a
    seventh of the API server's time for each write. Comparing the statuses takes a tenth of it, so
    it comes after what needs no comparison. Naming each field in the message would take 15 kB of
    the CRD, so only a section that is compared by fields names them.

    Args:
        sections: each with its fields, as manifests name them, where it is compared by fields; true
            are those that may be unset.
        unless: CEL that ends with `` || `` and allows every change.
        message: follows the path of the section or field.
    """
    equal = {
        path: _equal(path, optional=optional)
        for section, fields in sections.items()
        for path, optional in (
            {f"{section}.{field}": optional for field, optional in fields.items()}
            or {section: False}
        ).items()
    }
    same = " && ".join(equal.values())
    named = "".join(f"!{expression} ? '{path}' : " for path, expression in equal.items())
    return {
        "rule": f"{unless}oldSelf.?status.attempt.orValue(0) < 1 || "
        f"self.status != oldSelf.status || ({same})",
        "messageExpression": f"'spec.%s {message}'.format([{named}''])",
    }


def _equal(path: str, *, optional: bool) -> str:
    """CEL: a part of the spec is as before; not by ``.?``, whose cost counts as unbounded."""
    now, before = f"self.spec.{path}", f"oldSelf.spec.{path}"
    if not optional:
        return f"({now} == {before})"
    return f"(has({now}) == has({before}) && (!has({now}) || {now} == {before}))"


def only_raised(section: str, field: str) -> dict[str, str]:
    """The rule that a field of a fixed section can only be raised, while the job is suspended."""
    now, before = f"self.spec.{section}", f"oldSelf.spec.{section}"
    return {
        "rule": f"{_equal(f'{section}.{field}', optional=True)} || "
        f"oldSelf.?status.attempt.orValue(0) < 1 || (has({now}.{field}) && "
        f"has({before}.{field}) && "
        f"{now}.{field} > {before}.{field} && oldSelf.spec.suspend && "
        "oldSelf.?status.phase.orValue('') == 'Suspended')",
        "message": f"spec.{section}.{field} can only be raised, and only while the job is "
        "suspended, once the trainer has been started: set spec.suspend first, or make a new job",
    }
