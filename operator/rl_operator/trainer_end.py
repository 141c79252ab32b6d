"""How a trainer's pod ended, in its own words."""

from __future__ import annotations

import signal

from rl_operator.snapshot import Container, Pod

SIGNALS = {one.value: one.name for one in signal.Signals}


def describe_end(pod: Pod | None, container: Container | None) -> tuple[str, str]:
    """Reason and message for a trainer pod that ended."""
    if pod is None:
        return "PodMissing", "The trainer's pod is gone and left no exit code."
    if container is None or container.exit_code is None:
        return pod.reason or "PodFailed", pod.trouble() or f"Pod {pod.name} ended without a code."
    code, number = container.exit_code, signal_of(container)
    by = f" by {SIGNALS.get(number, f'signal {number}')}" if number else ""
    reason = (
        container.exit_reason if container.exit_reason not in ("", "Error") else "TrainerFailed"
    )
    if reason == "Completed":
        reason = "TrainerFailed"
    last = container.message.strip()[-700:]
    return reason, f"Exit code {code}{by}." + (f" Last words: {last}" if last else "")


def container_of(pod: Pod | None) -> Container | None:
    """The trainer's container."""
    if pod is None:
        return None
    return next((one for one in pod.containers if one.name == "pytorch"), None)


def signal_of(container: Container) -> int:
    """Number of the signal that ended it, 0 when it ended by itself."""
    code = container.exit_code or 0
    return container.signal or (code - 128 if code > 128 else 0)
