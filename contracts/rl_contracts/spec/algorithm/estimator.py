"""How rewards become advantages, and what is done to both."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import NUMBER, Model, rule, rules


class TauTuning(Model):
    """Moves tau so that the weights keep an entropy."""

    model_config = rules(
        rule("self.minimum <= self.maximum", "tuneTau.minimum must not exceed maximum")
    )
    target_entropy: Annotated[float, Field(gt=0, le=10), NUMBER]
    """Of a group's weights, in nats."""
    learning_rate: Annotated[float, Field(gt=0, le=10), NUMBER] = 0.01
    minimum: Annotated[float, Field(gt=0, le=1000), NUMBER] = 0.01
    maximum: Annotated[float, Field(gt=0, le=1000), NUMBER] = 10.0


class MaxEnt(Model):
    """Options of estimator MaxEnt."""

    tau: Annotated[float, Field(gt=0, le=1000), NUMBER] = 1.0
    """Temperature of the weights, at first."""
    q_temperature: Annotated[float, Field(gt=0, le=1000), NUMBER] = 1.0
    q_epsilon: Annotated[float, Field(gt=0, lt=1), NUMBER] = 1e-6
    """Least target weight."""
    length_normalize_reference: bool = True
    tune_tau: TauTuning | None = None
    """Unset: tau is fixed."""


class Estimator(Model):
    """Turns rewards into advantages."""

    model_config = rules(
        rule(
            "(!has(self.gamma) && !self.perTurn) || self.kind in ['REINFORCEPlusPlus', 'GAE']",
            "estimator.gamma is for kinds REINFORCEPlusPlus and GAE, as is perTurn",
        ),
        rule(
            "!has(self.lam) || self.kind == 'GAE'",
            "estimator.lam is for kind GAE",
        ),
        rule(
            "has(self.k) == (self.kind == 'PassAtK')",
            "estimator.k goes with kind PassAtK alone",
        ),
        rule(
            "!has(self.maxent) || self.kind == 'MaxEnt'",
            "estimator.maxent is for kind MaxEnt",
        ),
    )
    kind: Literal[
        "GRPO",
        "DrGRPO",
        "RLOO",
        "ReMax",
        "REINFORCEPlusPlus",
        "REINFORCEPlusPlusBaseline",
        "OPO",
        "PassAtK",
        "GAE",
        "MaxEnt",
    ] = "GRPO"
    gamma: Annotated[float, Field(gt=0, le=1)] | None = None
    """Discount for each token; unset: 1."""
    lam: Annotated[float, Field(ge=0, le=1)] | None = None
    """GAE's λ; unset: 1."""
    per_turn: bool = False
    """gamma and lam are for each turn."""
    k: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Best of how many counts."""
    maxent: MaxEnt | None = None

    @property
    def weighting(self) -> MaxEnt:
        """MaxEnt's options in force."""
        return self.maxent or MaxEnt()

    @property
    def smoothing(self) -> float:
        """The λ in force."""
        return 1.0 if self.lam is None else self.lam

    @property
    def discount(self) -> float:
        """The discount in force."""
        return 1.0 if self.gamma is None else self.gamma


class Overlong(Model):
    """DAPO's soft penalty for long responses."""

    model_config = rules(
        rule(
            "self.bufferTokens <= self.maxTokens",
            "overlong.bufferTokens must not exceed maxTokens",
        )
    )
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)]
    """Generated tokens at which the penalty is whole."""
    buffer_tokens: Annotated[int, Field(ge=1, le=1_048_576)]
    """It grows over so many tokens before."""
    factor: Annotated[float, Field(gt=0, le=100), NUMBER] = 1.0
    """The whole penalty."""


class Shaping(Model):
    """Of rewards before the estimator, advantages after it."""

    model_config = rules(
        rule(
            "!has(self.minRewardSpread) || self.dynamicSampling",
            "shaping.minRewardSpread needs dynamicSampling: true",
        ),
        rule(
            "!has(self.minimalAdvantage) || !self.dropZeroAdvantage",
            "shaping.minimalAdvantage drops zero advantages too: leave dropZeroAdvantage out",
        ),
    )
    overlong: Overlong | None = None
    efficient_rewarding: Annotated[float, Field(gt=0, le=10), NUMBER] | None = None
    """Largest bonus for few turns among right answers and for many among wrong ones."""
    dynamic_sampling: bool = False
    """Groups of equal rewards are replaced by other prompts."""
    min_reward_spread: Annotated[float, Field(gt=0, le=1000), NUMBER] | None = None
    """So are groups whose rewards differ by less."""
    balance_sample: bool = False
    """At most two right answers more than wrong ones, and one wrong more than right."""
    drop_truncated: bool = False
    """Rollouts that a token limit ended are not trained."""
    cap_faulty_turns: bool = False
    """Malformed and repeated turns get no advantage above 0."""
    force_sign: bool = False
    """Right answers get none below 0, wrong ones none above."""
    adv_scaling: Annotated[float, Field(gt=0, le=1000), NUMBER] = 1.0
    drop_zero_advantage: bool = False
    minimal_advantage: Annotated[float, Field(gt=0, le=1000), NUMBER] | None = None
    """Rollouts of a smaller absolute advantage are not trained."""

    @property
    def filters_members(self) -> bool:
        """Whether it leaves out single rollouts of a group."""
        return (
            self.balance_sample
            or self.drop_truncated
            or self.drop_zero_advantage
            or self.minimal_advantage is not None
        )
