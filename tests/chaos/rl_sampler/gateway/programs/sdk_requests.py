"""Requests of the official SDKs, each with its outcome, as JSON on standard output.

It runs in an environment that has ``openai`` and ``anthropic``, and nothing of ours. Answers are
validated by the SDKs' own models.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
import openai

OPENAI, ANTHROPIC = openai.OpenAI(max_retries=0), anthropic.Anthropic(max_retries=0)
PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
FUNCTION = {"name": "calc", "description": "Doubles x.", "parameters": PARAMETERS}
CHAT_TOOLS: Any = [{"type": "function", "function": FUNCTION}]
RESPONSE_TOOLS: Any = [{"type": "function", "strict": False, **FUNCTION}]
MESSAGE_TOOLS: Any = [{"name": "calc", "description": "Doubles x.", "input_schema": PARAMETERS}]
HELLO: Any = [{"role": "user", "content": "Hello"}]
PICTURE = "data:image/png;base64,iVBORw0KGgo="

Case = Callable[[], Any]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def valid(answer: Any) -> Any:
    """The same answer, once its model accepts it."""
    type(answer).model_validate(answer.model_dump(by_alias=True, warnings=False))
    return answer


def chat(**fields: Any) -> Any:
    return valid(OPENAI.chat.completions.create(**{"model": "any", "messages": HELLO, **fields}))


def respond(**fields: Any) -> Any:
    return valid(OPENAI.responses.create(**{"model": "any", "input": "Hello", **fields}))


def message(**fields: Any) -> Any:
    body = {"model": "any", "max_tokens": 400, "messages": HELLO, **fields}
    return valid(ANTHROPIC.messages.create(**body))


def calls_of(choice: Any) -> list[Any]:
    return [
        [call.function.name, json.loads(call.function.arguments)]
        for call in choice.message.tool_calls or []
    ]


@case
def chat_text() -> Any:
    answer = chat()
    usage = answer.usage
    return [
        answer.choices[0].message.content,
        answer.choices[0].finish_reason,
        usage.total_tokens == usage.prompt_tokens + usage.completion_tokens,
    ]


@case
def chat_stream() -> Any:
    chunks = [
        valid(chunk)
        for chunk in OPENAI.chat.completions.create(
            model="any", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    ]
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    return ["".join(parts), len(parts) > 5, chunks[-1].usage.completion_tokens > 0]


@case
def chat_tool_call_and_its_result() -> Any:
    answer = chat(tools=CHAT_TOOLS)
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "4"}
    messages = [*HELLO, choice.message, result]
    after = chat(messages=messages, tools=CHAT_TOOLS)
    return [calls_of(choice), choice.finish_reason, after.choices[0].message.content]


@case
def chat_parallel_tool_calls() -> Any:
    return calls_of(chat(tools=CHAT_TOOLS).choices[0])


@case
def chat_one_call_where_parallel_calls_are_off() -> Any:
    return calls_of(chat(tools=CHAT_TOOLS, parallel_tool_calls=False).choices[0])


@case
def chat_stream_with_a_tool_call() -> Any:
    with OPENAI.chat.completions.stream(model="any", messages=HELLO, tools=CHAT_TOOLS) as stream:
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    return [choice.message.content, calls_of(choice), choice.finish_reason]


@case
def chat_no_call_where_none_is_allowed() -> Any:
    (choice,) = chat(tools=CHAT_TOOLS, tool_choice="none").choices
    return ["<tool_call>" in choice.message.content, calls_of(choice)]


@case
def chat_two_choices() -> Any:
    return [choice.message.content for choice in chat(n=2).choices]


@case
def chat_logprobs() -> Any:
    (choice,) = chat(logprobs=True).choices
    assert all(token.logprob <= 0 for token in choice.logprobs.content)
    shown = [token.bytes for token in choice.logprobs.content]
    return [None if data is None else bytes(data).decode() for data in shown]


@case
def chat_stop_text() -> Any:
    (choice,) = chat(stop=[" end"]).choices
    return [choice.message.content, choice.finish_reason]


@case
def chat_token_limit() -> Any:
    (choice,) = chat(max_completion_tokens=3).choices
    return [choice.message.content, choice.finish_reason]


@case
def chat_system_and_developer_messages() -> Any:
    system = [{"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Yes."}]
    return chat(messages=[*system, *HELLO], temperature=0.3, user="me").choices[0].message.content


@case
def chat_image_is_refused() -> Any:
    part = {"type": "image_url", "image_url": {"url": PICTURE}}
    return refused(lambda: chat(messages=[{"role": "user", "content": [part]}]))


@case
def chat_forced_call_is_refused() -> Any:
    return refused(lambda: chat(tools=CHAT_TOOLS, tool_choice="required"))


@case
def chat_json_mode_is_refused() -> Any:
    return refused(lambda: chat(response_format={"type": "json_object"}))


@case
def chat_other_key_is_refused() -> Any:
    other = openai.OpenAI(api_key="sk-other", max_retries=0)
    return refused(lambda: other.chat.completions.create(model="any", messages=HELLO))


@case
def embeddings_are_not_here() -> Any:
    return refused(lambda: OPENAI.embeddings.create(model="any", input="Hello"))


@case
def models_are_listed() -> Any:
    return [model.id for model in OPENAI.models.list()]


@case
def responses_text() -> Any:
    answer = respond(instructions="Be kind.")
    return [answer.output_text, answer.status]


@case
def responses_stream() -> Any:
    text, kinds = "", []
    for event in OPENAI.responses.create(model="any", input=HELLO, stream=True):
        kinds.append(valid(event).type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    return [text, kinds[0], kinds[-1]]


@case
def responses_tool_call_and_its_result() -> Any:
    answer = respond(tools=RESPONSE_TOOLS)
    (call,) = answer.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "4"}
    after = respond(input=[*HELLO, *answer.output, result], tools=RESPONSE_TOOLS)
    return [call.name, json.loads(call.arguments), after.output_text]


@case
def responses_stream_with_a_tool_call() -> Any:
    with OPENAI.responses.stream(model="any", input=HELLO, tools=RESPONSE_TOOLS) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_response()
    return [[item.type for item in answer.output], json.loads(answer.output[-1].arguments)]


@case
def responses_token_limit() -> Any:
    answer = respond(max_output_tokens=3)
    return [answer.output_text, answer.status, answer.incomplete_details.reason]


@case
def responses_image_is_refused() -> Any:
    part = {"type": "input_image", "image_url": PICTURE, "detail": "auto"}
    return refused(lambda: respond(input=[{"role": "user", "content": [part]}]))


@case
def responses_of_a_stored_conversation_are_refused() -> Any:
    return refused(lambda: respond(previous_response_id="resp_1"))


@case
def responses_hosted_tool_is_refused() -> Any:
    return refused(lambda: respond(tools=[{"type": "web_search"}]))


@case
def messages_text() -> Any:
    answer = message(system="Be kind.", extra_body={"temperature": 0.5})
    return [answer.content[0].text, answer.stop_reason, answer.usage.output_tokens > 0]


@case
def messages_stream() -> Any:
    with ANTHROPIC.messages.stream(model="any", max_tokens=400, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        answer = valid(stream.get_final_message())
    return [text, answer.content[0].text == text, answer.stop_reason]


@case
def messages_tool_use_and_its_result() -> Any:
    answer = message(tools=MESSAGE_TOOLS)
    *texts, call = answer.content
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "4"}
    messages = [
        *HELLO,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
    ]
    after = message(messages=messages, tools=MESSAGE_TOOLS)
    return [[text.text for text in texts], call.input, answer.stop_reason, after.content[0].text]


@case
def messages_stream_with_tool_uses() -> Any:
    with ANTHROPIC.messages.stream(
        model="any", max_tokens=400, messages=HELLO, tools=MESSAGE_TOOLS
    ) as stream:
        answer = valid(stream.get_final_message())
    return [[block.input for block in answer.content], answer.stop_reason]


@case
def messages_stop_sequence() -> Any:
    answer = message(stop_sequences=[" end"])
    return [answer.content[0].text, answer.stop_reason, answer.stop_sequence]


@case
def messages_token_limit() -> Any:
    answer = message(max_tokens=3)
    return [answer.content[0].text, answer.stop_reason]


@case
def messages_count_of_tokens() -> Any:
    counted = ANTHROPIC.messages.count_tokens(model="any", messages=HELLO)
    return valid(counted).input_tokens > 5


@case
def messages_image_is_refused() -> Any:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    content = [{"type": "image", "source": source}]
    return refused(lambda: message(messages=[{"role": "user", "content": content}]))


@case
def messages_forced_tool_is_refused() -> Any:
    return refused(lambda: message(tools=MESSAGE_TOOLS, tool_choice={"type": "any"}))


@case
def messages_other_key_is_refused() -> Any:
    other = anthropic.Anthropic(api_key="sk-other", max_retries=0)
    return refused(lambda: other.messages.create(model="any", max_tokens=5, messages=HELLO))


@case
def batches_are_not_here() -> Any:
    return refused(lambda: list(ANTHROPIC.messages.batches.list()))


def refused(request: Case) -> Any:
    """The SDK's exception, and the error's type and field as the API names them."""
    try:
        request()
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        body = error.body
        assert isinstance(body, dict)
        inner = body.get("error", body)
        assert inner["message"]
        return [type(error).__name__, inner["type"], inner.get("param")]
    return "was answered"


def main(wanted: list[str]) -> None:
    outcomes = {}
    for name in wanted or list(CASES):
        try:
            outcomes[name] = CASES[name]()
        except Exception as error:  # noqa: BLE001 - the table shows it
            outcomes[name] = f"{type(error).__name__}: {error}"[:500]
    sys.stdout.write(json.dumps(outcomes))


main(sys.argv[1:])
