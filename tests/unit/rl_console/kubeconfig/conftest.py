"""Servers that a kubeconfig names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.rl_console.kubeconfig.recording_server import RecordingServer, serving


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with RecordingServer() as started:
        yield from serving(started)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[RecordingServer]:
    """By TLS: a user's credentials are sent to no other server."""
    with RecordingServer() as started:
        started.use_tls(tmp_path)
        yield from serving(started)
