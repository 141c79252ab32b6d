"""Keys of a run's metrics and report: a folder for each epoch, because S3 has no fencing."""

from __future__ import annotations

from rl_contracts.errors import ObjectMissingError
from rl_contracts.stores.objects import Objects

METRICS_BYTES = 1 << 30
"""Largest ``metrics.jsonl`` that is read: some 500,000 steps."""
METRICS, COLUMNS, REPORT = "metrics.jsonl", "metrics.columns", "report.json"


def key(run_prefix: str, name: str, *, epoch: int) -> str:
    """Key of the file ``name`` that the trainer of an epoch writes."""
    return f"{run_prefix}reports/{epoch}/{name}"


def samples_key(run_prefix: str, window: int) -> str:
    """Key of the JSON Lines file of a window (from 0) of a run that only samples."""
    return f"{run_prefix}samples/{window:08d}.jsonl"


def newest(objects: Objects, run_prefix: str, name: str) -> bytes:
    """Read the file ``name`` of the newest epoch that wrote it.

    A replaced trainer may still write under its older epoch; that file is ignored.

    Raises:
        ObjectMissingError: no epoch has written it yet.
    """
    return objects.get(newest_key(objects, run_prefix, name), most=METRICS_BYTES)


def newest_key(objects: Objects, run_prefix: str, name: str) -> str:
    """Key of the file that ``newest`` reads; raises as ``newest``."""
    root = f"{run_prefix}reports/"
    epochs = []
    for stored_object in objects.list(root):
        epoch, _, file = stored_object.key.removeprefix(root).partition("/")
        if file == name and epoch.isdigit():
            epochs.append(int(epoch))
    if not epochs:
        raise ObjectMissingError(objects.uri(f"{root}*/{name}"))
    return key(run_prefix, name, epoch=max(epochs))
