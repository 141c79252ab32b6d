"""The agent's client of the container ``code``: nothing that this answers is trusted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rl_sampler.code.client import CodeContainer, CodeContainerError
from rl_sampler.code.replies import Called, Described, Move, Scored
from rl_sampler.code.wire import MAX_LINE_BYTES, failure, line
from rl_sampler.engine.counters import Counters

REQUEST = {"call": "score"}


@asynccontextmanager
async def answering(folder: Path, answer: bytes) -> AsyncIterator[CodeContainer]:
    """A container whose server says the same to everything."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(accept, folder / "calls"):
        yield CodeContainer(folder / "calls", counters=Counters(), start_seconds=0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "ended during the call"),
        (b'{"value": 0.5}', "ended during the call"),
        (b"I am no JSON\n", "cannot be used"),
        (b"[" * 100_000 + b"\n", "cannot be used"),
        (b'{"value": 7}\n', "cannot be used: value"),
        (b'{"value": NaN}\n', "cannot be used: value"),
        (b'{"value": "0.5", "also": 1}\n', "cannot be used: also"),
        (line({"failure": {"kind": "ours", "message": ""}}), "cannot be used: failure.kind"),
        (b'{"value": 0.5, "x": "' + b"x" * MAX_LINE_BYTES + b'"}\n', "does not answer"),
    ],
)
async def test_answers_out_of_form_are_errors_and_no_rewards(
    tmp_path: Path, answer: bytes, reason: str
) -> None:
    async with answering(tmp_path, answer) as code:
        with pytest.raises(CodeContainerError, match=reason) as failed:
            await code.ask(REQUEST, Scored, seconds=60)
    assert len(str(failed.value)) < 300


async def test_calls_are_counted_by_outcome(tmp_path: Path) -> None:
    answers = [
        ("answered", line({"value": 1})),
        ("failed", line(failure("user", "x" * 5000))),
        ("failed", b"I am no JSON\n"),
        ("late", line(failure("time", "took more than 1 s"))),
        ("lost", b""),
    ]
    for number, (outcome, answer) in enumerate(answers):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with answering(folder, answer) as code:
            try:
                await code.ask(REQUEST, Scored, seconds=60)
            except CodeContainerError:
                assert not answer.startswith(b"{")
        assert dict(code._counters.code_calls) == {("score", outcome): 1}


async def test_a_call_of_several_messages_is_counted_once_it_is_over(tmp_path: Path) -> None:
    async with answering(tmp_path, line({"do": "respond"}) + line({"reason": "stop"})) as code:
        async with code.call({"call": "act"}) as channel:
            assert (await channel.receive(Move)).do == "respond"
            assert (await channel.receive(Move)).do is None
            assert not code._counters.code_calls
        assert dict(code._counters.code_calls) == {("act", "answered"): 1}


async def test_a_container_that_reads_nothing_is_given_up_in_time(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_unix_server(accept, tmp_path / "calls", limit=1024):
        code = CodeContainer(tmp_path / "calls", counters=Counters(), start_seconds=0)
        with pytest.raises(TimeoutError):
            await code.ask({"call": "score", "text": "x" * (8 << 20)}, Scored, seconds=0.05)
        over.set()
    assert dict(code._counters.code_calls) == {("score", "late"): 1}


async def test_silent_container_is_given_up_in_time(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_unix_server(accept, tmp_path / "calls"):
        code = CodeContainer(tmp_path / "calls", counters=Counters(), start_seconds=0)
        with pytest.raises(TimeoutError):
            await code.ask(REQUEST, Scored, seconds=0.05)
        await closed.wait()  # so the server knows that the call is over
    assert dict(code._counters.code_calls) == {("score", "late"): 1}
    with pytest.raises(CodeContainerError, match="does not listen"):
        await code.ask(REQUEST, Scored, seconds=60)


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (Move.model_validate, {"do": "read the agent's files"}),
        (Move.model_validate, {"do": "show", "messages": [{"role": "root", "content": "x"}]}),
        (Move.model_validate, {"do": "show", "messages": [{"role": "user", "content": [1]}]}),
        (Move.model_validate, {"do": "respond", "limit": 0}),
        (Move.model_validate, {"reason": "because"}),
        (Described.model_validate, {"tools": [{"name": "x" * 999, "parameters": {}}]}),
        (Called.model_validate, {"text": 5}),
    ],
)
def test_moves_and_results_have_a_closed_form(
    make: Callable[[object], object], bad: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="validation error"):
        make(bad)
