"""Serves the dashboard on this machine until it is interrupted."""

from __future__ import annotations

import logging
import socket
import webbrowser

import uvicorn

from rl_console.dashboard.app import application
from rl_console.dashboard.guard import KEY, new_key
from rl_console.errors import UsageError
from rl_console.queries.source import Source

HOST = "127.0.0.1"
STOP_SECONDS = 2
"""Live pages keep their connections: they are not waited for."""


class _Server(uvicorn.Server):  # type: ignore[misc]
    """Ends live pages first: browsers would hold their connections for ever."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.streams.end()
        # Requests that wait for the API server are cancelled, each with a traceback otherwise.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def serve(source: Source, *, namespace: str, port: int, browser: bool) -> None:
    """Print the address, and serve until Ctrl-C.

    Args:
        source: with the user's rights.
        namespace: shown first.
        port: on the loopback interface; 0: any that is free.
        browser: whether to open the address.

    Raises:
        UsageError: the port is taken.
    """
    key = new_key()
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listening:
        try:
            listening.bind((HOST, port))
            listening.listen()
        except OSError as error:
            raise UsageError(
                f"port {port} of {HOST} cannot be used: {error.strerror}",
                remedy="Choose another one with --port, or 0 for any that is free",
            ) from error
        address = f"http://{HOST}:{listening.getsockname()[1]}/?{KEY}={key}"
        print(f"Dashboard of {namespace}: {address}\nCtrl-C ends it.", flush=True)
        if browser:
            webbrowser.open(address)
        app = application(source, key=key, namespace=namespace)
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=STOP_SECONDS, access_log=False
        )
        _Server(config).run(sockets=[listening])
