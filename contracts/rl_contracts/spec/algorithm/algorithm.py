"""The learning algorithm: advantages and policy loss."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from rl_contracts.spec.algorithm.critic import Critic
from rl_contracts.spec.algorithm.estimator import Estimator, Shaping
from rl_contracts.spec.algorithm.kl import KL
from rl_contracts.spec.algorithm.loss import Loss
from rl_contracts.spec.algorithm.off_policy import OffPolicy
from rl_contracts.spec.base import Model, S3Uri, rule, rules

Teacher = Annotated[S3Uri, WithJsonSchema({"type": "string"})]
"""Its form is checked by the operator alone: two patterns of a URI are long enough."""


class Algorithm(Model):
    """The learning algorithm."""

    model_config = rules(
        rule(
            "(self.estimator.kind in ['REINFORCEPlusPlus', 'GAE', 'ReMax'] && "
            "!self.shaping.dynamicSampling) || self.groupSize >= 2 || has(self.teacher)",
            "estimator.kind or shaping.dynamicSampling compares members: "
            "groupSize must be at least 2",
        ),
        rule(
            "!has(self.estimator.k) || self.estimator.k <= self.groupSize",
            "estimator.k must not exceed groupSize",
        ),
        rule(
            "(self.estimator.kind == 'MaxEnt') == (self.loss.kind == 'MaxEnt')",
            "estimator.kind MaxEnt and loss.kind MaxEnt go together",
        ),
        rule(
            "self.estimator.kind != 'MaxEnt' || [self.shaping].all(s, s.advScaling == 1.0 && "
            "!s.dropZeroAdvantage && !has(s.minimalAdvantage) && !s.balanceSample && "
            "!s.dropTruncated && !s.capFaultyTurns && !s.forceSign)",
            "estimator.kind MaxEnt weighs whole groups: of shaping only overlong, "
            "efficientRewarding and dynamicSampling go with it",
        ),
        rule(
            "self.estimator.kind != 'MaxEnt' || !has(self.kl) || self.kl.placement == 'Loss'",
            "with estimator.kind MaxEnt kl.placement must be Loss",
        ),
        rule(
            "has(self.critic) == (self.estimator.kind == 'GAE')",
            "estimator.kind GAE and the section critic go together",
        ),
        rule(
            "(!self.estimator.kind.matches('^(REIN|GAE)') && "
            "(!has(self.kl) || self.kl.placement == 'Loss')) || "
            "(!self.shaping.dropZeroAdvantage && !has(self.shaping.minimalAdvantage))",
            "shaping.dropZeroAdvantage and minimalAdvantage need an estimator of single groups, "
            "not under kl.placement Reward: use dynamicSampling",
        ),
        rule(
            "self.loss.kind != 'DecoupledPPO' || "
            "!(self.offPolicy.correction.kind in ['TIS', 'IcePop', 'MIS'])",
            "loss.kind DecoupledPPO weighs by p / μ itself: "
            "offPolicy.correction.kind must not, as TIS, IcePop and MIS do",
        ),
    )
    objective: Literal["RL", "SFT", "Distillation", "Sampling", "Evaluation"] = "RL"
    """``SFT`` trains the records' own answers; the last two train nothing."""
    teacher: Teacher | None = None
    """Of Distillation: an s3:// folder."""
    group_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """Rollouts for each prompt."""
    estimator: Estimator = Field(default_factory=Estimator)
    shaping: Shaping = Field(default_factory=Shaping)
    loss: Loss = Field(default_factory=Loss)
    kl: KL | None = None
    """Unset: there is no reference."""
    critic: Critic | None = None
    entropy_coefficient: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight of the bonus for entropy in the loss."""
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
    def supervised(self) -> bool:
        """Whether it learns from demonstrations, so that nothing is sampled."""
        return self.objective == "SFT"
