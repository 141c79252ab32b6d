"""Programs that another attempt starts again: their requests are answered with what was saved."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.arrays import unpack_int32
from rl_contracts.documents.rollout import Rollout, StopReason
from rl_sampler.agents.member import Member
from rl_sampler.code.replies import Ran
from rl_sampler.gateway.session import Session
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.scripted import call, unfinished
from tests.unit.rl_sampler.gateway.test_tree import TOOLS, answered, ask, user
from tests.unit.rl_sampler.user_code.test_program_agent import Acted, Acting, acted

TASK = a_task(0)
SCRIPT = ["One.", call(tool="calc", a=1), "Elsewhere.", "Three."]


async def talking(session: Session, request: dict[str, Any]) -> Ran:
    """A conversation with a tool call, and a branch beside it."""
    messages = [user("a")]
    reply = await ask(session, messages)
    messages += [answered(reply), user("b")]
    called = await ask(session, messages, tools=TOOLS)
    await ask(session, [user("a"), answered(reply), user("other")])
    made = answered(called)
    result = {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "42"}
    await ask(session, [*messages, made, result], tools=TOOLS)
    session.report({"reward": 0.5})
    return Ran(exit_code=0, log="", seconds=1.0)


async def play(script: list[str], act: Acting, *, save: Rollout | None = None) -> Acted:
    made = acted(list(script), act)
    made.member.saved = save
    await made.agent(made.member)
    return made


async def saves_of(
    script: list[str], act: Acting, *, save: Rollout | None = None
) -> tuple[Acted, list[Rollout]]:
    saves: list[Rollout] = []

    def keep(member: Member) -> None:
        saves.append(unfinished(member, TASK))

    made = acted(list(script), act)
    made.member.on_turn, made.member.saved = keep, save
    await made.agent(made.member)
    return made, saves


def written(made: Acted) -> object:
    """What the member has become, but for its times."""
    trace = made.member.trace
    turns = [(turn.text, turn.response, turn.stop_reason) for turn in made.member.turns]
    return trace.tokens, bytes(trace.mask), trace.spans, trace.sequence_starts, turns


async def test_a_program_that_repeats_itself_costs_the_responses_that_were_not_saved() -> None:
    whole, saves = await saves_of(SCRIPT, talking)
    assert [len(save.turns) for save in saves] == [1, 2, 3, 4]
    for number, save in enumerate(saves, start=1):
        made = await play(SCRIPT[number:], talking, save=save)
        assert made.policy.script == [], "as many responses as were left"
        assert len(made.policy.contexts) == len(SCRIPT) - number
        assert written(made) == written(whole)
        assert made.member.trace.logprobs == pytest.approx(whole.member.trace.logprobs)
        assert (made.member.continues, made.member.replayed_turns) == (save.id, number)
        assert made.member.replayed_tokens == save.num_generated
        assert made.member.reported == 0.5
        assert made.policy.claim.begun == {0: save.oldest_step}


async def test_a_second_end_while_it_repeats_itself_costs_nothing_that_was_saved() -> None:
    _, saves = await saves_of(SCRIPT, talking)
    _, later = await saves_of(SCRIPT[2:], talking, save=saves[1])
    assert [len(save.turns) for save in later] == [3, 4], "none with fewer than were given again"


async def test_a_request_that_is_another_one_is_sampled() -> None:
    _, saves = await saves_of(SCRIPT, talking)

    async def straying(session: Session, request: dict[str, Any]) -> Ran:
        reply = await ask(session, [user("a")])
        await ask(session, [user("a"), answered(reply), user("else")])
        return Ran(exit_code=0, log="", seconds=1.0)

    made = await play(["Sampled."], straying, save=saves[-1])
    assert [turn.text for turn in made.member.turns] == ["One.", "Sampled."]
    assert made.member.replayed_turns == 1


async def test_each_response_is_given_once() -> None:
    _, saves = await saves_of(SCRIPT, talking)

    async def twice(session: Session, request: dict[str, Any]) -> Ran:
        for _ in range(2):
            await ask(session, [user("a")])
        return Ran(exit_code=0, log="", seconds=1.0)

    made = await play(["Sampled."], twice, save=saves[-1])
    assert sorted(turn.text for turn in made.member.turns) == ["One.", "Sampled."]


@pytest.mark.parametrize(
    ("fields", "again"),
    [({"max_tokens": 2}, 0), ({"max_tokens": 400}, 1), ({"stop": ["."]}, 0), ({"n": 2}, 0)],
    ids=["shorter", "longer", "stop", "choices"],
)
async def test_only_a_request_that_could_have_had_the_response_gets_it(
    fields: dict[str, Any], again: int
) -> None:
    async def asking(session: Session, request: dict[str, Any]) -> Ran:
        await ask(session, [user("a")], **request.get("fields", {}))
        return Ran(exit_code=0, log="", seconds=1.0)

    async def otherwise(session: Session, request: dict[str, Any]) -> Ran:
        return await asking(session, request | {"fields": fields})

    _, saves = await saves_of(["One."], asking)
    made = await play(["Two.", "Three."], otherwise, save=saves[0])
    assert made.member.replayed_turns == again


@pytest.mark.parametrize(("limit", "again"), [(2, 1), (3, 0), (512, 0)])
async def test_a_cut_response_is_for_a_request_with_its_limit(limit: int, again: int) -> None:
    def cut(most: int) -> Acting:
        async def asking(session: Session, request: dict[str, Any]) -> Ran:
            await ask(session, [user("a")], max_tokens=most)
            return Ran(exit_code=0, log="", seconds=1.0)

        return asking

    _, saves = await saves_of(["One two three four."], cut(2))
    assert saves[0].turns[0].stop_reason is StopReason.LENGTH
    made = await play(["One two three four."], cut(limit), save=saves[0])
    assert made.member.replayed_turns == again


async def branching(session: Session, request: dict[str, Any]) -> Ran:
    """Two requests that continue the same response."""
    reply = await ask(session, [user("a")])
    for following in ("b", "c"):
        await ask(session, [user("a"), answered(reply), user(following)])
    return Ran(exit_code=0, log="", seconds=1.0)


@pytest.mark.parametrize("act", [talking, branching])
async def test_saved_responses_make_the_sequences_of_the_program(act: Acting) -> None:
    whole, saves = await saves_of(SCRIPT, act)
    member, read = whole.member, saves[-1]
    assert unpack_int32(read.tokens) == member.trace.tokens
    assert read.mask == bytes(member.trace.mask)
    assert (read.spans, read.sequence_starts) == (member.trace.spans, member.trace.sequence_starts)
    assert read.turns == member.turns
    repeated = len(member.trace.tokens) - sum(len(turn.mask) for turn in member.finished)
    assert (repeated > 0) == (act is branching), "a branch is saved without what it repeats"
