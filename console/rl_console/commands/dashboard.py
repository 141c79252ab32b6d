"""``dashboard``: pages about runs, served from this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.invocation import Invocation, OperatorNamespace, add
from rl_console.tools import OPERATOR_NAMESPACE


def dashboard(
    invocation: Invocation,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1. 0: any that is free.")
    ] = 0,
    operator_namespace: OperatorNamespace = OPERATOR_NAMESPACE,
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the address in the browser.")
    ] = False,
) -> None:
    """Show runs in a browser, with the rights of your kubeconfig. Ends with Ctrl-C.

    Nothing is installed into the cluster and nothing is changed. The pages are served on this
    machine alone, and need the key in the address that is printed.
    """
    from rl_console.dashboard.serve import serve
    from rl_console.queries.cluster_source import PAGE_SECONDS, ClusterSource

    cluster = invocation.cluster()
    source = ClusterSource(
        cluster,
        invocation.tools,
        operator_namespace=operator_namespace,
        patience_seconds=PAGE_SECONDS,
    )
    try:
        serve(source, namespace=cluster.default_namespace, port=port, browser=browser)
    finally:
        source.close()


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(app, dashboard, examples=["dashboard -n research", "dashboard --port 8900 --browser"])
