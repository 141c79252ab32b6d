from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from rl_contracts.spec.reward import AnswerSchema, Reward
from rl_sampler.code.client import CodeContainer
from rl_sampler.code.replies import Compared
from rl_sampler.scorers import Scorers, total
from rl_sampler.scorers.auto import reference_answer
from rl_sampler.scorers.mathematics import MathScorer
from rl_sampler.scorers.reading import read, recorded_answer
from rl_sampler.scorers.response import Response
from tests.unit.rl_sampler.scorers.typical_replies import CUT_OFF, GSM8K, MATH, REPLIES

MATHEMATICS = Reward.model_validate({"scorers": [{"kind": "Math"}]})
EXACT = Reward.model_validate({"scorers": [{"kind": "ExactMatch"}]})


def reply(text: str, *, reference: str = GSM8K, cut_off: bool = False) -> Response:
    return Response(text=text, answer=None, reference=reference, cut_off=cut_off)


def rewarded(response: Response, reward: Reward = EXACT, scorers: Scorers | None = None) -> float:
    return total(asyncio.run((scorers or Scorers()).score(response, reward=reward)))


@pytest.mark.parametrize(
    ("submitted", "schema", "reference", "value"),
    [
        ("72", "Auto", GSM8K, 1.0),
        ("The answer is 72 clips", "Auto", GSM8K, 1.0),
        ("71", "Auto", GSM8K, 0.0),
        ("", "Auto", GSM8K, 0.0),
        ("Paris", "Answer", "Paris", 1.0),
        ("Paris", "Raw", "Paris", 1.0),
        ("", "Boxed", "", 0.0),
        (None, "Boxed", "9", 1.0),
    ],
)
def test_submitted_answer_is_read_in_place_of_the_text(
    submitted: str | None, schema: AnswerSchema, reference: str, value: float
) -> None:
    text = r"\boxed{9} <tool_call>answer</tool_call>"
    response = Response(text=text, answer=None, reference=reference, submitted=submitted)
    reward = EXACT.model_copy(update={"answer_schema": schema})
    assert rewarded(response, reward) == value


@pytest.mark.parametrize(
    ("text", "reference", "value"),
    [case[1:] for case in REPLIES],
    ids=[case[0] for case in REPLIES],
)
def test_typical_replies_get_their_reward(text: str, reference: str, value: float) -> None:
    assert rewarded(reply(text, reference=reference)) == value


class FindsNothingEqual:
    """In the place of the container that compares."""

    async def ask(self, request: dict[str, Any], model: object, *, seconds: float) -> Compared:
        return Compared(same=False)


def test_math_rewards_a_right_answer_in_plain_form_without_its_process() -> None:
    math = MathScorer(cast(CodeContainer, FindsNothingEqual()))
    scorers = Scorers({"Math": math})
    for _, text, reference, value in REPLIES:
        assert rewarded(reply(text, reference=reference), MATHEMATICS, scorers) == value


@pytest.mark.parametrize(
    ("text", "value"), [case[1:] for case in CUT_OFF], ids=[case[0] for case in CUT_OFF]
)
def test_replies_that_were_cut_off_are_read_in_closed_forms_alone(text: str, value: float) -> None:
    assert rewarded(reply(text, cut_off=True)) == value


def test_the_table_has_sixty_replies_right_and_wrong() -> None:
    assert len(REPLIES) + len(CUT_OFF) >= 60
    assert sum(value == 0 for *_, value in REPLIES) >= 15
    assert len({case[0] for case in REPLIES}) == len(REPLIES)


def test_auto_is_the_default_answer_schema() -> None:
    assert Reward().answer_schema == "Auto"


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        (GSM8K, "72"),
        (MATH, "0.75"),
        ("1,234.50", "1234.5"),
        ("#### $2,125", "2125"),
        (r"\frac{\sqrt{3}}{2}", r"\frac{\sqrt{3}}{2}"),
        ("Paris", "Paris"),
    ],
)
def test_references_are_read_as_replies_are(reference: str, answer: str) -> None:
    assert reference_answer(reference) == answer


def test_a_reply_whose_prompt_began_the_thinking_has_no_answer_before_it_ends() -> None:
    begun = replace(reply(r"Perhaps \boxed{72}"), thinking=True)
    assert rewarded(begun) == 0.0
    assert recorded_answer(begun, EXACT) is None
    assert rewarded(replace(begun, text=r"Perhaps.</think> \boxed{72}")) == 1.0


@pytest.mark.parametrize("schema", ["Answer", "Boxed", "FinalAnswer"])
def test_named_forms_ignore_thinking_too(schema: AnswerSchema) -> None:
    text = r"<think><answer>1</answer> \boxed{1} Final Answer: 1</think>"
    assert read(reply(text), schema=schema, kind="Math").answer is None
    assert read(reply(text), schema="Raw", kind="Math").answer == text


def test_code_judges_and_own_scorers_get_the_reply_and_the_reference_of_the_record() -> None:
    program = "The answer is below.\n```python\nprint(72)\n```"
    code = read(reply(program), schema="Auto", kind="Code")
    assert (code.answer, code.reference) == (program, GSM8K)
    assert read(reply("<answer>x</answer>"), schema="Auto", kind="Code").answer == "x"
    judged = read(reply("A story.\nIt has 2 lines."), schema="Auto", kind="Judged")
    assert (judged.answer, judged.reference) == ("A story.\nIt has 2 lines.", GSM8K)
    assert read(reply("The answer is 72."), schema="Auto", kind="Judged").answer == "72"


def test_the_recorded_answer_is_that_of_the_scorer_that_compares() -> None:
    reward = Reward.model_validate({"scorers": [{"kind": "Length"}, {"kind": "Math"}]})
    assert recorded_answer(reply("So 72 clips."), reward) == "72"
    assert recorded_answer(reply("I cannot say."), reward) is None
    assert len(recorded_answer(reply("x" * 900, reference="y"), EXACT) or "") == 200


def test_long_replies_are_read_in_linear_time() -> None:
    for piece in (
        "answer is ",
        "#### ",
        "1,",
        "<answer>",
        "\\boxed{",
        "1 ",
        "-",
        "answer to ",
        "= ",
        " ",
    ):
        long = piece * (40_000 // len(piece))
        for text in (long, f"The answer{long}x"):
            before = time.process_time()
            rewarded(reply(text))
            assert time.process_time() - before < 2, f"a reply of {piece!r} takes far too long"
