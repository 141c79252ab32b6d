"""Each piece of a watch's answer is a sign of life; a silent watch is named."""

from __future__ import annotations

import asyncio
from unittest.mock import ANY

import pytest
from aiohttp import web

from rl_operator.watch.watchdog import KindGoneError, Watchdog, WatchSilentError, session_for

PODS, JOBS = "/api/v1/pods", "/apis/rl-operator.io/v1alpha1/rljobs"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_silent_watch_is_named_and_a_heard_one_is_not() -> None:
    clock = Clock()
    watchdog = Watchdog([PODS, JOBS], clock=clock, seconds=180)
    clock.now = 100
    watchdog.hear(f"/behind/a/prefix{PODS}")
    clock.now = 180
    watchdog.check()
    clock.now = 181
    with pytest.raises(WatchSilentError) as caught:
        watchdog.check()
    assert caught.value.paths == (JOBS,)
    assert watchdog.silences() == {PODS: 81, JOBS: 181}


def test_an_optional_watch_counts_from_its_first_sign_of_life() -> None:
    clock = Clock()
    watchdog = Watchdog([], clock=clock, seconds=180)
    clock.now = 1000
    watchdog.check()
    watchdog.hear("/apis/kubeflow.org/v1/pytorchjobs")
    clock.now = 1181
    with pytest.raises(WatchSilentError, match="pytorchjobs"):
        watchdog.check()


class Counted(Watchdog):
    """Counts what it hears."""

    def __init__(self) -> None:
        super().__init__([JOBS], clock=Clock(), seconds=180)
        self.times, self.lost = 0, asyncio.Event()

    def hear(self, path: str) -> None:
        super().hear(path)
        self.times += 1

    def lose(self, path: str) -> bool:
        lost = super().lose(path)
        if lost:
            self.lost.set()
        return lost


def test_a_watched_kind_that_is_gone_is_named() -> None:
    watchdog = Watchdog([PODS], clock=Clock(), seconds=180)
    watchdog.lose("/apis/kubeflow.org/v1/pytorchjobs")  # nobody watches it
    watchdog.lose("/elsewhere")
    watchdog.check()
    watchdog.lose(f"/behind/a/prefix{PODS}")
    with pytest.raises(KindGoneError, match="restarting to watch the kinds") as caught:
        watchdog.check()
    assert caught.value.paths == (PODS,)


async def _answer(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for piece in (b'{"type":"BOOKMARK"}\n', b'{"type":"BOOKMARK"}\n'):
        await response.write(piece)
        await asyncio.sleep(0)
    return response


def ignored(*_: object) -> None:
    """No object is told."""


async def _read(
    query: str, *, of: str = PODS, watchdog: Counted | None = None
) -> tuple[bytes, Counted]:
    """What a client reads of the stream, and what was heard of the watch meanwhile."""
    application = web.Application()
    application.router.add_get(PODS, _answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    watchdog = watchdog or Counted()
    try:
        async with (
            session_for(watchdog, on_object=ignored, on_list=ignored) as session,
            session.get(f"{server}{of}{query}") as response,
        ):
            read = b"".join([piece async for piece in response.content.iter_chunked(1 << 20)])
    finally:
        await runner.cleanup()
    return read, watchdog


def test_each_piece_of_a_watch_is_a_sign_of_life_and_is_passed_on() -> None:
    read, watchdog = asyncio.run(_read("?watch=true"))
    assert read == b'{"type":"BOOKMARK"}\n' * 2
    assert watchdog.times >= 2  # the answer's begin, and its pieces as they came


def test_a_list_is_no_sign_of_life_of_a_watch() -> None:
    assert asyncio.run(_read(""))[1].times == 0


@pytest.mark.parametrize("query", ["", "?watch=true"])
async def test_a_request_for_a_watched_kind_that_is_gone_gets_no_answer(query: str) -> None:
    watchdog = Counted()
    asking = asyncio.create_task(_read(query, of=JOBS, watchdog=watchdog))
    await watchdog.lost.wait()
    assert watchdog.times == 0
    with pytest.raises(KindGoneError, match="rljobs"):
        watchdog.check()
    _, waits = await asyncio.wait({asking}, timeout=0.05)
    assert waits == {asking}  # kopf, which would fail in many words, is told nothing
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_request_for_an_unwatched_kind_that_is_gone_gets_its_404() -> None:
    assert await _read("", of="/apis/elsewhere") == (b"404: Not Found", ANY)
