"""A web application of this process on a port of its own, for a real browser."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tests.servers import free_port
from tests.waiting import until


@contextlib.contextmanager
def served(app: ASGIApp, **options: Any) -> Iterator[int]:
    """The port on 127.0.0.1 while the context lasts; ``options`` are uvicorn's."""
    port = free_port()
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=1,
        **options,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, what="the web application")
        yield port
    finally:
        server.should_exit = True
        thread.join()
