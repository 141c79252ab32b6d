"""What the shared dashboard answers without the API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from anyio.to_thread import current_default_thread_limiter

from rl_console.dashboard.gate import HEALTH
from rl_console.dashboard.shared import shared_application
from rl_console.dashboard.viewers import Viewers

NOWHERE = Viewers("https://127.0.0.1:9", authorities=Path("absent"), operator_namespace="absent")
DEADLINE_SECONDS = 20.0


def test_a_probe_is_answered_while_every_thread_is_busy() -> None:
    """Else slow stores or a slow API server would have the kubelet end the pod."""
    app, sent = shared_application(NOWHERE), list[dict[str, Any]]()
    scope = {"type": "http", "method": "GET", "path": HEALTH, "query_string": b"", "headers": []}

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def probe() -> None:
        threads = current_default_thread_limiter()
        threads.total_tokens = 1
        async with threads:
            await asyncio.wait_for(app(scope, receive, send), DEADLINE_SECONDS)

    asyncio.run(probe())
    assert (sent[0]["status"], sent[1]["body"]) == (200, b"ok")
