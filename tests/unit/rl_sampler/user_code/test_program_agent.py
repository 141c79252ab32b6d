"""What becomes of a member whose program ended, failed, or lost its session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.member import Member
from rl_sampler.agents.policy import Policy
from rl_sampler.agents.user import ScriptedUser
from rl_sampler.code.client import CodeContainer
from rl_sampler.code.replies import Failure, Ran
from rl_sampler.engine.errors import EngineUnavailableError
from rl_sampler.gateway.asked import RefusedRequestError
from rl_sampler.gateway.session import Session
from rl_sampler.gateway.sessions import Sessions
from rl_sampler.tasks.claims import UnusableMemberError
from rl_sampler.user_code.call import UserCodeError
from rl_sampler.user_code.played import RunTests
from rl_sampler.user_code.program_agent import ProgramAgent
from tests.samples.manifests import a_job
from tests.unit.rl_sampler.agents.chat_models import real_prompts
from tests.unit.rl_sampler.agents.scripted import QUESTION
from tests.unit.rl_sampler.gateway.scripted_sessions import Line, ScriptedPolicy
from tests.unit.rl_sampler.gateway.test_tree import ask, user

PROMPTS = real_prompts("qwen3_instruct_2507")
Acting = Callable[[Session, dict[str, Any]], Awaitable[Ran]]


class ActedCode:
    """In the place of the container ``code``: the program is a function."""

    def __init__(self, sessions: Sessions, act: Acting) -> None:
        self._sessions, self._act = sessions, act
        self.key = ""

    async def ask(self, request: dict[str, Any], model: type[Ran], *, seconds: float) -> Ran:
        self.key = request["environment"]["OPENAI_API_KEY"]
        return await self._act(self._sessions.of(self.key), request)


class Acted:
    """A member whose program was run."""

    def __init__(
        self, script: Sequence[Line], act: Acting, *, on_failure: str, reward: Any
    ) -> None:
        program = {"command": ["a"], "runsIn": "Sidecar", "onFailure": on_failure}
        spec = RLJobSpec.model_validate(
            a_job(agent={"kind": "Program", "program": program}, reward=reward)["spec"]
        )
        self.policy = ScriptedPolicy(PROMPTS, list(script))
        self.sessions = Sessions()
        self.code = ActedCode(self.sessions, act)
        self.member = Member(
            agent=spec.agent,
            messages=QUESTION,
            user=ScriptedUser([]),
            chat=cast(Any, None),
            policy=cast(Policy, self.policy),
            tools=cast(Any, None),
        )
        self.policy.serving.adapters = False
        assert spec.agent.program is not None
        self.agent = ProgramAgent(
            spec=spec,
            program=spec.agent.program,
            chats=Chats(PROMPTS),
            sessions=self.sessions,
            code=cast(CodeContainer, self.code),
            url="http://gateway",
            tests=cast(RunTests, None),
        )


async def once(session: Session, request: dict[str, Any]) -> Ran:
    await ask(session, [user(request["task"]["messages"][0]["content"])])
    return Ran(exit_code=0, log="fine", seconds=1.0)


def acted(
    script: Sequence[Line],
    act: Acting,
    *,
    on_failure: str = "InfrastructureError",
    scorer: str = "ExactMatch",
) -> Acted:
    return Acted(script, act, on_failure=on_failure, reward={"scorers": [{"kind": scorer}]})


async def test_program_that_ended_leaves_its_tokens_and_its_conversation() -> None:
    made = acted(["42"], once)
    assert await made.agent(made.member) is StopReason.STOP
    member = made.member
    assert member.trace.tokens == made.policy.contexts[0] + made.policy.outputs[0]
    assert [turn.text for turn in member.turns] == ["42"]
    assert member.program is not None
    assert (member.program.exit_code, member.program.log) == (0, "fine")
    with pytest.raises(RefusedRequestError):
        made.sessions.of(made.code.key)


async def failing(session: Session, request: dict[str, Any]) -> Ran:
    await once(session, request)
    return Ran(exit_code=3, log="Traceback", seconds=1.0)


async def late(session: Session, request: dict[str, Any]) -> Ran:
    await once(session, request)
    return Ran(exit_code=None, late=True, seconds=1.0)


async def too_long(session: Session, request: dict[str, Any]) -> Ran:
    with pytest.raises(RefusedRequestError, match="leaves no room for a response"):
        await ask(session, [user("x" * 9000)])
    return Ran(exit_code=1, log="BadRequestError", seconds=1.0)


@pytest.mark.parametrize("on_failure", ["InfrastructureError", "RewardZero"])
async def test_a_member_whose_first_request_is_too_long_has_no_response(on_failure: str) -> None:
    """The claim notes it, so that an evaluation skips a record of which this holds for all."""
    made = acted(["42"], too_long, on_failure=on_failure)
    with pytest.raises(UnusableMemberError, match=r"the messages have .* no room for a response"):
        await made.agent(made.member)
    assert made.member.policy.claim.too_long == {made.member.number}


@pytest.mark.parametrize(("answered", "noted"), [(True, True), (False, False)])
async def test_only_a_large_request_for_a_response_counts_as_too_long(
    answered: bool, noted: bool
) -> None:
    """Not a large log beside a posted reward, nor tokens that are only counted."""

    async def act(session: Session, request: dict[str, Any]) -> Ran:
        with pytest.raises(RefusedRequestError, match="the request has 1000000 bytes, more than"):
            session.check_size(1_000_000, answered=answered)
        return Ran(exit_code=1, log="HTTP 400", seconds=1.0)

    made = acted(["42"], act)
    with pytest.raises(UnusableMemberError):
        await made.agent(made.member)
    assert bool(made.member.policy.claim.too_long) is noted


async def test_a_later_request_that_is_too_long_is_a_failure_of_the_program() -> None:
    async def act(session: Session, request: dict[str, Any]) -> Ran:
        await once(session, request)
        return await too_long(session, request)

    made = acted(["42"], act)
    with pytest.raises(UnusableMemberError, match="exit code 1: BadRequestError"):
        await made.agent(made.member)


FAILURES = [
    (failing, "ExactMatch", "exit code 3: Traceback"),
    (late, "ExactMatch", "it took more than 3600 s"),
    (once, "Program", "it posted no reward"),
]


@pytest.mark.parametrize(("act", "scorer", "reason"), FAILURES)
async def test_failure_is_an_infrastructure_error_where_the_manifest_says_so(
    act: Acting, scorer: str, reason: str
) -> None:
    made = acted(["42"], act, scorer=scorer)
    with pytest.raises(UnusableMemberError, match=reason):
        await made.agent(made.member)
    assert made.member.turns, "what was sampled is kept"
    assert made.member.program is not None


@pytest.mark.parametrize(("act", "scorer", "reason"), FAILURES)
async def test_failure_forfeits_the_reward_where_the_manifest_says_so(
    act: Acting, scorer: str, reason: str
) -> None:
    made = acted(["42"], act, scorer=scorer, on_failure="RewardZero")
    assert await made.agent(made.member) is StopReason.STOP
    assert reason in made.member.forfeited
    error = made.member.turns[-1].error
    assert error is not None
    assert error.kind == "model"


@pytest.mark.parametrize(
    ("manifest", "record", "needed"),
    [
        ("Program", "", True),
        ("Program", "ExactMatch", False),
        ("ExactMatch", "", False),
        ("ExactMatch", "Program", True),
    ],
)
async def test_a_reward_must_be_posted_where_the_record_is_scored_by_it(
    manifest: str, record: str, needed: bool
) -> None:
    made = acted(["42"], once, scorer=manifest, on_failure="RewardZero")
    claim = made.policy.claim
    claim.task = claim.task.model_copy(update={"scorer": record})
    await made.agent(made.member)
    assert made.member.forfeited == (
        "it posted no reward, which scorer Program needs" if needed else ""
    )


@pytest.mark.parametrize("on_failure", ["InfrastructureError", "RewardZero"])
async def test_outage_of_the_engine_is_never_a_reward(on_failure: str) -> None:
    async def act(session: Session, request: dict[str, Any]) -> Ran:
        with pytest.raises(RefusedRequestError):
            await once(session, request)
        await asyncio.Event().wait()
        return Ran()

    made = acted([EngineUnavailableError("engine is not up")], act, on_failure=on_failure)
    with pytest.raises(EngineUnavailableError):
        await made.agent(made.member)


@pytest.mark.parametrize("on_failure", ["InfrastructureError", "RewardZero"])
async def test_program_that_asked_nothing_is_no_data(on_failure: str) -> None:
    async def act(session: Session, request: dict[str, Any]) -> Ran:
        return Ran(exit_code=1, log="no module named agents")

    made = acted([], act, on_failure=on_failure)
    with pytest.raises(UnusableMemberError, match="no module named agents"):
        await made.agent(made.member)


async def test_program_that_cannot_be_started_is_the_users_mistake() -> None:
    async def act(session: Session, request: dict[str, Any]) -> Ran:
        return Ran(failure=Failure(kind="user", message="agent.program.command: x is no program"))

    made = acted([], act)
    with pytest.raises(UserCodeError, match="x is no program"):
        await made.agent(made.member)


async def test_posted_reward_and_metrics_reach_the_member() -> None:
    async def act(session: Session, request: dict[str, Any]) -> Ran:
        session.report({"reward": 0.5, "metrics": {"steps": 2}})
        return await once(session, request)

    made = acted(["42"], act, scorer="Program")
    await made.agent(made.member)
    assert made.member.reported == 0.5
    assert made.member.program is not None
    assert made.member.program.metrics == {"steps": 2.0}
    assert made.member.forfeited == ""


async def test_every_member_has_a_key_of_its_own() -> None:
    keys = set()
    for _ in range(3):
        made = acted(["42"], once)
        await made.agent(made.member)
        keys.add(made.code.key)
    assert len(keys) == 3
    assert min(map(len, keys)) >= 40
