"""The socket on which the trainer of the same pod asks for turns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import ValidationError

from rl_contracts.turns import MAX_LINE_BYTES, SOCKET, TurnAnswer, TurnRequest
from rl_sampler.engine.turns import TurnError, Turns

logger = logging.getLogger(__name__)

ASK_SECONDS = 10.0
"""Longest time for a request to arrive on an open connection."""
MESSAGE_CHARACTERS = 2000


@asynccontextmanager
async def serving_turns(turns: Turns | None, folder: Path | None) -> AsyncIterator[None]:
    """Answer the trainer until the block ends; does nothing where the devices are not shared."""
    if turns is None or folder is None:
        yield
        return
    path = folder / SOCKET
    path.unlink(missing_ok=True)  # of an earlier process

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError):  # the trainer has gone, or asks again
            async with asyncio.timeout(ASK_SECONDS):
                asked = await reader.readline()
            answer = await _answer(turns, asked)
            writer.write(answer.model_dump_json().encode() + b"\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, path, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()


async def _answer(turns: Turns, asked: bytes) -> TurnAnswer:
    try:
        request = TurnRequest.model_validate_json(asked)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return TurnAnswer(granted=False, message=f"malformed request: {first['msg']}")
    try:
        await turns.take(request)
    except TurnError as error:
        logger.warning("%s", error)
        return TurnAnswer(granted=False, message=str(error)[:MESSAGE_CHARACTERS])
    logger.info("turn %s of version %d", request.turn, request.version)
    return TurnAnswer(granted=True)
