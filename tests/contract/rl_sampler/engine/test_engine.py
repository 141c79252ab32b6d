"""The client and the commit against the real engine."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import save

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.agent.tools import ToolCallFormat
from rl_sampler.engine.client import Engine, PingResult, open_session
from rl_sampler.engine.errors import EngineRefusedError, EngineUnavailableError
from rl_sampler.engine.protocol import GenerateRequest
from rl_sampler.engine.weights import Staged
from rl_sampler.policy.commit import RolledBackError, WeightsUnknownError, commit
from rl_sampler.tools.formats import FORMATS, Parsed, parse_calls
from rl_sampler.tools.tool import Tool
from tests.contract.rl_sampler.engine_server import EngineServer, get
from tests.contract.rl_sampler.tiny_model import tensors
from tests.servers import deaf_port
from tests.waiting import HUNG_SECONDS

REQUEST = GenerateRequest(
    prompt=[258, 16, 257, 259], members=3, temperature=1.0, max_new_tokens=6, stop_tokens=(257,)
)


@pytest.fixture
async def engine(engine_server: EngineServer) -> AsyncIterator[Engine]:
    async with open_session() as session:
        yield Engine(engine_server.url, session=session)


def staged(folder: Path, version: int, *, there: bool = True) -> Staged:
    pointer = PolicyPointer(version=version, epoch=1, step=0, prefix="p/", manifest_sha256="0")
    at = folder / str(version)
    if there:
        at.mkdir()
        (at / "model.safetensors").write_bytes(save(tensors(version), metadata={"format": "pt"}))
    return Staged(pointer=pointer, folder=at)


def test_the_engines_processes_are_forks_of_its_first_one(engine_server: EngineServer) -> None:
    log = (engine_server.folder / "engine.log").read_text()
    assert "processes of the engine are forks" in log
    # Scheduler, detokenizer and the first one: interpreters of their own would have a fourth, which
    # tracks what they share.
    assert len(engine_server.pids()) == 3


async def test_generations_have_tokens_logprobs_and_versions(engine: Engine) -> None:
    info = await engine.server_info()
    assert (info.version, info.max_running_requests) == ("0.5.23", 64)
    members = await engine.generate(REQUEST)
    assert len(members) == 3
    for member in members:
        assert [
            token for _, token, _ in member.meta_info.output_token_logprobs
        ] == member.output_ids
        assert member.meta_info.weight_versions[-1].end == len(member.output_ids)


async def test_typed_options_reach_the_engine(engine: Engine, engine_server: EngineServer) -> None:
    status, body = get(f"{engine_server.url}/server_info")
    info = json.loads(body)
    assert (status, info["context_length"], info["mem_fraction_static"]) == (200, 16_016, 0.4)
    full = GenerateRequest(
        prompt=[258] + [16] * 16_005,
        members=1,
        temperature=1.0,
        max_new_tokens=10,
        stop_tokens=(),
    )
    assert len(await engine.generate(full)) == 1
    with pytest.raises(EngineRefusedError, match="16016"):
        await engine.generate(replace(full, max_new_tokens=11))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_sampled_frequencies_match_the_logprobs(
    engine: Engine, temperature: float, tmp_path: Path
) -> None:
    # The engine is shared, and other tests' weights may write one token alone.
    await commit(engine, staged(tmp_path, 900), old=None, seconds=HUNG_SECONDS)
    # A sampler that cuts the tail off reports the whole distribution's log-probs all the same.
    request = GenerateRequest(
        prompt=[258, 16, 257, 259],
        members=512,
        temperature=temperature,
        max_new_tokens=1,
        stop_tokens=(),
    )
    draws = [
        generation.meta_info.output_token_logprobs[0]
        for _ in range(4)
        for generation in await engine.generate(request)
    ]
    counts = Counter(token for _, token, _ in draws)
    expected = {token: len(draws) * math.exp(logprob) for logprob, token, _ in draws}
    often = [token for token in expected if expected[token] >= 5]
    rare = len(draws) - sum(expected[token] for token in often)
    cells = [(counts[token], expected[token]) for token in often]
    cells += [(len(draws) - sum(counts[token] for token in often), rare)] if rare >= 5 else []
    distance = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    assert len(cells) >= 20
    # Chi-squared: mean as many as cells, variance twice that; six deviations never happen.
    assert distance < len(cells) + 6 * math.sqrt(2 * len(cells))


async def test_commit_is_served_and_a_refused_commit_is_rolled_back(
    engine: Engine, tmp_path: Path
) -> None:
    policy = staged(tmp_path, 901)
    began = time.monotonic()
    paused = await commit(engine, policy, old=None, seconds=HUNG_SECONDS)
    assert 0 < paused < time.monotonic() - began
    with pytest.raises(RolledBackError):
        await commit(engine, staged(tmp_path, 902, there=False), old=policy, seconds=HUNG_SECONDS)
    members = await engine.generate(REQUEST)
    assert {span.version for m in members for span in m.meta_info.weight_versions} == {"901"}
    assert await engine.weight_version() == "901"


async def test_engine_with_unknown_weights_stays_paused(engine: Engine, tmp_path: Path) -> None:
    lost = staged(tmp_path, 903, there=False)
    with pytest.raises(WeightsUnknownError, match="going back failed"):
        await commit(engine, staged(tmp_path, 904, there=False), old=lost, seconds=HUNG_SECONDS)
    assert await engine.ping() is PingResult.ANSWERS
    await commit(engine, staged(tmp_path, 905), old=None, seconds=HUNG_SECONDS)
    assert len(await engine.generate(REQUEST)) == 3


async def test_refused_request_carries_the_engines_message(engine: Engine) -> None:
    request = GenerateRequest(
        prompt=[1], members=1, temperature=1.0, max_new_tokens=100_000, stop_tokens=()
    )
    with pytest.raises(EngineRefusedError, match="maximum context length") as refused:
        await engine.generate(request)
    assert refused.value.status == 400


async def test_absent_engine_is_distinguished_from_an_unhealthy_one() -> None:
    async with open_session() as session:
        nobody = Engine(f"http://127.0.0.1:{deaf_port()}", session=session)
        assert await nobody.ping() is PingResult.NOT_LISTENING
        with pytest.raises(EngineUnavailableError, match="sampling"):
            await nobody.generate(REQUEST)


CALCULATOR = Tool(
    name="calc",
    description="Adds.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
HERMES = '<tool_call>\n{"name": "calc", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
COOK = HERMES.replace("calc", "cook")
"""A call of a tool that is not offered."""
BROKEN = HERMES.replace("}}", "}")
LLAMA = '{"name": "calc", "parameters": {"a": 1, "b": 2}}'
LISTED = f"<tool_call>\n[{LLAMA}, {LLAMA}]\n</tool_call>"
CALLS: dict[ToolCallFormat, str] = {
    "Hermes": f"I add. {HERMES}",
    "Qwen": HERMES,
    "QwenCoder": "<tool_call>\n<function=calc>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n"
    "</parameter>\n</function>\n</tool_call>",
    "Llama": f"<|python_tag|>{LLAMA}",
    "Mistral": '[TOOL_CALLS] [{"name": "calc", "arguments": {"a": 1, "b": 2}}]',
    "GLM": "<tool_call>calc\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
    "<arg_key>b</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    "Pythonic": "[calc(a=1, b=2)]",
    "Harmony": "<|channel|>analysis<|message|>I add.<|end|><|start|>assistant<|channel|>commentary "
    'to=functions.calc <|constrain|>json<|message|>{"a": 1, "b": 2}',
}

HARMONY = " to=functions.calc<|channel|>commentary json<|message|>"
"""As the chat template of gpt-oss writes a call."""


@pytest.mark.parametrize("form", FORMATS)
async def test_engine_parses_every_format_of_tool_calls(
    engine: Engine, form: ToolCallFormat
) -> None:
    parsed = await parse_calls(CALLS[form], tools=[CALCULATOR], form=form, engine=engine)
    (call,) = parsed.calls
    assert (call.tool, json.loads(call.arguments)) == ("calc", {"a": 1, "b": 2})
    assert await parse_calls("42", tools=[CALCULATOR], form=form, engine=engine) == Parsed(
        calls=[], text="42"
    )


@pytest.mark.parametrize(
    ("form", "text", "names", "malformed"),
    [
        ("Hermes", f"{HERMES}\n{HERMES}", ["calc", "calc"], False),
        ("Hermes", "<tool_call>{no json}</tool_call>", [], True),
        ("Hermes", "<tool_call>[1]</tool_call>", [], True),
        ("Qwen", "<tool_call>\n[1]\n</tool_call>", [], True),
        ("Hermes", COOK, ["cook"], False),
        ("Hermes", f"{HERMES}\n{COOK}", ["calc", "cook"], False),
        ("Hermes", '<tool_call>{"arguments": {}}</tool_call>', [], True),
        ("Qwen", f"{HERMES}\n{COOK}", ["calc", "cook"], False),
        ("Qwen", f"{HERMES}\n{BROKEN}", [], True),
        ("Qwen", f"{BROKEN}\n{HERMES}", [], True),
        ("Qwen", f"{LISTED}\n{HERMES[:-15]}", [], True),
        ("Qwen", f"{HERMES}\n<tool_call>[{LLAMA}]</tool_call>", [], True),
        ("Qwen", f"{LISTED}\n{HERMES}", ["calc"] * 3, False),
        ("Qwen", HERMES.replace("2", '"<tool_call>\\\\n</tool_call>"'), ["calc"], False),
        ("QwenCoder", CALLS["QwenCoder"] + CALLS["QwenCoder"][:-20], [], True),
        ("QwenCoder", CALLS["QwenCoder"].replace("2", "<tool_call>"), ["calc"], False),
        ("QwenCoder", f"It needs `<function=name>`.\n{CALLS['QwenCoder']}", ["calc"], False),
        ("QwenCoder", f"`<tool_call>`, `</tool_call>`:\n{CALLS['QwenCoder']}", ["calc"], False),
        ("QwenCoder", CALLS["QwenCoder"] + "\nThe <tool_call> asks.", ["calc"], False),
        ("QwenCoder", CALLS["QwenCoder"].replace("2", "</tool_call>"), [], True),
        ("QwenCoder", CALLS["QwenCoder"].replace("2", "</tool_call> <tool_call>"), [], True),
        ("GLM", CALLS["GLM"].replace("2", "</tool_call>"), [], True),
        ("GLM", CALLS["GLM"] + CALLS["GLM"][:-20], [], True),
        ("GLM", "<tool_call>calc</tool_call>" + CALLS["GLM"], [], True),
        ("GLM", CALLS["GLM"].replace("\n", "\\n"), ["calc"], False),
        ("GLM", CALLS["GLM"] + "\nSee <function=foo>.", ["calc"], False),
        ("GLM", f"`<tool_call>` and `</tool_call>`:\n{CALLS['GLM']}", ["calc"], False),
        ("GLM", CALLS["GLM"].replace("2", "<tool_call>"), ["calc"], False),
        ("Llama", f"{LLAMA}; {LLAMA[:-1]}", [], True),
        ("Llama", f"{LLAMA[:-1]}; {LLAMA}", [], True),
        ("Llama", f"{LLAMA}; {LLAMA}", ["calc", "calc"], False),
        ("Llama", f"{LLAMA[:-1]}; {LLAMA.replace('calc', 'cook')}; {LLAMA}", [], True),
        ("Llama", LLAMA.replace("2", '{"name": "calc"}'), ["calc"], False),
        ("Llama", LLAMA.replace("2", '{"name": "calc", "name": "b"}'), ["calc"], False),
        ("Llama", LLAMA[:-1] + ', "arguments": {"name": "calc"}}', ["calc"], False),
        ("Mistral", '[TOOL_CALLS]calc[ARGS]{"a": 1}[TOOL_CALLS]calc[ARGS]{"a": ', [], True),
        ("Mistral", CALLS["Mistral"].replace("2", '"[TOOL_CALLS]"'), ["calc"], False),
        ("Pythonic", "[calc(a=1, b=2), calc(a=x)]", [], True),
        ("Pythonic", '[calc(a=1, b="[calc(a=(1))], calc(")]', ["calc"], False),
        ("GLM", CALLS["GLM"] + CALLS["GLM"].replace("calc", "cook"), ["calc", "cook"], False),
        ("Pythonic", "[calc(a=1, b=2), cook(a=1)]", ["calc", "cook"], False),
        ("Pythonic", '[calc(a=1, b="<think>")]', ["calc"], False),
        ("Pythonic", "Sort it with [sorted()].", [], False),
        ("Pythonic", "rows = [dict(a=1), dict(a=2)]", [], False),
        ("Pythonic", "[calc(a=1+1, b=2)]", [], True),
        ("Pythonic", "[\n  calc(a=1, b=2)\n]", [], True),
        ("Pythonic", "[functions.calc(a=1, b=2)]", [], True),
        ("Pythonic", '[calc(a=1, b="""Do "1) calc() 2) calc()" x""")]', ["calc"], False),
        ("Pythonic", "I use calc(1).", [], False),
        ("Llama", '{"name": "Alice", "age": 30}', [], False),
        ("Llama", '<|python_tag|>{"name": "cook", "parameters": {}}', ["cook"], False),
        ("Llama", '{"name": "calc", "arguments": {"a": 1, "b": 2}}', ["calc"], False),
        ("Llama", '{"type": "function", "name": "calc", "parameters": {"a": 1}}', ["calc"], False),
        ("Llama", '\n{\n  "name": "calc",\n  "parameters": {"a": 1}\n}', ["calc"], False),
        ("Llama", '{"answer": 3, "parameters": {"a": 1}}', [], False),
        ("Llama", '<|python_tag|>{"name": ', [], True),
        ("Hermes", '{"name": "calc", "arguments": {}}', [], False),
        ("Harmony", f'{HARMONY}{{"a": 1, "b": 2}}', ["calc"], False),
        ("Harmony", f'{HARMONY}{{"a": 1', [], True),
        ("Harmony", HARMONY.replace("calc", "cook") + "{}", ["cook"], False),
        ("Harmony", "<|channel|>final<|message|>42", [], False),
    ],
)
async def test_text_without_a_call_is_distinguished_from_a_malformed_call(
    engine: Engine, form: ToolCallFormat, text: str, names: list[str], malformed: bool
) -> None:
    parsed = await parse_calls(text, tools=[CALCULATOR], form=form, engine=engine)
    assert ([call.tool for call in parsed.calls], parsed.malformed) == (names, malformed)
