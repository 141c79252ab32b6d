"""What the official SDKs get for their requests; the policy says what a script has."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from rl_sampler.gateway.server import Gateway
from rl_sampler.gateway.sessions import Sessions
from tests.chaos.rl_sampler.gateway.environments import PROGRAMS, python_of
from tests.unit.rl_sampler.agents.scripted import call
from tests.unit.rl_sampler.gateway.scripted_sessions import Line, a_session
from tests.waiting import HUNG_SECONDS

HI = "Hello, grüß dich."
BAD, UNKNOWN = "invalid_request_error", "not_found_error"
TABLE: dict[str, tuple[list[Line], Any]] = {
    "chat_text": ([HI], [HI, "stop", True]),
    "chat_stream": ([HI], [HI, True, True]),
    "chat_tool_call_and_its_result": (
        [call(x=2), "It is 4."],
        [[["calc", {"x": 2}]], "tool_calls", "It is 4."],
    ),
    "chat_parallel_tool_calls": (
        [call(x=1) + "\n" + call(x=2)],
        [["calc", {"x": 1}], ["calc", {"x": 2}]],
    ),
    "chat_one_call_where_parallel_calls_are_off": (
        [call(x=1) + "\n" + call(x=2)],
        [["calc", {"x": 1}]],
    ),
    "chat_stream_with_a_tool_call": (
        ["I add. " + call(x=2)],
        ["I add. ", [["calc", {"x": 2}]], "tool_calls"],
    ),
    "chat_no_call_where_none_is_allowed": ([call(x=2)], [True, []]),
    "chat_two_choices": (["One.", "Two."], ["One.", "Two."]),
    "chat_logprobs": (["Hello ä"], [*"Hello ", None, None, ""]),
    "chat_stop_text": (["The end is near."], ["The", "stop"]),
    "chat_token_limit": ([HI], ["Hel", "length"]),
    "chat_system_and_developer_messages": ([HI], HI),
    "chat_image_is_refused": ([], ["BadRequestError", BAD, "messages[0].content[0]"]),
    "chat_forced_call_is_refused": ([], ["BadRequestError", BAD, "tool_choice"]),
    "chat_json_mode_is_refused": ([], ["BadRequestError", BAD, "response_format"]),
    "chat_other_key_is_refused": ([], ["AuthenticationError", "authentication_error", None]),
    "embeddings_are_not_here": ([], ["NotFoundError", UNKNOWN, None]),
    "models_are_listed": ([], ["policy"]),
    "responses_text": ([HI], [HI, "completed"]),
    "responses_stream": ([HI], [HI, "response.created", "response.completed"]),
    "responses_tool_call_and_its_result": (
        [call(x=2), "It is 4."],
        ["calc", {"x": 2}, "It is 4."],
    ),
    "responses_stream_with_a_tool_call": (
        ["I add. " + call(x=2)],
        [["message", "function_call"], {"x": 2}],
    ),
    "responses_token_limit": ([HI], ["Hel", "incomplete", "max_output_tokens"]),
    "responses_image_is_refused": ([], ["BadRequestError", BAD, "input[0].content[0]"]),
    "responses_of_a_stored_conversation_are_refused": (
        [],
        ["BadRequestError", BAD, "previous_response_id"],
    ),
    "responses_hosted_tool_is_refused": ([], ["BadRequestError", BAD, "tools[0].type"]),
    "messages_text": ([HI], [HI, "end_turn", True]),
    "messages_stream": ([HI], [HI, True, "end_turn"]),
    "messages_tool_use_and_its_result": (
        ["I add. " + call(x=2), "It is 4."],
        [["I add. "], {"x": 2}, "tool_use", "It is 4."],
    ),
    "messages_stream_with_tool_uses": (
        [call(x=1) + "\n" + call(x=2)],
        [[{"x": 1}, {"x": 2}], "tool_use"],
    ),
    "messages_stop_sequence": (["The end is near."], ["The", "stop_sequence", " end"]),
    "messages_token_limit": ([HI], ["Hel", "max_tokens"]),
    "messages_count_of_tokens": ([], True),
    "messages_image_is_refused": ([], ["BadRequestError", BAD, None]),
    "messages_forced_tool_is_refused": ([], ["BadRequestError", BAD, None]),
    "messages_other_key_is_refused": ([], ["AuthenticationError", "authentication_error", None]),
    "batches_are_not_here": ([], ["NotFoundError", UNKNOWN, None]),
}
"""By request of ``sdk_requests``: what the policy says, and what the SDK gives its caller."""


async def outcomes_of(cases: list[str], script: list[Line]) -> tuple[dict[str, Any], list[int]]:
    """The outcomes, and the lengths of the session's sequences in responses."""
    session, _ = a_session(script)
    sessions = Sessions()
    sessions.open(session)
    async with TestServer(Gateway(sessions).application()) as server:
        url = str(server.make_url("")).rstrip("/")
        program = await asyncio.create_subprocess_exec(
            await asyncio.to_thread(python_of, "sdk"),
            str(PROGRAMS / "sdk_requests.py"),
            *cases,
            stdout=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "OPENAI_BASE_URL": f"{url}/v1",
                "ANTHROPIC_BASE_URL": url,
                "OPENAI_API_KEY": session.key,
                "ANTHROPIC_API_KEY": session.key,
            },
        )
        async with asyncio.timeout(HUNG_SECONDS):
            written, _ = await program.communicate()
    return json.loads(written), [len(nodes) for nodes in session.tree.sequences()]


async def test_each_request_of_the_official_sdks_has_its_outcome() -> None:
    script = [line for lines, _ in TABLE.values() for line in lines]
    outcomes, _ = await outcomes_of(list(TABLE), script)
    assert outcomes == {name: outcome for name, (_, outcome) in TABLE.items()}


@pytest.mark.parametrize(
    "case",
    [
        "chat_tool_call_and_its_result",
        "responses_tool_call_and_its_result",
        "messages_tool_use_and_its_result",
    ],
)
async def test_result_of_a_tool_continues_the_tokens_of_its_call(case: str) -> None:
    script, outcome = TABLE[case]
    outcomes, sequences = await outcomes_of([case], list(script))
    assert (outcomes, sequences) == ({case: outcome}, [2])
