from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_sampler.agents.policy import Sampled
from rl_sampler.agents.prompt import PromptError
from rl_sampler.completions.guard import open_outside
from rl_sampler.environments import server as server_module
from rl_sampler.environments.agent import reset_arguments
from rl_sampler.environments.protocol import EnvironmentBusyError, EnvironmentDownError
from rl_sampler.environments.session import Session
from rl_sampler.tools.toolbox import CUT
from rl_sampler.user_code.call import UserCodeError
from tests.network.openenv import FULL, MOST_STEPS, PARTIAL, SmallServer, serving
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.scripted import ScriptedPolicy, call
from tests.unit.rl_sampler.environments.playing import SEED, Played, play

RIGHT, BESIDE, WRONG = str(SEED), str(SEED + 1), str(SEED + 4)


def check_trace(played: Played) -> None:
    """The trace holds every response once, and only responses as generated."""
    trace = played.member.trace
    response_positions = [
        at for turn in played.member.turns for at in range(turn.response.start, turn.response.end)
    ]
    assert [at for at, bit in enumerate(trace.mask) if bit] == response_positions
    starts = [0, *trace.sequence_starts]
    for number, turn in enumerate(played.member.turns):
        begin = max(start for start in starts if start <= turn.request.start)
        shown = played.policy.prompts.decode(trace.tokens[begin : turn.response.start])
        assert shown == played.policy.contexts[number]


async def test_each_response_is_an_action_and_each_observation_the_next_message() -> None:
    server = SmallServer()
    played = await play([WRONG, BESIDE, RIGHT], server)
    assert played.error is None
    assert played.reason is StopReason.STOP
    assert "Play.\n\nGuess a number from 0 to 9." in played.policy.contexts[0]
    assert played.policy.contexts[2].count("<|im_start|>user\nLower.<|im_end|>") == 2
    assert [action["message"] for action in server.actions] == [WRONG, BESIDE, RIGHT]
    assert [turn.reward for turn in played.member.turns] == [0.0, PARTIAL, FULL]
    assert played.member.earned == PARTIAL + FULL
    assert [call.result for turn in played.member.turns for call in turn.calls] == [
        "Lower.",
        "Lower.",
        "Right.",
    ]
    outcome = played.member.environment
    assert outcome is not None
    assert (outcome.steps, outcome.done, outcome.truncated) == (3, True, False)
    assert json.loads(outcome.state)["step_count"] == 3
    check_trace(played)
    assert (server.opened, server.closed) == (1, 1)


async def test_an_environments_own_limit_is_truncation_and_not_its_end() -> None:
    played = await play([WRONG] * 9)
    assert played.reason is StopReason.TRUNCATED
    assert len(played.member.turns) == MOST_STEPS
    assert played.member.environment is not None
    assert played.member.environment.truncated


async def test_max_turns_ends_the_episode_after_the_last_action_has_its_reward() -> None:
    played = await play([WRONG, BESIDE], agent={"maxTurns": 2})
    assert played.reason is StopReason.TURNS
    assert [turn.reward for turn in played.member.turns] == [0.0, PARTIAL]
    assert played.member.environment is not None
    assert not played.member.environment.done


async def test_a_repeated_action_is_not_a_mistake() -> None:
    played = await play([WRONG, WRONG, WRONG, RIGHT])
    assert played.reason is StopReason.STOP
    assert all(turn.error is None for turn in played.member.turns)


async def test_thinking_is_no_part_of_an_action() -> None:
    server = SmallServer()
    await play([f"<think>It may be {WRONG}.</think>\n\n{RIGHT}"], server)
    assert [action["message"] for action in server.actions] == [RIGHT]


async def test_a_cut_response_is_no_action() -> None:
    server = SmallServer()
    played = await play(["7" * 600], server)
    assert played.reason is StopReason.LENGTH
    assert server.actions == []
    assert played.member.earned == 0.0


@pytest.mark.parametrize("text", ['{"message": "4"}', 'I say\n```json\n{"message": "4"}\n```'])
async def test_json_actions_are_read_from_the_response(text: str) -> None:
    server = SmallServer()
    played = await play([text], server, action="Json")
    assert played.reason is StopReason.STOP
    assert server.actions == [{"message": RIGHT}]


@pytest.mark.parametrize(
    "text",
    [
        "no object",
        "[1]",
        '{"message": NaN}',
        '{"message": 1e999}',
        '{"message": 4}',
        '{"word": "4"}',
        "[" * 400,
    ],
)
async def test_what_is_no_action_is_the_policys_mistake_and_no_step(text: str) -> None:
    server = SmallServer()
    played = await play([text, '{"message": "4"}'], server, action="Json")
    assert played.error is None
    first, second = played.member.turns
    assert first.error is not None
    assert first.error.kind == "model"
    assert (first.reward, second.reward) == (None, FULL)
    assert "That is no action" in played.policy.contexts[1]
    assert len(server.actions) == 1


async def test_a_field_that_actions_do_not_have_is_the_manifests_fault() -> None:
    played = await play([RIGHT], textField="word")
    assert isinstance(played.error, UserCodeError)
    assert "textField is word" in str(played.error)
    assert "message: Field required" in str(played.error)


async def test_a_field_that_observations_do_not_have_is_named() -> None:
    played = await play([RIGHT], observationField="board")
    assert isinstance(played.error, EnvironmentDownError)
    assert "no field board" in str(played.error)
    assert "text" in str(played.error)


async def test_actions_are_a_tool_with_the_schema_of_actions() -> None:
    server = SmallServer()
    script = [call(tool="act", message=WRONG), call(tool="act", message=RIGHT)]
    played = await play(script, server, action="Tool")
    assert played.error is None
    assert server.actions == [{"message": WRONG}, {"message": RIGHT}]
    (tool,) = played.member.tools.listed
    assert set(tool.parameters["properties"]) == {"message"}
    assert "<tool_response>\nLower.\n</tool_response>" in played.policy.contexts[1]
    check_trace(played)


async def test_tools_of_the_environment_are_called_by_name_until_it_is_done() -> None:
    server = SmallServer(tools=True)
    both = f"{call(tool='guess', number=5)}\n{call(tool='guess', number=4)}"
    played = await play([call(tool="guess", number=8), both], server, action="Tool")
    assert played.reason is StopReason.STOP
    assert [turn.reward for turn in played.member.turns] == [0.0, PARTIAL + FULL]
    assert [(made.tool, made.result) for made in played.member.turns[1].calls] == [
        ("guess", "Lower."),
        ("guess", "Right."),
    ]
    assert server.actions[0]["tool_name"] == "guess"


async def test_a_tool_that_the_thoughts_name_is_not_called() -> None:
    server = SmallServer(tools=True)
    thoughts = f"<think>{call(tool='guess', number=8)}?</think>"
    played = await play([thoughts + call(tool="guess", number=SEED)], server, action="Tool")
    (made,) = played.member.turns[0].calls
    assert json.loads(made.arguments) == {"number": SEED}


@pytest.mark.parametrize("tools", [True, False])
async def test_a_call_of_a_tool_that_is_not_there_is_the_policys_mistake_and_no_step(
    tools: bool,
) -> None:
    server = SmallServer(tools=tools)
    played = await play([call(tool="cook", number=SEED), "I give up."], server, action="Tool")
    first, _ = played.member.turns
    assert [made.outcome for made in first.calls] == ["refused"]
    assert "there is no tool 'cook', the tools are" in played.policy.contexts[1]
    assert server.actions == []


async def test_a_call_that_takes_too_long_is_a_failed_call_and_no_outage() -> None:
    server = SmallServer(tools=True, faults_at={1: ["slow"]})
    script = [call(tool="guess", number=8), call(tool="guess", number=SEED)]
    played = await play(script, server, action="Tool")
    assert played.error is None
    (slow,) = played.member.turns[0].calls
    assert (slow.outcome, slow.result) == ("failed", "Tool 'guess' timed out")
    assert "Tool 'guess' timed out" in played.policy.contexts[1]
    assert played.member.turns[1].reward == FULL


async def test_calls_behind_the_one_that_ends_the_episode_are_not_made() -> None:
    server = SmallServer(tools=True)
    both = f"{call(tool='guess', number=4)}\n{call(tool='guess', number=5)}"
    played = await play([both], server, action="Tool")
    assert played.member.earned == FULL
    assert len(server.actions) == 1


async def test_a_response_without_a_call_ends_an_episode_of_tool_calls() -> None:
    played = await play(
        [call(tool="guess", number=5), "I give up."], SmallServer(tools=True), action="Tool"
    )
    assert played.reason is StopReason.STOP
    assert played.member.earned == PARTIAL
    assert played.member.environment is not None
    assert not played.member.environment.done


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("die", "closed the connection before it answered step"),
        ("fail", "EXECUTION_ERROR: the game broke"),
        ("nan", "the reward nan"),
        ("garbage", "no message of OpenEnv"),
        ("other", "'state', and 'observation' was due"),
    ],
)
async def test_a_fault_of_the_environment_is_never_a_reward(fault: str, message: str) -> None:
    server = SmallServer(faults=["", fault])
    played = await play([BESIDE, WRONG, RIGHT], server)
    assert isinstance(played.error, EnvironmentDownError)
    assert message in str(played.error)
    assert played.member.environment is not None
    assert played.member.environment.steps == 1
    assert server.sessions == 0


async def test_an_environment_that_answers_twice_is_not_used_on() -> None:
    played = await play([WRONG, WRONG, RIGHT], SmallServer(faults=["twice"]))
    assert isinstance(played.error, EnvironmentDownError)
    assert "nothing had asked for" in str(played.error)


async def test_every_answer_has_a_deadline() -> None:
    async with serving(SmallServer(faults=["hang"])) as url, open_outside() as http:
        session = Session(http, url, headers={}, seconds=5)
        async with session:
            await session.open()
            await session.reset({})
            session.seconds = 0.01
            with pytest.raises(EnvironmentDownError, match=r"answer step within 0\.01 s"):
                await session.step({"message": RIGHT})
            with pytest.raises(EnvironmentDownError, match="no open session"):
                await session.step({"message": RIGHT})


async def test_a_server_without_room_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "FIRST_BACKOFF_SECONDS", 0.001)
    server = SmallServer(refusals=3)
    played = await play([RIGHT], server)
    assert played.reason is StopReason.STOP
    assert (server.refusals, server.opened) == (0, 1)


async def test_a_server_that_never_has_room_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(server_module, "FIRST_BACKOFF_SECONDS", 0.006)
    played = await play([RIGHT], SmallServer(refusals=9))
    assert isinstance(played.error, EnvironmentDownError)
    assert "max_concurrent_envs" in str(played.error)


async def test_pings_are_answered_while_the_policy_writes() -> None:
    ponged = asyncio.Event()

    class SlowPolicy(ScriptedPolicy):
        async def sample(self, context: Sequence[int], **options: Any) -> Sampled:
            async with asyncio.timeout(5):
                await ponged.wait()
            return await super().sample(context, **options)

    played = await play([RIGHT], SmallServer(ponged=ponged), policy_type=SlowPolicy)
    assert played.reason is StopReason.STOP


async def test_headers_of_the_secret_are_sent(tmp_path: Path) -> None:
    (tmp_path / "Authorization").write_text("Bearer abc\n")
    (tmp_path / "..data").mkdir()
    server = SmallServer()
    await play([RIGHT], server, headers=tmp_path, headersSecret="headers")
    assert server.headers[0]["Authorization"] == "Bearer abc"


async def test_an_episode_needs_no_state_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(session: Session) -> dict[str, Any]:
        raise EnvironmentBusyError("at capacity")

    monkeypatch.setattr(Session, "state", busy)
    played = await play([RIGHT])
    assert played.reason is StopReason.STOP
    assert played.member.environment is not None
    assert played.member.environment.state == ""


async def test_a_long_observation_is_cut() -> None:
    played = await play([RIGHT], agent={"maxToolResultCharacters": 10})
    assert "Guess a nu\n[the rest was cut off]" in played.policy.contexts[0]


async def test_a_long_error_of_a_tool_is_cut() -> None:
    server = SmallServer(tools=True, faults=["long"])
    played = await play(
        [call(tool="guess", number=5), "I give up."],
        server,
        action="Tool",
        agent={"maxToolResultCharacters": 4},
    )
    (made,) = played.member.turns[0].calls
    assert (made.outcome, made.result) == ("failed", "?nnn" + CUT)


async def test_a_first_observation_that_leaves_no_room_ends_the_task() -> None:
    played = await play(
        [RIGHT], room=12, agent={"sampling": {"maxTokensPerTurn": 4, "maxContextTokens": 12}}
    )
    assert isinstance(played.error, PromptError)
    sampling = {"maxTokensPerTurn": 4, "maxContextTokens": 400, "maxPromptTokens": 5}
    played = await play([RIGHT], agent={"sampling": sampling})
    assert "maxPromptTokens" in str(played.error)


async def test_special_tokens_of_an_observation_cannot_end_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tests.network.openenv.Game.reset",
        lambda self, **known: {
            "observation": {"text": "9<|im_end|>"},
            "reward": None,
            "done": False,
        },
    )
    played = await play([RIGHT], agent={"maxTurns": 1})
    assert "9<|im_end|>" not in played.policy.contexts[0]


def test_members_of_a_group_begin_in_the_same_state() -> None:
    def seed(example: str, member: int, **fields: Any) -> Any:
        task = a_task(0, example=example, fields=json.dumps(fields) if fields else "")
        return reset_arguments(task, member)

    first, second = seed("a", 0), seed("a", 1)
    assert first["seed"] == second["seed"]
    assert first["episode_id"] != second["episode_id"]
    assert seed("b", 0)["seed"] != first["seed"]
    assert 0 <= first["seed"] < 2**31
    assert seed("a", 0, seed=7, level=2) == {**first, "seed": 7, "level": 2}
    assert len(seed("a" * 400, 0)["episode_id"]) <= 255
