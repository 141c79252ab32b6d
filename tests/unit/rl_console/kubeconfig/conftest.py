"""Servers that a kubeconfig names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.rl_console.kubeconfig.listening import Heard, serving


@pytest.fixture
def server() -> Iterator[Heard]:
    with Heard() as started:
        yield from serving(started)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Heard]:
    """By TLS: a user's credentials are sent to no other server."""
    with Heard() as started:
        started.use_tls(tmp_path)
        yield from serving(started)
