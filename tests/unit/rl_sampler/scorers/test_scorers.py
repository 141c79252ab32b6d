from __future__ import annotations

import asyncio
import math

import pytest

from rl_contracts.documents.rollout import RewardPart
from rl_contracts.spec.agent.sandbox import CODE
from rl_contracts.spec.reward import BUILT_IN_SCORERS, MATH, Reward
from rl_sampler import scorers
from rl_sampler.scorers import SCORERS, Scorers, total
from rl_sampler.scorers.answers import ANSWERS, boxed_answer, tagged_answer
from rl_sampler.scorers.response import Response, ScoringError
from rl_sampler.scorers.text import exact_match, f1, normalized_match, shortness, well_formed


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<answer>42</answer>", "42"),
        ("so <answer>1</answer> no <answer>2</answer>.", "2"),
        ("<answer>a\nb</answer>", "a\nb"),
        ("<answer></answer>", ""),
        ("<answer>1<answer>2</answer>", "2"),
        ("<answer>1</answer></answer>", "1"),
        ("<answer>1", None),
        ("1</answer>", None),
        ("</answer>1<answer>", None),
        ("<ANSWER>1</ANSWER>", None),
        ("42", None),
        ("", None),
    ],
)
def test_tagged_answer_is_the_last_innermost_tag(response: str, answer: str | None) -> None:
    assert tagged_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\fbox{1} then \boxed {2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{a \boxed{b} c}", r"a \boxed{b} c"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"{ \boxed{3}", "3"),
        (r"} \boxed{3} }", "3"),
        (r"\boxed{1} \boxed{2", "1"),
        (r"\boxed{1 \boxed{2}", "2"),
        (r"\boxed{}", ""),
        (r"\\boxed{1}", None),
        (r"\boxed 1", None),
        ("{1}", None),
        ("\\", None),
        ("", None),
    ],
)
def test_boxed_answer_is_the_last_box_with_matching_braces(
    response: str, answer: str | None
) -> None:
    assert boxed_answer(response) == answer


def a_response(*, text: str = "", answer: str | None = None, reference: str = "") -> Response:
    return Response(text=text, answer=answer, reference=reference)


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("42", "42", 1.0),
        (" 42\n", "42", 1.0),
        ("a  b", "a\tb", 1.0),
        ("４２", "42", 1.0),  # full-width digits
        ("e\u0301", "é", 1.0),
        ("42.0", "42", 0.0),
        ("Yes", "yes", 0.0),
        ("", "42", 0.0),
        (None, "42", 0.0),
        (None, "", 0.0),
    ],
)
def test_exact_match_ignores_unicode_form_and_white_space(
    answer: str | None, reference: str, value: float
) -> None:
    assert exact_match(a_response(answer=answer, reference=reference)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<answer>1</answer>", 1.0),
        ("x <answer></answer> y", 1.0),
        ("<answer>1</answer><answer>2</answer>", 0.0),
        ("<answer>1<answer>2</answer>", 0.0),
        ("</answer>1<answer>", 0.0),
        ("<answer>1", 0.0),
        ("1", 0.0),
    ],
)
def test_format_scorer_wants_exactly_one_answer_tag(text: str, value: float) -> None:
    assert well_formed(a_response(text=text)) == value


@pytest.mark.parametrize(
    ("answer", "reference", "match", "overlap"),
    [
        ("The Eiffel Tower.", "eiffel tower", 1.0, 1.0),
        ("in the Eiffel tower", "Eiffel Tower", 0.0, 0.8),
        ("to be or not to be", "to be", 0.0, 0.5),
        ("Tower Eiffel", "Eiffel Tower", 0.0, 1.0),
        ("Paris", "London", 0.0, 0.0),
        ("the", "a", 1.0, 1.0),
        ("the", "Paris", 0.0, 0.0),
        ("", "Paris", 0.0, 0.0),
        (None, "Paris", 0.0, 0.0),
    ],
)
def test_squad_measures_compare_normalised_words(
    answer: str | None, reference: str, match: float, overlap: float
) -> None:
    response = a_response(answer=answer, reference=reference)
    assert normalized_match(response) == match
    assert f1(response) == pytest.approx(overlap)


@pytest.mark.parametrize(
    ("tokens", "most", "value"), [(1, 4, 0.75), (4, 4, 0.0), (512, 512, 0.0), (9, 4, 0.0)]
)
def test_length_scorer_is_the_unused_share_of_tokens(tokens: int, most: int, value: float) -> None:
    response = Response(text="", answer=None, reference="", tokens=tokens, max_tokens=most)
    assert shortness(response) == value


def reward_of(*kinds: str, schema: str = "Answer") -> Reward:
    weights = (1.0, 0.1, -2.0)
    return Reward.model_validate(
        {
            "scorers": [
                {"kind": kind, "weight": weight}
                for kind, weight in zip(kinds, weights, strict=False)
            ],
            "answerSchema": schema,
        }
    )


def scored(text: str, reward: Reward, *, reference: str = "4") -> list[RewardPart]:
    answer = ANSWERS[reward.answer_schema](text)
    response = a_response(text=text, answer=answer, reference=reference)
    return asyncio.run(Scorers().score(response, reward=reward))


def test_reward_is_the_weighted_sum_of_the_parts() -> None:
    parts = scored("<answer>4</answer>", reward_of("ExactMatch", "Format"))
    assert [(part.scorer, part.value, part.weight) for part in parts] == [
        ("ExactMatch", 1.0, 1.0),
        ("Format", 1.0, 0.1),
    ]
    assert total(parts) == pytest.approx(1.1)


def test_raw_schema_takes_the_whole_response() -> None:
    reward = reward_of("ExactMatch", schema="Raw")
    assert total(scored("4", reward)) == 1.0
    assert total(scored("<answer>4</answer>", reward)) == 0.0


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_score_outside_0_to_1_raises_a_scoring_error(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setitem(scorers.SCORERS, "Wild", lambda response: value)
    with pytest.raises(ScoringError, match="Wild"):
        scored("x", reward_of("Wild"))


def test_unknown_scorers_are_listed_in_the_manifests_order() -> None:
    unknown = Scorers().unknown
    assert unknown(reward_of("Poetry", "Format", "Beauty")) == ["Poetry", "Beauty"]
    assert unknown(reward_of("ExactMatch")) == []


def test_added_scorers_work_beside_the_built_in_ones() -> None:
    async def poetry(response: Response) -> float:
        return len(response.text) / 10

    scorers = Scorers({"Poetry": poetry})
    reward = reward_of("ExactMatch", "Poetry")
    parts = asyncio.run(scorers.score(a_response(text="rose", answer="4"), reward=reward))
    assert [(part.scorer, part.value) for part in parts] == [("ExactMatch", 0.0), ("Poetry", 0.4)]
    assert scorers.unknown(reward) == []
    assert {"Poetry", "ExactMatch"} < set(scorers.known)


def test_the_operator_knows_the_built_in_scorers() -> None:
    assert sorted([*SCORERS, CODE, MATH]) == list(BUILT_IN_SCORERS)


@pytest.mark.parametrize("earned", [-3.5, 0.0, 12.0])
async def test_an_environments_rewards_are_any_number(earned: float) -> None:
    reward = Reward.model_validate({"scorers": [{"kind": "Environment", "weight": 0.5}]})
    response = Response(text="", answer=None, reference="", earned=earned)
    parts = await Scorers().score(response, reward=reward)
    assert parts == [RewardPart(scorer="Environment", value=earned, weight=0.5)]


async def test_an_environments_rewards_need_an_environment() -> None:
    reward = Reward.model_validate({"scorers": [{"kind": "Environment"}]})
    with pytest.raises(ScoringError, match=r"agent\.kind Environment"):
        await Scorers().score(Response(text="", answer=None, reference=""), reward=reward)


@pytest.mark.parametrize("kind", ["Environment", "Program"])
def test_rewards_that_others_give_need_no_reference(kind: str) -> None:
    assert not Reward.model_validate({"scorers": [{"kind": kind}]}).compares("")
