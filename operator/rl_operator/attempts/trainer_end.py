"""How a trainer's pod ended, in its own words."""

from __future__ import annotations

import signal

from rl_operator.state.pod import Container, Pod

SIGNALS = {Signal.value: Signal.name for Signal in signal.Signals}


def describe_end(pod: Pod | None, container: Container | None) -> tuple[str, str]:
    """Reason and message for a trainer pod that ended."""
    if pod is None:
        told = "The trainer's pod is gone and left no exit code: it was deleted, or its node was."
        return "PodMissing", told
    if container is None or container.exit_code is None:
        ended = f"Pod {pod.name} {'is being deleted' if pod.deleting else 'ended without a code'}."
        told = " ".join(filter(None, (ended, pod.message or pod.trouble())))
        return pod.reason or ("PodDeleted" if pod.deleting else "PodFailed"), told
    code, number = container.exit_code, signal_of(container)
    by = f" by {SIGNALS.get(number, f'signal {number}')}" if number else ""
    # What ended the whole pod, such as an eviction, says more than how its process took it.
    reason = pod.reason or container.exit_reason
    if reason in ("", "Error", "Completed"):
        reason = "TrainerFailed"
    last = container.message.strip()[-700:]
    words = [pod.message, f"Exit code {code}{by}.", f"Last words: {last}" if last else ""]
    return reason, " ".join(filter(None, words))


def container_of(pod: Pod | None) -> Container | None:
    """The trainer's container."""
    if pod is None:
        return None
    return next((container for container in pod.containers if container.name == "pytorch"), None)


def signal_of(container: Container) -> int:
    """Number of the signal that ended it, 0 when it ended by itself."""
    code = container.exit_code or 0
    return container.signal or (code - 128 if code > 128 else 0)
