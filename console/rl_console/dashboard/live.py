"""Server-sent events: steps as they are trained, and the job's state."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from rl_console.dashboard.jobs import job_row
from rl_console.dashboard.panels import COLUMNS
from rl_console.dashboard.streams import Streams
from rl_console.dashboard.threads import Threads
from rl_console.errors import ConsoleError
from rl_console.queries.source import Source, answer
from rl_contracts.queries.answers import MetricsAnswer
from rl_contracts.queries.kinds import MetricsQuery

SECONDS = 3.0
"""Between two looks at a run."""
MOST_SECONDS = 3600.0
"""Then the browser connects again."""
POINTS = 500


async def live(source: Source, request: Request) -> Response:
    """A stream of events ``steps`` (metrics after the last one sent) and ``state``."""
    if not request.app.state.streams.has_place(request.state.who):
        return PlainTextResponse("Too many pages are live.", 503)
    after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    first = int(after) if after.isdigit() and len(after) < 10 else 0
    stream = _events(source, request, first)
    return StreamingResponse(stream, media_type="text/event-stream")


async def _events(source: Source, request: Request, after: int) -> AsyncIterator[str]:
    streams: Streams = request.app.state.streams
    threads: Threads = request.app.state.reading_threads
    stream = streams.take(request.state.who)
    if stream is None:
        return
    try:
        yield "retry: 5000\n\n"
        ends = asyncio.get_running_loop().time() + MOST_SECONDS
        while not stream.over.is_set() and asyncio.get_running_loop().time() < ends:
            if await request.is_disconnected():
                return
            for name, values in await threads.run(_look, source, request, after):
                if name == "steps":
                    after = values["steps"][-1]
                yield _event(name, values, after)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    await stream.over.wait()
    finally:
        streams.leave(stream)


def _look(source: Source, request: Request, after: int) -> list[tuple[str, dict[str, Any]]]:
    namespace, job = request.path_params["namespace"], request.path_params["job"]
    query = MetricsQuery(columns=COLUMNS, first=after + 1, points=POINTS)
    try:
        row = asdict(job_row(source.job(namespace, job)))
        given = answer(source, namespace, job, query, MetricsAnswer, patient=False)
    except ConsoleError as error:
        return [("problem", {"problem": str(error)})]
    events: list[tuple[str, dict[str, Any]]] = [("state", row)]
    return [*events, ("steps", given.model_dump())] if given.steps else events


def _event(name: str, values: dict[str, Any], after: int) -> str:
    return f"event: {name}\nid: {after}\ndata: {json.dumps(values)}\n\n"
