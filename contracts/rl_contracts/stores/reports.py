"""Where a run's metrics and report lie: one folder for each epoch, since S3 has no fencing."""

from __future__ import annotations

from rl_contracts.errors import ObjectMissingError
from rl_contracts.stores.objects import Objects

METRICS, REPORT = "metrics.jsonl", "report.json"


def key(run_prefix: str, name: str, *, epoch: int) -> str:
    """Key of what the trainer of an epoch writes under ``name``."""
    return f"{run_prefix}reports/{epoch}/{name}"


def samples_key(run_prefix: str, window: int) -> str:
    """Key of the JSON Lines of a window (from 0) of a run that only samples."""
    return f"{run_prefix}samples/{window:08d}.jsonl"


def newest(objects: Objects, run_prefix: str, name: str) -> bytes:
    """What the newest epoch that wrote ``name`` wrote, whatever an older one writes later.

    Raises:
        ObjectMissingError: none has written it yet.
    """
    root = f"{run_prefix}reports/"
    epochs = []
    for stored_object in objects.list(root):
        epoch, _, file = stored_object.key.removeprefix(root).partition("/")
        if file == name and epoch.isdigit():
            epochs.append(int(epoch))
    if not epochs:
        raise ObjectMissingError(objects.uri(f"{root}*/{name}"))
    return objects.get(key(run_prefix, name, epoch=max(epochs)))
