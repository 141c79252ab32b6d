"""An agent whose stores refuse it shows none of its secrets: a canary in each."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import Pod, pods_in
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

NOWHERE = "http://127.0.0.1:1"
CANARIES = {
    name: f"canary{secrets.token_hex(12)}"
    for name in ("user", "password", "access", "secret", "tool")
}
SECTIONS: dict[str, Any] = {
    "agent": {
        "kind": "ToolLoop",
        "mcpServers": [
            {"name": "search", "url": f"{NOWHERE}/mcp", "tokenSecretRef": {"name": "tools"}}
        ],
        "sampling": {"maxTokensPerTurn": 8, "maxContextTokens": 64},
    }
}
PROBLEMS = {"bucket refuses": "bucket", "state store refuses": "store"}


def refuse(pod: Pod, settings: StoreSettings, problem: str) -> None:
    """Give the pod settings with canaries, which the servers do not know."""
    values = settings.to_mapping()
    _, _, host = values["mongoUri"].partition("://")
    user = f"{CANARIES['user']}:{CANARIES['password']}"
    if problem == "state store refuses":
        values["mongoUri"] = f"mongodb://{user}@{host}"
    values |= {"s3AccessKey": CANARIES["access"], "s3SecretKey": CANARIES["secret"]}
    for key, value in values.items():
        (pod.folder / "stores" / key).write_text(value)
    token = pod.folder / "tools" / "search" / "token"
    token.parent.mkdir(parents=True)
    token.write_text(CANARIES["tool"])


def texts(pod: Pod) -> Iterator[tuple[str, str]]:
    """All that the agent shows to those who may read its log or reach its port."""
    yield "log", pod.log()
    for path in ("/ready", "/live", "/engine-live", "/metrics"):
        yield path, pod.get(path)[1]


@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_agent_whose_stores_refuse_it_shows_no_secret(
    problem: str,
    tmp_path: Path,
    trainer: ScriptedTrainer,
    store_settings: StoreSettings,
    stores: Stores,
    fork_server: ForkServer,
) -> None:
    with pods_in(tmp_path, engine_url=NOWHERE, launch=fork_server.launch) as new:
        pod = new("pod-a", settings=store_settings, stores=stores, sections=SECTIONS)
        assert pod.stage().returncode == 0
        refuse(pod, store_settings, problem)
        trainer.publish(seed=1)  # something to fetch from the bucket
        pod.serve()

        def has_problem() -> bool:
            try:
                status, text = pod.get("/ready")
            except OSError:
                return False
            return status == 503 and PROBLEMS[problem] in text

        until(has_problem, what="the agent's problem", seconds=30, seen=pod.log)
        shown = {
            (what, name)
            for what, text in texts(pod)
            for name, value in CANARIES.items()
            if value in text
        }
        assert shown == set()
