"""From the rewards of a step's groups to the members of its batch. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from torch import Tensor

from rl_contracts.documents.arrays import pack_float32
from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import StopReason
from rl_contracts.spec.agent.environment import ENVIRONMENT
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import Shaping
from rl_trainer.algorithm import shaping
from rl_trainer.algorithm.assessment import Assessment, Context
from rl_trainer.algorithm.estimators import ESTIMATORS, gae, rae
from rl_trainer.algorithm.estimators.records import Advantage, Episode, State
from rl_trainer.algorithm.shaping import Scored

TRUNCATED = (StopReason.LENGTH, StopReason.CONTEXT)
EQUAL = "its rewards do not differ"
CUT_OFF = (
    "all of its responses reached a token limit, and algorithm.shaping.dropTruncated leaves these "
    "out"
)
NONE_LEFT = "the filters leave none of its rollouts"


def members(
    groups: Sequence[Sequence[RolloutHead]],
    algorithm: Algorithm,
    context: Context,
    *,
    baselines: Sequence[RolloutHead | None] = (),
    sources: Sequence[str] = (),
    withheld: Collection[str] = (),
) -> list[BatchMember]:
    """The rollouts that the step trains, group by group, with their advantages.

    Args:
        groups: of the step.
        algorithm: the manifest's.
        context: what else advantages depend on.
        baselines: each group's greedy member, which is not trained; empty: there are none.
        sources: name of each group's data source, for RAE; empty: all are of one.
        withheld: ids of rollouts whose rewards count and that are not trained.
    """
    batch_members = []
    greedy = baselines or [None] * len(groups)
    every = _advantages(groups, greedy, algorithm, context, sources)
    for group, advantages in zip(groups, every, strict=True):
        episodes = _episodes(group, algorithm, context)
        for index in _kept(group, advantages, algorithm):
            if group[index].id in withheld:
                continue
            member = _member(group[index], advantages[index])
            if algorithm.critic is not None:
                returns = gae.returns(episodes[index], algorithm.estimator)
                packed = pack_float32(returns.tolist())
                member = member.model_copy(update={"token_returns": packed})
            batch_members.append(member)
    return batch_members


def reward_baselines(
    groups: Sequence[Sequence[RolloutHead]],
    algorithm: Algorithm,
    context: Context,
    *,
    sources: Sequence[str],
) -> dict[str, float]:
    """RAE's baselines after a batch of these groups; empty with any other estimator."""
    if algorithm.estimator.kind != "RAE":
        return {}
    episodes = [
        _of_source(_episodes(group, algorithm, context), source)
        for group, source in zip(groups, sources, strict=True)
    ]
    return rae.baselines_after(episodes, algorithm.estimator, _state(context))


def no_signal(
    group: Sequence[RolloutHead], algorithm: Algorithm, *, baseline: RolloutHead | None = None
) -> str:
    """Why a complete group would teach nothing under the manifest; empty when it may.

    Returns ``CUT_OFF``, ``EQUAL`` or ``NONE_LEFT``, or "".
    """
    # First: rewards of responses that were cut off are often equal, and that is not the cause.
    if algorithm.shaping.drop_truncated and all(_scored(rollout).truncated for rollout in group):
        return CUT_OFF
    compared = [*group, baseline] if baseline is not None else group
    if shaping.dull([_scored(rollout) for rollout in compared], algorithm.shaping):
        return EQUAL
    filtered = algorithm.shaping.filters_members
    if filtered and not _kept(group, _alone(group, baseline, algorithm), algorithm):
        return NONE_LEFT
    return ""


def _alone(
    group: Sequence[RolloutHead], baseline: RolloutHead | None, algorithm: Algorithm
) -> list[Advantage]:
    """Advantages of a group by itself, where the filters ask for any."""
    section = algorithm.shaping
    if not section.filters_advantages:
        return [1.0] * len(group)
    (advantages,) = _advantages([group], [baseline], algorithm, Context())
    return advantages


def _advantages(
    groups: Sequence[Sequence[RolloutHead]],
    baselines: Sequence[RolloutHead | None],
    algorithm: Algorithm,
    context: Context,
    sources: Sequence[str] = (),
) -> list[list[Advantage]]:
    if algorithm.supervised or algorithm.distils:
        worth = 1.0 if algorithm.supervised else 0.0  # a teacher's word counts, no reward
        return [[worth] * len(group) for group in groups]
    episodes = [
        _of_source(_measured(_episodes(group, algorithm, context), baseline, algorithm), source)
        for group, baseline, source in zip(
            groups, baselines, sources or [""] * len(groups), strict=True
        )
    ]
    estimator = ESTIMATORS[algorithm.estimator.kind]
    estimated = estimator(episodes, algorithm.estimator, _state(context))
    return [
        [
            _shaped(advantage, rollout, algorithm.shaping)
            for advantage, rollout in zip(row, group, strict=True)
        ]
        for row, group in zip(estimated, groups, strict=True)
    ]


def _state(context: Context) -> State:
    controls = context.controls
    return State(
        kl_coefficient=controls.kl_coefficient,
        tau=controls.tau,
        baselines=controls.reward_baselines,
    )


def _of_source(episodes: list[Episode], source: str) -> list[Episode]:
    return [replace(episode, source=source) for episode in episodes]


def _shaped(advantage: Advantage, rollout: RolloutHead, section: Shaping) -> Advantage:
    # Times 1.0 changes no bit.
    return shaping.limited(advantage, _scored(rollout), section) * section.adv_scaling


def _episodes(
    group: Sequence[RolloutHead], algorithm: Algorithm, context: Context
) -> list[Episode]:
    rewards = shaping.rewards([_scored(rollout) for rollout in group], algorithm.shaping)
    return [
        _episode(rollout, reward, algorithm, context)
        for rollout, reward in zip(group, rewards, strict=True)
    ]


def _measured(
    episodes: list[Episode], baseline: RolloutHead | None, algorithm: Algorithm
) -> list[Episode]:
    """Episodes with the reward of their greedy member, shaped by itself."""
    if baseline is None:
        return episodes
    (reward,) = shaping.rewards([_scored(baseline)], algorithm.shaping)
    return [replace(episode, baseline=reward) for episode in episodes]


def _episode(
    rollout: RolloutHead, reward: float, algorithm: Algorithm, context: Context
) -> Episode:
    assessment = context.assessments.get(rollout.id, Assessment())
    penalties, reference = None, 0.0
    if assessment.divergences is not None:
        penalties = context.controls.kl_coefficient * assessment.divergences
    if assessment.reference is not None:
        reference = float(assessment.reference.sum())
        if algorithm.estimator.weighting.length_normalize_reference:
            reference /= rollout.num_generated
    return Episode(
        reward=reward,
        num_tokens=rollout.num_generated,
        turns=_turns(rollout),
        turn_rewards=_turn_rewards(rollout),
        penalties=penalties,
        reference=reference,
        values=assessment.values,
    )


def _kept(
    group: Sequence[RolloutHead], advantages: Sequence[Advantage], algorithm: Algorithm
) -> list[int]:
    scored = [_scored(rollout) for rollout in group]
    return shaping.kept(
        scored,
        [_largest(advantage) for advantage in advantages],
        algorithm.shaping,
        highest=[_highest(advantage) for advantage in advantages],
    )


def _scored(rollout: RolloutHead) -> Scored:
    return Scored(
        reward=rollout.reward,
        num_tokens=rollout.num_generated,
        num_turns=len(_turns(rollout)),
        truncated=rollout.stop_reason in TRUNCATED,
        turns=_turns(rollout),
        faulty=tuple(turn.faulty for turn in rollout.summary.turns),
    )


def _turns(rollout: RolloutHead) -> tuple[int, ...]:
    """Generated tokens of each turn."""
    return tuple(turn.generated for turn in rollout.summary.turns)


def _turn_rewards(rollout: RolloutHead) -> tuple[float, ...]:
    """What the environment gave in each turn, weighted; empty without an environment's scorer."""
    weight = sum(part.weight for part in rollout.parts if part.scorer == ENVIRONMENT)
    turns = rollout.summary.turns
    if not weight or all(turn.reward is None for turn in turns):
        return ()
    return tuple(weight * (turn.reward or 0.0) for turn in turns)


def _largest(advantage: Advantage) -> float:
    return float(advantage.abs().max()) if isinstance(advantage, Tensor) else abs(advantage)


def _highest(advantage: Advantage) -> float:
    return float(advantage.max()) if isinstance(advantage, Tensor) else advantage


def _member(rollout: RolloutHead, advantage: Advantage) -> BatchMember:
    if not isinstance(advantage, Tensor):
        return BatchMember(rollout=rollout.id, advantage=advantage)
    return BatchMember(
        rollout=rollout.id,
        advantage=float(advantage.mean()),
        token_advantages=pack_float32(advantage.tolist()),
    )
