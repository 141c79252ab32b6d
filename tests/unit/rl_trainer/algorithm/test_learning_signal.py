from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout, StopReason
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.critic import Critic
from rl_contracts.spec.algorithm.kl import KL
from rl_operator.status.learning_signal import MESSAGE_CHARACTERS
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.credit import CUT_OFF, EQUAL, NONE_LEFT
from rl_trainer.algorithm.learning_signal import example, find, find_filtered, worst
from rl_trainer.algorithm.step_metrics import step_metrics
from tests.samples.documents import a_head, a_rollout, a_task
from tests.unit.rl_trainer.algorithm.test_step_metrics import CIRCUMSTANCES, UPDATE

WINDOW = 3


def a_step(*rewards: float, **changes: object) -> StepMetrics:
    answered = [
        a_head(a_task(), at, reward=reward, answer="4") for at, reward in enumerate(rewards)
    ]
    return step_metrics(answered, UPDATE, CIRCUMSTANCES).model_copy(update=changes)


def reason(steps: Sequence[StepMetrics], **algorithm: object) -> str | None:
    section = Algorithm().model_copy(update=algorithm)
    signal = find(steps, window=WINDOW, algorithm=section)
    return signal.reason if signal else None


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (a_step(0, 1), None),
        (a_step(0, 0), "RewardsZero"),
        (a_step(1, 1), "RewardsEqual"),
        (a_step(0, 1, equal_groups_share=1.0, gradient_norm=0.0), "RewardsEqual"),
        (a_step(0, 1, equal_groups_share=1.0), None),
        (a_step(0, 1, cut_off_share=0.6), "ResponsesCutOff"),
        (a_step(0, 1, no_answer_share=0.6), "AnswersMissing"),
        (a_step(0, 0, no_answer_share=1.0), "RewardsZero"),
        (a_step(0, 1, entropy=0.001), "EntropyCollapsed"),
        (a_step(0, 1, entropy=0.5, kl=0.01), None),
        (a_step(0, 1, gradient_norm=0.0), "GradientZero"),
        (a_step(0, 1, kl=0.0), "PolicyUnchanged"),
        (a_step(0, 1, kl=2.0), "PolicyDiverged"),
        (a_step(0, 1, gradient_norm=0.0, kl=0.0, skipped_updates=1), None),
        (a_step(0, 1, equal_groups_share=1.0, gradient_norm=0.0, skipped_updates=1), None),
        (a_step(0, 0, gradient_norm=0.0, skipped_updates=1), "RewardsZero"),
    ],
)
def test_what_holds_for_the_whole_window_is_found(step: StepMetrics, expected: str | None) -> None:
    assert reason([step] * WINDOW) == expected
    assert reason([step] * (WINDOW - 1)) is None
    assert reason([step, a_step(0, 1), step]) is None
    assert reason([a_step(0, 1), *[step] * WINDOW]) == expected


@pytest.mark.parametrize(
    "section",
    [
        {"shaping": {"overlong": {"maxTokens": 16, "bufferTokens": 12}}},
        {"shaping": {"efficientRewarding": 0.1}},
        {"estimator": {"kind": "REINFORCEPlusPlus", "gamma": 0.9}},
        {"estimator": {"kind": "RAE"}},
        {"kl": {"placement": "Reward"}},
        {"kl": {}, "estimator": {"kind": "MaxEnt"}, "loss": {"kind": "MaxEnt"}},
    ],
)
def test_equal_rewards_are_no_finding_where_they_teach(section: dict[str, object]) -> None:
    algorithm = Algorithm.model_validate(section)
    step = a_step(1, 1)
    assert find([step] * WINDOW, window=WINDOW, algorithm=algorithm) is None
    still = [step.model_copy(update={"gradient_norm": 0.0})] * WINDOW
    signal = find(still, window=WINDOW, algorithm=algorithm)
    assert signal is not None
    assert signal.reason == "RewardsEqual"


@pytest.mark.parametrize(
    "section",
    [
        {"shaping": {"skipNonPositiveAdvantage": True}},
        {"estimator": {"kind": "PassAtK", "k": 2}, "shaping": {"dropZeroAdvantage": True}},
    ],
)
def test_members_that_filters_leave_out_count_with_their_rewards(
    section: dict[str, object],
) -> None:
    algorithm = Algorithm.model_validate(section | {"groupSize": 4})
    group = [a_head(a_task(group_size=4), at, reward=at % 2, answer="4") for at in range(4)]
    trained = {member.rollout for member in credit.members([group], algorithm, Context())}
    members = [head for head in group if head.id in trained]
    assert {head.reward for head in members} == {1.0}
    step = step_metrics(members, UPDATE, CIRCUMSTANCES, sampled=group)
    assert (step.reward_min, step.reward_max, step.reward_mean) == (0.0, 1.0, 0.5)
    assert (step.equal_groups_share, step.rollouts) == (0.0, 2)
    assert find([step] * WINDOW, window=WINDOW, algorithm=algorithm) is None


def test_objectives_without_rewards_are_judged_by_their_updates() -> None:
    zero = [a_step(0, 0)] * WINDOW
    assert reason(zero, objective="SFT") is None
    assert reason(zero, objective="Distillation") is None
    still = [a_step(0, 0, gradient_norm=0.0)] * WINDOW
    assert reason(still, objective="SFT") == "GradientZero"


def test_steps_that_only_warm_up_the_critic_are_not_blamed_for_the_policy() -> None:
    warming = [a_step(0, 1, gradient_norm=0.0, entropy=0.0, kl=0.0, step=at) for at in (1, 2, 3, 4)]
    assert reason(warming, critic=Critic(warmup_steps=2)) is None
    assert reason(warming, critic=Critic(warmup_steps=1)) == "EntropyCollapsed"
    worthless = [a_step(0, 0, step=at) for at in (1, 2, 3)]
    assert reason(worthless, critic=Critic(warmup_steps=9)) == "RewardsZero"


def test_a_policy_that_equals_a_refreshed_reference_is_not_called_unchanged() -> None:
    equal = [a_step(0, 1, kl=0.0)] * WINDOW
    assert reason(equal, kl=KL(refresh_every_steps=1)) is None
    assert reason(equal, kl=KL()) == "PolicyUnchanged"


def test_a_policy_is_compared_with_the_reference_once_it_was_updated() -> None:
    first, second = (a_step(0, 1, kl=0.0, step=at) for at in (1, 2))
    algorithm = Algorithm(kl=KL())
    assert find([first], window=1, algorithm=algorithm) is None
    signal = find([first, second], window=1, algorithm=algorithm)
    assert signal is not None
    assert signal.reason == "PolicyUnchanged"
    warmed = algorithm.model_copy(update={"critic": Critic(warmup_steps=1)})
    assert find([first, second], window=1, algorithm=warmed) is None


def a_response(text: str, *, reward: float = 0.0, member: int = 0) -> Rollout:
    made = a_rollout(a_task(), member, reward=reward)
    return made.model_copy(update={"text": text, "stop_reason": StopReason.LENGTH})


def test_the_finding_names_what_to_check_and_shows_the_worst_responses() -> None:
    rollouts = [
        a_response("right", reward=1.0, member=0),
        a_response("x" * 9000 + "\n\x1b[31m so\tit is", member=1),
    ]
    signal = find([a_step(0, 0, cut_off_share=0.5)] * WINDOW, window=WINDOW, algorithm=Algorithm())
    assert signal is not None
    assert "reward.answerSchema" in signal.message
    assert "50% reached the token limit" in signal.message
    assert worst([RolloutHead.of(rollout) for rollout in rollouts])[0] == rollouts[1].id
    shown = example(rollouts[1])
    assert shown.startswith("reward 0, no answer, ended by length: …")
    assert shown.endswith("x [31m so it is")
    signal = signal.model_copy(update={"examples": [shown, example(rollouts[0])]})
    assert len(signal.model_dump_json()) < 2048


def test_metrics_count_equal_groups_cut_off_responses_and_missing_answers() -> None:
    first, second = a_task(), a_task(id="other")
    rollouts = [
        a_head(first, 0, reward=1.0),
        a_head(first, 1, reward=1.0),
        a_head(second, 0, reward=0.0),
        a_head(second, 1, reward=1.0, answer="4", stop_reason=StopReason.LENGTH),
    ]
    metrics = step_metrics(rollouts, UPDATE, CIRCUMSTANCES)
    assert (metrics.equal_groups_share, metrics.no_answer_share) == (0.5, 0.75)
    assert metrics.cut_off_share == 0.25


@pytest.mark.parametrize(
    ("filtered", "objective", "named"),
    [
        ({EQUAL: 9, CUT_OFF: 3}, "RL", ["rewards do not differ", "dynamicSampling", "harder data"]),
        ({EQUAL: 3, CUT_OFF: 9}, "RL", ["dropTruncated", "maxTokensPerTurn", "maxContextTokens"]),
        ({NONE_LEFT: 12}, "RL", ["leave none of its rollouts", "fewer filters"]),
        ({CUT_OFF: 12}, "Offline", ["dropTruncated", "another run"]),
    ],
)
def test_groups_that_are_replaced_again_and_again_are_found_without_a_step(
    filtered: dict[str, int], objective: str, named: list[str]
) -> None:
    assert find_filtered(Counter({EQUAL: 11}), per_step=4, step=0, objective=objective) is None
    signal = find_filtered(Counter(filtered), per_step=4, step=0, objective=objective)
    assert signal is not None
    assert signal.reason == "GroupsFiltered"
    assert all(words in signal.message for words in named)
    assert len(signal.message) < MESSAGE_CHARACTERS
