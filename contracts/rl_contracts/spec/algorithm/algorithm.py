"""The learning algorithm: advantages and policy loss."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.algorithm.correction import WEIGHING
from rl_contracts.spec.algorithm.critic import Critic
from rl_contracts.spec.algorithm.estimator import OF_ONE, OF_WHOLE_STEP, Estimator, Shaping
from rl_contracts.spec.algorithm.experts import Experts
from rl_contracts.spec.algorithm.kl import KL
from rl_contracts.spec.algorithm.loss import LOSS_KINDS, Loss
from rl_contracts.spec.algorithm.off_policy import OffPolicy
from rl_contracts.spec.base import Model, S3Uri, listed, rule, rules

CRITIC_FIELD = "spec.algorithm.critic.model.uri"
TEACHER_FIELD = "spec.algorithm.teacher"
UNSAMPLED = ("SFT", "Offline")
"""Objectives without samplers."""


def _without_ratio() -> str:
    return listed([name for name, kind in LOSS_KINDS.items() if not kind.clips_ratio])


def _weighing_losses() -> str:
    return listed([name for name, kind in LOSS_KINDS.items() if kind.weighs])


class Algorithm(Model):
    """What is learned and how: objective, advantages, loss, KL and off-policy correction."""

    model_config = rules(
        rule(
            f"(self.estimator.kind in {listed(OF_ONE)} && "
            "!self.shaping.dynamicSampling) || self.groupSize >= 2 || has(self.teacher)",
            "algorithm.groupSize must be at least 2: estimator.kind or shaping.dynamicSampling "
            "compares the rollouts of a group",
            field="groupSize",
        ),
        rule(
            "!has(self.estimator.k) || self.estimator.k <= self.groupSize",
            "algorithm.estimator.k must not exceed groupSize: {self.estimator.k} is more than "
            "{self.groupSize}",
            field="estimator.k",
        ),
        rule(
            "(self.estimator.kind == 'MaxEnt') == (self.loss.kind == 'MaxEnt')",
            "algorithm.estimator.kind MaxEnt and loss.kind MaxEnt go together: set both or "
            "neither; they are {self.estimator.kind} and {self.loss.kind}",
        ),
        rule(
            "self.estimator.kind != 'MaxEnt' || [self.shaping].all(s, s.advScaling == 1.0 && "
            "!s.dropZeroAdvantage && !has(s.minimalAdvantage) && !s.skipNonPositiveAdvantage && "
            "!s.balanceSample && !s.dropTruncated && !s.capFaultyTurns && !s.forceSign)",
            "algorithm.estimator.kind MaxEnt weighs whole groups: of shaping only overlong, "
            "efficientRewarding and dynamicSampling go with it; remove the others",
            field="shaping",
        ),
        rule(
            "!has(self.estimator.maxent) || "
            "self.estimator.maxent.qEpsilon * double(self.groupSize) < 1.0",
            "algorithm.estimator.maxent.qEpsilon is {self.estimator.maxent.qEpsilon}: with "
            "groupSize {self.groupSize} the rewards would count for nothing; set it below "
            "1 / groupSize",
            field="estimator.maxent.qEpsilon",
        ),
        rule(
            "self.estimator.kind != 'MaxEnt' || !has(self.kl) || self.kl.placement == 'Loss'",
            "with algorithm.estimator.kind MaxEnt kl.placement must be Loss",
            field="kl.placement",
        ),
        rule(
            "self.estimator.kind != 'MaxRL' || ((!has(self.kl) || self.kl.placement == 'Loss') && "
            "!has(self.shaping.overlong) && !has(self.shaping.efficientRewarding))",
            "algorithm.estimator.kind MaxRL divides by the mean reward, which must not become "
            "negative: use kl.placement Loss, and neither shaping.overlong nor efficientRewarding",
            field="estimator.kind",
        ),
        rule(
            "has(self.critic) == (self.estimator.kind == 'GAE')",
            "algorithm.estimator.kind GAE and the section critic go together: set both or "
            "neither; estimator.kind is {self.estimator.kind}",
            field="critic",
        ),
        rule(
            f"(!(self.estimator.kind in {listed(OF_WHOLE_STEP)}) && "
            "(!has(self.kl) || self.kl.placement == 'Loss')) || "
            "[self.shaping].all(s, !s.dropZeroAdvantage && !has(s.minimalAdvantage) && "
            "!s.skipNonPositiveAdvantage)",
            "algorithm.shaping.dropZeroAdvantage, minimalAdvantage and skipNonPositiveAdvantage "
            "need an estimator of single groups, not under kl.placement Reward: use "
            "dynamicSampling",
            field="shaping",
        ),
        rule(
            "self.offPolicy.onStale != 'Withhold' || self.groupSize >= 2",
            "algorithm.offPolicy.onStale Withhold leaves a member out of its group, and groupSize "
            "is {self.groupSize}: raise groupSize, or use Drop or Wait",
            field="offPolicy.onStale",
        ),
        rule(
            "self.offPolicy.onStale != 'Withhold' || (self.estimator.kind != 'MaxEnt' && "
            "[self.shaping].all(s, !s.dropZeroAdvantage && !has(s.minimalAdvantage) && "
            "!s.skipNonPositiveAdvantage && !s.balanceSample && !s.dropTruncated))",
            "algorithm.offPolicy.onStale Withhold goes neither with estimator.kind MaxEnt, which "
            "weighs whole groups, nor with filters of members (dropZeroAdvantage, "
            "minimalAdvantage, skipNonPositiveAdvantage, balanceSample, dropTruncated): remove "
            "them, or use Drop or Wait",
            field="offPolicy.onStale",
        ),
        rule(
            f"!(self.loss.kind in {_weighing_losses()}) || "
            f"!(self.offPolicy.correction.kind in {listed(WEIGHING)})",
            "algorithm.loss.kind {self.loss.kind} already corrects for the older policy that "
            "sampled a token, and offPolicy.correction.kind {self.offPolicy.correction.kind} would "
            "do it again: remove correction, or use another loss",
            field="offPolicy.correction.kind",
        ),
        rule(
            f"!(self.loss.kind in {_without_ratio()}) || "
            "self.offPolicy.correction.kind != 'ImportanceCap'",
            "algorithm.offPolicy.correction.kind ImportanceCap widens the clip of the ratio, and "
            "loss.kind {self.loss.kind} has none: use another correction or another loss",
            field="offPolicy.correction.kind",
        ),
        rule(
            "has(self.teacher) == (self.objective == 'Distillation')",
            "algorithm.teacher goes with objective Distillation, which needs it; objective is "
            "{self.objective}: set teacher to the s3:// folder of a model with the same "
            "tokens, or remove it",
            field="teacher",
        ),
        rule(
            "self.objective != 'Offline' || self.estimator.kind != 'ReMax'",
            "algorithm.estimator.kind ReMax needs a greedy rollout of each prompt, and objective "
            "Offline samples none: use another estimator",
            field="estimator.kind",
        ),
    )
    objective: Literal["RL", "Offline", "SFT", "Distillation", "Sampling", "Evaluation"] = "RL"
    """What the job does. `RL`: learn from rewards. `Offline`: the same from the stored rollouts of
    an earlier run. `SFT`: learn the records' own answers. `Distillation`: learn from a teacher.
    `Sampling`: store rollouts. `Evaluation`: evaluate. The last two train nothing."""
    teacher: S3Uri | None = None
    """Folder `s3://<bucket>/<path>` of the teacher model; it must have the policy's tokens. Only
    with objective Distillation."""
    group_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """Number of rollouts for each prompt. At least 2 where the estimator compares them."""
    estimator: Estimator = Field(default_factory=Estimator)
    shaping: Shaping = Field(default_factory=Shaping)
    loss: Loss = Field(default_factory=Loss)
    kl: KL | None = None
    """Penalty on the divergence from a reference model. Unset: no reference and no penalty."""
    critic: Critic | None = None
    """Value model of estimator GAE. Required with it, refused with any other."""
    entropy_coefficient: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight of the entropy bonus in the loss: higher keeps the policy more random."""
    experts: Experts = Field(default_factory=Experts)
    off_policy: OffPolicy = Field(default_factory=OffPolicy)

    @property
    def distils(self) -> bool:
        """Whether it learns a teacher's distributions, so that no reward is trained."""
        return self.objective == "Distillation"

    @property
    def divergence(self) -> KL | None:
        """From what the policy is held near, if anything: under Distillation the teacher.

        The reverse KL summed over the vocabulary is then the whole loss.
        """
        return KL(estimator="Full", coefficient=1.0) if self.distils else self.kl

    @property
    def other_models(self) -> dict[str, str]:
        """URIs of models other than the policy's, by the field that names each."""
        models = {}
        if self.critic is not None and self.critic.model is not None:
            models[CRITIC_FIELD] = self.critic.model.uri
        if self.distils and self.teacher is not None:
            models[TEACHER_FIELD] = self.teacher
        return models

    @property
    def supervised(self) -> bool:
        """Whether it learns from demonstrations, so that nothing is sampled."""
        return self.objective == "SFT"

    @property
    def unsampled(self) -> bool:
        """Whether nothing is sampled: it learns from demonstrations or from stored rollouts."""
        return self.objective in UNSAMPLED
