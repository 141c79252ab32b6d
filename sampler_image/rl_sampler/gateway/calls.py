"""Tool calls in the text of a response to a program."""

from __future__ import annotations

import secrets

from rl_contracts.spec.agent.tools import ToolCallFormat
from rl_sampler.agents.policy import Policy
from rl_sampler.gateway.asked import Asked, Call
from rl_sampler.tools.formats import FORMATS, parse_calls
from rl_sampler.tools.strict_json import DECODER

CALL_ID_BYTES = 5


def marks_of(asked: Asked, form: ToolCallFormat) -> tuple[str, ...]:
    """Texts that end what may be sent of a response: begins of calls, and stop texts."""
    expected = FORMATS[form]
    calls = (*expected.marks, *expected.held) if _has_calls(asked) else ()
    return (*calls, *asked.stops)


def grows(asked: Asked, form: ToolCallFormat) -> bool:
    """Whether text can be sent before its end is known.

    A format of calls without marks may turn out to be a call at any time, and in a format of
    channels only the end says what was said.
    """
    expected = FORMATS[form]
    return not expected.channels and (not _has_calls(asked) or bool(expected.marks))


async def calls_in(
    text: str, asked: Asked, *, form: ToolCallFormat, policy: Policy, opened: bool
) -> tuple[str, tuple[Call, ...]]:
    """What a response says beside its tool calls, and the calls; all is text if one is unreadable.

    Args:
        text: of the response.
        asked: its request.
        form: of the calls.
        policy: its engine parses them.
        opened: the prompt ended with ``<think>``.

    Raises:
        EngineError: the engine, which parses them, is down.
        EpisodeEndedError: the claim was ended.
    """
    expected = FORMATS[form]
    if not _has_calls(asked):
        return expected.visible(text), ()
    parsed = await policy.claim.run(
        parse_calls(text, tools=asked.tools, form=form, engine=policy.engine, opened=opened)
    )
    if not all(_is_json(call.arguments) for call in parsed.calls):
        return expected.visible(text), ()
    wanted = parsed.calls if asked.parallel else parsed.calls[:1]
    calls = tuple(Call(id=_call_id(), name=call.tool, arguments=call.arguments) for call in wanted)
    return expected.visible(text if expected.channels else parsed.text), calls


def _is_json(arguments: str) -> bool:
    """Whether every API can send them: the parser lets NaN pass."""
    try:
        DECODER.decode(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _has_calls(asked: Asked) -> bool:
    return bool(asked.tools) and asked.calls_allowed


def _call_id() -> str:
    """Nine letters and digits: some chat templates refuse other ids."""
    return secrets.token_hex(CALL_ID_BYTES)[:9]
