"""The tool ``search`` and the example's retrieval service, a process of its own."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_contracts.documents.sampler import SEARCH_SERVICE
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.completions.failover import Failovers
from rl_sampler.completions.guard import open_outside
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.tools import search
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.toolbox import Toolbox
from rl_sampler.tools.waiting import WaitingToolbox
from rl_sampler.user_code.components import load_components
from tests.samples.manifests import ROOT, a_job
from tests.servers import free_port
from tests.unit.rl_sampler.agents.scripted import call, play
from tests.waiting import HUNG_SECONDS, until

SERVER = ROOT / "examples" / "search" / "server.py"
LOCKER = (12, 34)


class Service:
    """The example's server, on one port."""

    def __init__(self, collection: Path) -> None:
        self._port = free_port()
        self.collection, self.url = collection, f"http://127.0.0.1:{self._port}/retrieve"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        options = ("--collection", str(self.collection), "--port", str(self._port))
        command = [sys.executable, str(SERVER), *options, "--host", "127.0.0.1"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"listening on port {self._port}\n"

    def stop(self) -> int:
        """End it as the kubelet does; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        process.communicate(timeout=HUNG_SECONDS)
        return process.returncode

    def post(self, body: bytes) -> tuple[int, Any]:
        request = urllib.request.Request(self.url, body)
        try:
            with urllib.request.urlopen(request, timeout=HUNG_SECONDS) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "agents"))
    return importlib.import_module("tasks")


@pytest.fixture
def service(tasks: ModuleType, tmp_path: Path) -> Iterator[Service]:
    path = tmp_path / "collection.jsonl"
    tasks.write_collection(path, (LOCKER, *tasks.split().test))
    service = Service(path)
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture
async def toolbox(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[WaitingToolbox, Outages]]:
    """The tools of a manifest with the service, as an agent makes them."""
    monkeypatch.setattr(search, "PAUSES_SECONDS", (0.0, 0.0))
    agent = {"kind": "ToolLoop", "builtInTools": ["Search"], "search": {"url": service.url}}
    spec = RLJobSpec.model_validate(a_job(agent=agent)["spec"])
    problems, counters = Problems(), Counters()
    outages = Outages(serving=Serving(), problems=problems)
    async with open_outside() as session:
        failovers = Failovers(session=session, secrets=tmp_path, counters=counters, outages=outages)
        components = await load_components(
            spec,
            failovers=failovers,
            sandbox=None,
            code=None,
            problems=problems,
            stop=asyncio.Event(),
        )
        assert components is not None
        tools = Toolbox([], secrets=tmp_path, longest=2000, counters=counters, own=components.tools)
        waiting = WaitingToolbox(tools, outages=outages)
        yield waiting, outages
        await waiting.close()


async def test_an_episode_searches_and_reads_what_the_warm_start_of_the_example_saw(
    toolbox: tuple[WaitingToolbox, Outages], tasks: ModuleType
) -> None:
    box, _ = toolbox
    _, read, answer = tasks.TASKS["search"].right(*LOCKER)
    script = [call(tool="search", query="1234"), answer["content"]]
    played = await play(script, offered=await box.open())
    assert played.reason is StopReason.STOP
    (made,) = played.member.turns[0].calls
    assert (made.tool, made.outcome, made.result) == ("search", "answered", read["content"])
    assert f"The code is {tasks.code(*LOCKER)}." in played.policy.contexts[1]


async def test_the_same_query_finds_the_same_documents_the_best_first(
    toolbox: tuple[WaitingToolbox, Outages], tasks: ModuleType
) -> None:
    box, _ = toolbox
    tools = await box.open()

    async def results_for(query: str) -> str:
        arguments = json.dumps({"query": query})
        return (await tools.call(WantedCall(tool="search", arguments=arguments))).result

    many = await results_for("What is the code of locker 1234?")
    assert many.startswith("Doc 1 (Title: Locker 1234)\nThe code is ")
    assert "Doc 3 (Title: Locker " in many
    assert "Doc 4" not in many
    assert {await results_for("What is the code of locker 1234?") for _ in range(5)} == {many}
    assert await results_for("nothing here") == search.NOTHING
    assert await results_for("\"; DROP TABLE documents; -- ' * NEAR(") == search.NOTHING


async def test_a_service_that_ends_is_no_result_and_is_waited_for(
    toolbox: tuple[WaitingToolbox, Outages], service: Service
) -> None:
    box, outages = toolbox
    tools, wanted = await box.open(), WantedCall(tool="search", arguments='{"query": "1234"}')
    assert service.stop() == 0
    assert (await tools.call(wanted)).outcome == "down"
    opening = asyncio.create_task(box.open())
    await asyncio.to_thread(until, lambda: bool(outages), what="the outage")
    assert outages.known == {
        SEARCH_SERVICE: f"the search service at {service.url} cannot be reached"
    }
    service.start()
    assert (await (await opening).call(wanted)).outcome == "answered"
    assert not outages


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body must be"),
        (b"[]", "the body must be"),
        (b'{"queries": "salt"}', "queries must be 1 to 64 texts"),
        (b'{"queries": []}', "queries must be 1 to 64 texts"),
        (b'{"queries": ["salt"], "topk": 0}', "topk must be a number from 1 to 100"),
        (b'{"queries": ["salt"], "topk": true}', "topk must be a number from 1 to 100"),
    ],
)
def test_the_service_says_what_is_wrong_with_a_request(
    service: Service, body: bytes, detail: str
) -> None:
    status, reply = service.post(body)
    assert (status, reply["detail"][: len(detail)]) == (400, detail)


def test_the_service_answers_several_queries_at_once(service: Service) -> None:
    status, reply = service.post(b'{"queries": ["1234", "nothing", "_"], "topk": 2}')
    assert status == 200
    ((first,), *others) = reply["result"]
    assert others == [[], []]
    assert first["document"]["id"] == "locker-1234"
    assert first["score"] > 0
