"""How rewards become advantages, and what is done to both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, either, listed, only_of, rule, rules

EstimatorName = Literal[
    "GRPO",
    "GRPOBatchStd",
    "DrGRPO",
    "RLOO",
    "ReMax",
    "REINFORCEPlusPlus",
    "REINFORCEPlusPlusBaseline",
    "OPO",
    "PassAtK",
    "PassAtKStd",
    "MaxRL",
    "RAE",
    "GAE",
    "MaxEnt",
]


@dataclass(frozen=True, slots=True)
class EstimatorKind:
    """What is true of one kind of estimator. Rules follow from it."""

    compares: bool = True
    """Whether it compares the members of a group, so that a group needs two."""
    whole_step: bool = False
    """Whether an advantage depends on other groups of the step, so that no member may be left out
    by its advantage: a group by itself does not know it."""
    reads: tuple[str, ...] = ()
    """Options that may be set."""


ESTIMATOR_KINDS: Mapping[EstimatorName, EstimatorKind] = MappingProxyType(
    {
        "GRPO": EstimatorKind(),
        "GRPOBatchStd": EstimatorKind(whole_step=True),
        "DrGRPO": EstimatorKind(),
        "RLOO": EstimatorKind(),
        "ReMax": EstimatorKind(compares=False),
        "REINFORCEPlusPlus": EstimatorKind(
            compares=False, whole_step=True, reads=("gamma", "perTurn")
        ),
        "REINFORCEPlusPlusBaseline": EstimatorKind(whole_step=True),
        "OPO": EstimatorKind(),
        "PassAtK": EstimatorKind(reads=("k",)),
        "PassAtKStd": EstimatorKind(reads=("k",)),
        "MaxRL": EstimatorKind(),
        "RAE": EstimatorKind(compares=False, whole_step=True, reads=("baselineDecay",)),
        "GAE": EstimatorKind(compares=False, whole_step=True, reads=("gamma", "lam", "perTurn")),
        "MaxEnt": EstimatorKind(reads=("maxent",)),
    }
)
"""Every estimator by its name in the manifest."""
OF_ONE = tuple(name for name, kind in ESTIMATOR_KINDS.items() if not kind.compares)
OF_WHOLE_STEP = tuple(name for name, kind in ESTIMATOR_KINDS.items() if kind.whole_step)


def _read_by(option: str) -> tuple[EstimatorName, ...]:
    """Kinds that read an option."""
    return tuple(name for name, kind in ESTIMATOR_KINDS.items() if option in kind.reads)


class TauTuning(Model):
    """Moves tau during training so that the group weights keep a given entropy."""

    model_config = rules(
        rule(
            "self.minimum <= self.maximum",
            "tuneTau.minimum must not exceed maximum: {self.minimum} is more than {self.maximum}",
            field="minimum",
        )
    )
    target_entropy: Annotated[float, Field(gt=0, le=10)]
    """Mean entropy of a group's weights to keep, in nats."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.01
    """How fast log tau follows the difference from targetEntropy, per step."""
    minimum: Annotated[float, Field(gt=0, le=1000)] = 0.01
    """Smallest value that tau may take."""
    maximum: Annotated[float, Field(gt=0, le=1000)] = 10.0
    """Largest value that tau may take."""


class MaxEnt(Model):
    """Options of estimator MaxEnt. Formulas: docs/reference/algorithms.md."""

    tau: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Temperature of the group weights, with tuneTau only at the start. Smaller is sharper."""
    q_temperature: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Temperature of the softmax over rewards that gives the target weights."""
    q_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    """Smallest target weight of a member; must be below 1 / algorithm.groupSize."""
    length_normalize_reference: bool = True
    """Whether the reference's log-probability is the mean of a sequence's tokens instead of the
    sum."""
    tune_tau: TauTuning | None = None
    """Adapts tau during training. Unset: tau is fixed."""


class Estimator(Model):
    """How rewards become advantages. Formulas and papers: docs/reference/algorithms.md."""

    model_config = rules(
        only_of("gamma", _read_by("gamma"), "estimator"),
        only_of("lam", _read_by("lam"), "estimator"),
        only_of("k", _read_by("k"), "estimator"),
        only_of("baselineDecay", _read_by("baselineDecay"), "estimator"),
        only_of("maxent", _read_by("maxent"), "estimator"),
        rule(
            f"!self.perTurn || self.kind in {listed(_read_by('perTurn'))}",
            f"estimator.perTurn is for kind {either(_read_by('perTurn'))}, and kind is "
            "{self.kind}: remove perTurn or change kind",
            field="perTurn",
        ),
        rule(
            f"!(self.kind in {listed(_read_by('k'))}) || has(self.k)",
            "estimator.k goes with kind {self.kind}, which needs it: set k",
            field="k",
        ),
    )
    kind: EstimatorName = "GRPO"
    """Formula of the advantages. `GRPO` compares the rewards of a group; `REINFORCEPlusPlus`,
    `GAE`, `RAE` and `ReMax` also take groups of one."""
    gamma: Annotated[float, Field(gt=0, le=1)] | None = None
    """Discount of later rewards for each token, or each turn with perTurn. For REINFORCEPlusPlus
    and GAE. Unset: 1."""
    lam: Annotated[float, Field(ge=0, le=1)] | None = None
    """GAE's λ: 0 trusts the critic, 1 the rewards. For GAE. Unset: 1."""
    per_turn: bool = False
    """Whether gamma and lam count turns instead of tokens. For REINFORCEPlusPlus and GAE."""
    k: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Number of members whose best answer counts; at most algorithm.groupSize. Required with
    PassAtK and PassAtKStd, refused with any other kind."""
    baseline_decay: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of a data source's baseline that a rollout leaves; the rest is its reward. For RAE.
    Unset: 0.95."""
    maxent: MaxEnt | None = None
    """Options of kind MaxEnt. Unset: their defaults."""

    @property
    def members(self) -> int:
        """Members of a group that it compares at least."""
        return self.k or (2 if ESTIMATOR_KINDS[self.kind].compares else 1)

    @property
    def weighting(self) -> MaxEnt:
        """MaxEnt's options in force."""
        return self.maxent or MaxEnt()

    @property
    def smoothing(self) -> float:
        """The λ in force."""
        return 1.0 if self.lam is None else self.lam

    @property
    def memory(self) -> float:
        """RAE's α in force."""
        return 0.95 if self.baseline_decay is None else self.baseline_decay

    @property
    def discount(self) -> float:
        """The discount in force."""
        return 1.0 if self.gamma is None else self.gamma


class Overlong(Model):
    """DAPO's soft penalty on long responses."""

    model_config = rules(
        rule(
            "self.bufferTokens <= self.maxTokens",
            "overlong.bufferTokens must not exceed maxTokens: {self.bufferTokens} is more than "
            "{self.maxTokens}",
            field="bufferTokens",
        )
    )
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)]
    """Number of generated tokens from which on the whole penalty applies."""
    buffer_tokens: Annotated[int, Field(ge=1, le=1_048_576)]
    """Number of tokens before maxTokens over which the penalty grows linearly from 0."""
    factor: Annotated[float, Field(gt=0, le=100)] = 1.0
    """The whole penalty, taken from the reward."""


class Shaping(Model):
    """Changes of rewards and advantages around the estimator, and which rollouts are left out."""

    model_config = rules(
        rule(
            "!has(self.minRewardSpread) || self.dynamicSampling",
            "shaping.minRewardSpread needs dynamicSampling: true; set it or remove minRewardSpread",
            field="minRewardSpread",
        ),
        rule(
            "!has(self.minimalAdvantage) || !self.dropZeroAdvantage",
            "shaping.minimalAdvantage drops zero advantages too: remove dropZeroAdvantage",
            field="dropZeroAdvantage",
        ),
        rule(
            "!self.skipNonPositiveAdvantage || !self.dropZeroAdvantage",
            "shaping.skipNonPositiveAdvantage drops zero advantages too: remove dropZeroAdvantage",
            field="dropZeroAdvantage",
        ),
    )
    overlong: Overlong | None = None
    """Soft penalty on long responses. Unset: none."""
    efficient_rewarding: Annotated[float, Field(gt=0, le=10)] | None = None
    """Largest bonus for few turns among right answers, and for many turns among wrong ones
    (AgentRL). Unset: none."""
    dynamic_sampling: bool = False
    """Whether a group whose rewards are all equal is replaced by another prompt (DAPO)."""
    min_reward_spread: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Groups whose largest and smallest reward differ by less are replaced too. Needs
    dynamicSampling. Unset: only groups of equal rewards."""
    balance_sample: bool = False
    """Whether rollouts are left out until a group has at most two right answers more than wrong
    ones, and at most one wrong answer more than right ones."""
    drop_truncated: bool = False
    """Whether rollouts that a token limit cut are left out of training."""
    cap_faulty_turns: bool = False
    """Whether malformed and repeated turns get no advantage above 0 (AgentRL)."""
    force_sign: bool = False
    """Whether right answers get no advantage below 0 and wrong ones none above 0 (AgentRL)."""
    adv_scaling: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Factor on all advantages."""
    drop_zero_advantage: bool = False
    """Whether rollouts with advantage 0 are left out of training."""
    minimal_advantage: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Rollouts whose absolute advantage is smaller are left out of training. Unset: none are."""

    skip_non_positive_advantage: bool = False
    """Whether rollouts without any advantage above 0 are left out of training (AgentRL)."""

    @property
    def filters_members(self) -> bool:
        """Whether it leaves out single rollouts of a group."""
        return self.balance_sample or self.drop_truncated or self.filters_advantages

    @property
    def filters_advantages(self) -> bool:
        """Whether it leaves out rollouts by their advantages."""
        return (
            self.drop_zero_advantage
            or self.skip_non_positive_advantage
            or self.minimal_advantage is not None
        )
