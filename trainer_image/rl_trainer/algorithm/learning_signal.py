"""Finds steps that give the policy nothing to learn, from the metrics of the last steps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import LearningSignal
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import ESTIMATOR_KINDS
from rl_trainer.algorithm.credit import CUT_OFF, EQUAL, NONE_LEFT

MOST = 0.5
"""Share of responses above which a fault of theirs is reported."""
ZERO_NORM = 1e-12
DIVERGED_NATS = 1.0
"""Mean divergence of a token from the reference; useful policies stay far below it."""
CERTAIN_NATS = 0.01
"""Mean entropy of a token at which all members of a group say the same."""
EXAMPLES = 2
EXAMPLE_CHARACTERS = 160
FILTERED_BATCHES = 3
"""Batches' worth of groups without signal after which a step that is not made is reported."""
ADVICE: dict[str, str] = {
    EQUAL: "Use easier or harder data, check the scorers, or remove the filter "
    "(algorithm.shaping.dynamicSampling).",
    CUT_OFF: "Raise agent.sampling.maxTokensPerTurn and maxContextTokens, ask for shorter "
    "responses, or remove dropTruncated.",
    NONE_LEFT: "Check the scorers, use easier or harder data, or fewer filters in "
    "algorithm.shaping.",
}
"""By the reason for which groups are replaced."""
STORED_ADVICE = "Use the rollouts of another run, or fewer filters in algorithm.shaping."

Check = tuple[str, Callable[[StepMetrics], bool], str]
EQUAL_ADVICE = (
    "Rewards do not differ, so no response is better than another. Check the scorers, and use "
    "harder or easier data or a larger algorithm.groupSize."
)
REWARDS_EQUAL: Check = ("RewardsEqual", lambda step: _equal(step), EQUAL_ADVICE)
"""Judged where equal rewards teach nothing."""
WITHOUT_CONTRAST: Check = (
    "RewardsEqual",
    lambda step: (_equal(step) or step.equal_groups_share == 1.0) and _without_gradient(step),
    EQUAL_ADVICE,
)
RL: tuple[Check, ...] = (
    (
        "RewardsZero",
        lambda step: step.reward_min == step.reward_max == 0.0,
        "All rewards are 0. Check that reward.answerSchema reads the answers, that the scorers "
        "accept the records' references, and that the data are not too hard.",
    ),
    REWARDS_EQUAL,
    WITHOUT_CONTRAST,
)
RESPONSES: tuple[Check, ...] = (
    (
        "ResponsesCutOff",
        lambda step: step.cut_off_share > MOST,
        "Most responses reach the token limit. Raise agent.sampling.maxTokensPerTurn and "
        "maxContextTokens, ask for shorter responses, or switch thinking off.",
    ),
    (
        "AnswersMissing",
        lambda step: step.no_answer_share > MOST,
        "No answer can be read in most responses. Ask for its form in agent.systemPrompt, or "
        "change reward.answerSchema.",
    ),
)
GRADIENT_ZERO: Check = (
    "GradientZero",
    lambda step: _without_gradient(step),
    "The gradient is 0. Check the rewards, the filters in algorithm.shaping and the clips in "
    "algorithm.loss.",
)
POLICY_UNCHANGED: Check = (
    "PolicyUnchanged",
    lambda step: step.kl == 0.0 and not step.skipped_updates,
    "The policy is still equal to the reference. Raise training.optimizer.learningRate.",
)
UPDATES: tuple[Check, ...] = (
    (
        "EntropyCollapsed",
        lambda step: step.entropy is not None and step.entropy < CERTAIN_NATS,
        "The policy is certain of every token. Raise algorithm.entropyCoefficient or the sampling "
        "temperature, or lower the learning rate.",
    ),
    GRADIENT_ZERO,
    POLICY_UNCHANGED,
    (
        "PolicyDiverged",
        lambda step: step.kl is not None and step.kl > DIVERGED_NATS,
        "The policy is far from the reference. Lower training.optimizer.learningRate, or raise "
        "algorithm.kl.coefficient.",
    ),
)
CHECKS: dict[str, tuple[Check, ...]] = {
    "RL": (*RL, *RESPONSES, *UPDATES),
    "Offline": (*RL, *UPDATES),
    "Distillation": (RESPONSES[0], GRADIENT_ZERO),
    "SFT": (GRADIENT_ZERO,),
}
"""By ``algorithm.objective``, in the order in which they are reported: causes first."""


def find(
    steps: Sequence[StepMetrics], *, window: int, algorithm: Algorithm
) -> LearningSignal | None:
    """What has held for each of the last steps and leaves the policy nothing to learn.

    Args:
        steps: metrics of all steps, in order.
        window: number of steps for which it must have held.
        algorithm: what the steps do. Before the critic has warmed up they update no policy; a
            reference that is refreshed may be equal to the policy each time they are compared.

    Returns:
        None with fewer than ``window`` steps, or if nothing has been found.
    """
    last = steps[-window:]
    if len(last) < window:
        return None
    objective = algorithm.objective
    for reason, holds, advice in _checks(algorithm, first=last[0].step, last=last[-1].step):
        if all(holds(step) for step in last):
            text = f"For {window} steps: {advice}{_shares(last[-1], objective)}"
            return LearningSignal(reason=reason, message=text, step=last[-1].step)
    return None


def _checks(algorithm: Algorithm, *, first: int, last: int) -> list[Check]:
    """What can be judged of the steps from ``first`` to ``last``."""
    left_out: tuple[Check, ...] = ()
    warmup = algorithm.critic.warmup_steps if algorithm.critic is not None else 0
    if first <= warmup:
        left_out = (WITHOUT_CONTRAST, *UPDATES)
    elif last == warmup + 1:
        left_out = (POLICY_UNCHANGED,)  # it was compared before its first update
    elif algorithm.divergence is not None and algorithm.divergence.refresh_every_steps is not None:
        left_out = (POLICY_UNCHANGED,)
    if _equal_rewards_teach(algorithm):
        left_out = (REWARDS_EQUAL, *left_out)
    return [check for check in CHECKS[algorithm.objective] if check not in left_out]


def _equal_rewards_teach(algorithm: Algorithm) -> bool:
    """Whether advantages may differ where rewards do not."""
    section, kl, kind = algorithm.shaping, algorithm.kl, algorithm.estimator.kind
    return (
        not ESTIMATOR_KINDS[kind].compares
        or section.overlong is not None
        or section.efficient_rewarding is not None
        # The weights of MaxEnt follow the reference, too, wherever the penalty is.
        or (kl is not None and (kl.placement == "Reward" or kind == "MaxEnt"))
    )


def find_filtered(
    filtered: Counter[str], *, per_step: int, step: int, objective: str
) -> LearningSignal | None:
    """What keeps a step from being made: groups that teach nothing are replaced.

    Args:
        filtered: groups replaced since the last step, by reason.
        per_step: groups that a step needs.
        step: steps made so far.
        objective: the manifest's.
    """
    if filtered.total() < FILTERED_BATCHES * per_step:
        return None
    text = (
        f"At least {FILTERED_BATCHES} steps' worth of groups were replaced for one step. "
        f"{why_filtered(filtered, objective=objective)}"
    )
    return LearningSignal(reason="GroupsFiltered", message=text, step=step)


def why_filtered(filtered: Counter[str], *, objective: str) -> str:
    """The most frequent reason for which groups (at least one) were replaced, and what to do."""
    ((reason, _),) = filtered.most_common(1)
    advice = STORED_ADVICE if objective == "Offline" else ADVICE[reason]
    return f"The most frequent reason for a group: {reason}. {advice}"


def worst(heads: Sequence[RolloutHead]) -> list[str]:
    """Ids of the worst-rewarded rollouts, which are shown as examples."""
    ordered = sorted(heads, key=lambda head: (head.reward, head.id))
    return [head.id for head in ordered[:EXAMPLES]]


def example(rollout: Rollout) -> str:
    """Reward, answer and end of a response, printable and cut."""
    answer = "no answer" if rollout.answer is None else f"answer {_plain(rollout.answer)[:40]!r}"
    end = _plain(rollout.text)[-EXAMPLE_CHARACTERS:]
    return f"reward {rollout.reward:g}, {answer}, ended by {rollout.stop_reason.value}: …{end}"


def _plain(text: str) -> str:
    printable = "".join(sign if sign.isprintable() else " " for sign in text[-2000:])
    return " ".join(printable.split())


def _shares(step: StepMetrics, objective: str) -> str:
    if objective == "SFT":
        return ""
    return (
        f" Of the last step's responses {step.cut_off_share:.0%} reached the token limit, and "
        f"{step.no_answer_share:.0%} had no answer."
    )


def _equal(step: StepMetrics) -> bool:
    """Whether all rewards of the step are equal."""
    return step.reward_min is not None and step.reward_min == step.reward_max


def _without_gradient(step: StepMetrics) -> bool:
    """A norm of 0 says so, unless updates were skipped: that is a matter of the loss scale."""
    return step.gradient_norm <= ZERO_NORM and not step.skipped_updates
