"""Counts what a process sends to the document store, by PyMongo's command monitoring."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import bson
from pymongo import monitoring

HEADER_BYTES = 21
"""Of a message with one document (OP_MSG): header, flags and the kind of its section."""


@dataclass
class CommandCounts(monitoring.CommandListener):
    """Commands and bytes, requests and replies together, by command and collection."""

    commands: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    _names: dict[int, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Count a request."""
        name = f"{event.command_name} {self._collection(event)}".strip()
        size = _size(event.command)
        with self._lock:
            self._names[event.request_id] = name
            self.commands[name] += 1
            self.bytes[name] += size

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Count a reply."""
        size = _size(event.reply)
        with self._lock:
            self.bytes[self._names.pop(event.request_id)] += size

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Forget a request without a reply."""
        with self._lock:
            self._names.pop(event.request_id, None)

    def snapshot(self) -> dict[str, list[int]]:
        """Commands and bytes so far, by name."""
        with self._lock:
            return {name: [self.commands[name], self.bytes[name]] for name in self.commands}

    @staticmethod
    def _collection(event: monitoring.CommandStartedEvent) -> str:
        value = event.command.get(
            "collection" if event.command_name == "getMore" else event.command_name
        )
        return value if isinstance(value, str) else ""


def _size(document: Any) -> int:
    return len(bson.encode(document)) + HEADER_BYTES


def registered() -> CommandCounts:
    """Count the commands of all clients that this process makes from now on."""
    counts = CommandCounts()
    monitoring.register(counts)
    return counts
