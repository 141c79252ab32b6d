"""``python -m rl_console.dashboard``: the dashboard of the chart, in a pod."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from rl_console.dashboard.connections import CONNECTIONS, YieldingConnection
from rl_console.dashboard.shared import shared_application
from rl_console.dashboard.viewers import Viewers

AUTHORITIES = Path("/etc/rl-dashboard/cluster/ca.crt")
STOP_SECONDS = 5
CONNECTIONS_ANSWERED = 2 * CONNECTIONS
"""Beyond them a request is answered with the status 503."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    options = _parser().parse_args(arguments)
    viewers = Viewers(
        options.server,
        authorities=options.authorities,
        operator_namespace=options.operator_namespace,
    )
    tls: dict[str, Path] = {}
    if options.tls_folder is not None:
        tls = {
            "ssl_certfile": options.tls_folder / "tls.crt",
            "ssl_keyfile": options.tls_folder / "tls.key",
        }
    uvicorn.run(
        shared_application(viewers),
        host=options.host,
        port=options.port,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        http=YieldingConnection,
        limit_concurrency=CONNECTIONS_ANSWERED,
        timeout_graceful_shutdown=STOP_SECONDS,
        **tls,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rl_console.dashboard", description=__doc__)
    parser.add_argument("--server", default=_server(), help="URL of the API server")
    parser.add_argument("--authorities", type=Path, default=AUTHORITIES)
    parser.add_argument("--operator-namespace", required=True)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--tls-folder", type=Path, help="with tls.crt and tls.key")
    return parser


def _server() -> str:
    """The API server of a pod: Kubernetes sets its address."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


if __name__ == "__main__":
    main()
