"""What an agent asks of the document store, counted over its real loops with faster clocks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.sampler import fleet
from benchmarks.sampler.protocol.remote import Remote
from tests.servers import StoreServer

AGENTS, FACTOR = 2, 0.25
WARM_SECONDS, SECONDS = 12.0, 16.0
"""On clocks that are four times as fast."""


@pytest.mark.soak
def test_an_agents_connections_commands_and_bytes_per_second_are_bounded(
    store_server: StoreServer, tmp_path: Path
) -> None:
    port = int(store_server.uri.rstrip("/").rpartition(":")[2])
    trainer = Remote("trainer", factor=FACTOR, uri=store_server.uri, agents=AGENTS)
    agents: Remote | None = None
    try:
        trainer.wait_ready()
        before = fleet.connections_to(port)
        where = str(tmp_path / "agents")
        agents = Remote(
            "agents",
            factor=FACTOR,
            uri=store_server.uri,
            first=0,
            end=AGENTS,
            folder=where,
            relay=True,
        )
        agents.wait_ready()
        time.sleep(WARM_SECONDS * FACTOR)  # agents poll faster in the beginning
        counted = agents.ask("counts")
        time.sleep(SECONDS * FACTOR)  # the window whose rates are counted
        rates = fleet.rates_of(counted, agents.ask("counts")).values()
        connections = fleet.connections_to(port) - before
    finally:
        for process in (trainer, agents):
            if process is not None:
                process.end()
    assert connections <= AGENTS * fleet.CONNECTIONS
    assert sum(commands for commands, _ in rates) <= AGENTS * fleet.COMMANDS
    assert 0 < sum(size for _, size in rates) <= AGENTS * fleet.BYTES
