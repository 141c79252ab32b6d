"""Values of the installed chart that a test changes and changes back."""

from __future__ import annotations

import json

from rl_console import tools
from rl_console.demo.settings import RELEASE, RELEASE_NAMESPACE, DemoSettings

HELM_SECONDS = 300.0


def switch(settings: DemoSettings, value: str, *, on: bool) -> None:
    """Set a value, e.g. ``kueue.enabled``, and wait for the operator that has it."""
    command = settings.tools.helm_command(
        "upgrade",
        RELEASE,
        str(settings.checkout / "charts" / RELEASE),
        "--reuse-values",
        "--namespace",
        RELEASE_NAMESPACE,
        "--set",
        f"{value}={json.dumps(on)}",
        "--wait",
        "--timeout",
        f"{HELM_SECONDS:.0f}s",
    )
    tools.run(command, seconds=HELM_SECONDS + 20, doing=f"{value} = {on}")
