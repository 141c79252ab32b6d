"""Kopf ends at once and without log lines of its own when a watched kind is gone."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_operator.cache.object_cache import ObjectCache
from rl_operator.kube import kinds, settings
from rl_operator.kube.settings import Settings
from rl_operator.watch import kopf_watches
from rl_operator.watch.informer import Informer
from rl_operator.watch.watchdog import KindGoneError, Watchdog
from rl_operator.watch.watches import required_watches
from tests.unit.rl_operator.kopf_server import KopfServer, serving
from tests.waiting import HUNG_SECONDS

ARGUMENTS = [
    "--namespace",
    "n",
    "--identity",
    "i",
    "--operator-image",
    "o:1",
    "--trainer-image",
    "t",
    "--sampler-image",
    "s",
    "--engine-image",
    "e",
]
SOON_SECONDS = 4.0
"""Kopf waits for five for what it has left behind."""


@pytest.fixture
def parsed() -> Settings:
    return settings.parse(ARGUMENTS)


@pytest.fixture
def server(
    parsed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KopfServer]:
    server = KopfServer(parsed)
    with serving(server) as url:
        config = {
            "current-context": "it",
            "users": [{"name": "it", "user": {"token": "t"}}],
            "clusters": [{"name": "it", "cluster": {"server": url}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield server


class Lost(Watchdog):
    """Tells when a watched kind is gone."""

    def __init__(self, parsed: Settings) -> None:
        super().__init__(required_watches(parsed), clock=time.monotonic, seconds=180)
        self.event = asyncio.Event()

    def lose(self, path: str) -> bool:
        lost = super().lose(path)
        if lost:
            self.event.set()
        return lost


async def test_kopf_ends_without_warnings_when_a_watched_kind_is_gone(
    server: KopfServer, parsed: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog = Lost(parsed)
    ready, stop = asyncio.Event(), asyncio.Event()
    informer = Informer(ObjectCache(), enqueue=lambda key: None)
    watching = asyncio.create_task(
        kopf_watches.watch(parsed, watchdog=watchdog, informer=informer, ready=ready, stop=stop)
    )
    assert await asyncio.to_thread(server.all_watched.wait, HUNG_SECONDS)
    server.lose(kinds.PYTORCH_JOB)
    await asyncio.wait_for(watchdog.event.wait(), HUNG_SECONDS)
    with pytest.raises(KindGoneError, match="pytorchjobs"):
        watchdog.check()
    stop.set()
    done, _ = await asyncio.wait({watching}, timeout=SOON_SECONDS)
    assert done == {watching}
    watching.result()
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ] == []
