"""Watches are heard of by each piece of their answers; one that falls silent is named."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from rl_operator.watchdog import Streams, WatchSilentError, session_for

PODS, JOBS = "/api/v1/pods", "/apis/rl-operator.io/v1alpha1/rljobs"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_silent_watch_is_named_and_a_heard_one_is_not() -> None:
    clock = Clock()
    streams = Streams([PODS, JOBS], clock=clock, seconds=180)
    clock.now = 100
    streams.hear(f"/behind/a/prefix{PODS}")
    clock.now = 180
    streams.check()
    clock.now = 181
    with pytest.raises(WatchSilentError) as caught:
        streams.check()
    assert caught.value.paths == (JOBS,)
    assert streams.silences() == {PODS: 81, JOBS: 181}


def test_a_kind_that_need_not_be_there_counts_once_it_was_heard_of() -> None:
    clock = Clock()
    streams = Streams([], clock=clock, seconds=180)
    clock.now = 1000
    streams.check()
    streams.hear("/apis/kubeflow.org/v1/pytorchjobs")
    clock.now = 1181
    with pytest.raises(WatchSilentError, match="pytorchjobs"):
        streams.check()


class Counted(Streams):
    """Counts what it hears."""

    def __init__(self) -> None:
        super().__init__([], clock=Clock(), seconds=180)
        self.times = 0

    def hear(self, path: str) -> None:
        super().hear(path)
        self.times += 1


async def _answer(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for piece in (b'{"type":"BOOKMARK"}\n', b'{"type":"BOOKMARK"}\n'):
        await response.write(piece)
        await asyncio.sleep(0)
    return response


async def _read(query: str) -> tuple[bytes, int]:
    """What a client reads of the stream, and how often the watch was heard of meanwhile."""
    application = web.Application()
    application.router.add_get(PODS, _answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    streams = Counted()
    async with session_for(streams) as session, session.get(f"{server}{PODS}{query}") as response:
        read = b"".join([piece async for piece in response.content.iter_chunked(1 << 20)])
    await runner.cleanup()
    return read, streams.times


def test_each_piece_of_a_watch_is_heard_and_passed_on() -> None:
    read, heard = asyncio.run(_read("?watch=true"))
    assert read == b'{"type":"BOOKMARK"}\n' * 2
    assert heard >= 2  # the answer's begin, and its pieces as they came


def test_a_list_is_no_watch() -> None:
    assert asyncio.run(_read(""))[1] == 0
