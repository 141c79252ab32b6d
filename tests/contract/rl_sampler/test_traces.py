"""Traces of rollouts: an agent's spans at a receiver, and the context that tools are given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_contracts import tracing
from rl_contracts.spec.agent.tools import McpServer
from rl_contracts.spec.training.tracking import Traces
from rl_contracts.tracing import Ids, Tracing
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.toolbox import Toolbox
from tests.contract import otlp
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tools.tool_servers import HttpServer
from tests.samples.manifests import a_job
from tests.waiting import until

TRACED, OTHER = "a rollout", "another rollout"


@pytest.fixture(scope="module")
def receiver() -> Iterator[otlp.Receiver]:
    with otlp.receiving() as receiver:
        yield receiver


@pytest.fixture
def tracer(receiver: otlp.Receiver, monkeypatch: pytest.MonkeyPatch) -> Tracing:
    """Of this process, in which only the first one gives the MCP client its spans."""
    monkeypatch.syspath_prepend(str(otlp.exporter_packages()))
    section = Traces(endpoint=receiver.url)
    return Tracing(section, service="test", about={"rl.run": "r"}, clients=True)


async def test_a_tool_of_an_mcp_server_is_given_the_span_of_its_call(
    receiver: otlp.Receiver, tracer: Tracing, tmp_path: Path
) -> None:
    server = HttpServer()
    server.start()
    section = McpServer(name="calculator", url=server.url, timeout_seconds=60)
    toolbox = Toolbox([section], secrets=tmp_path, longest=999, counters=Counters())
    call = WantedCall(tool="traced", arguments="{}")
    try:
        tools = await toolbox.open()
        with tracer.rollout(TRACED, ago=5.0) as facts:
            inside = await tools.call(call)
            variables = tracing.variables()
            tracing.ended("sample", seconds=1.0)
            facts["rl.reward"] = 0.5
        outside = await tools.call(call)
    finally:
        await toolbox.close()
        server.stop()
    tracer.later(TRACED, "publish", seconds=0.1)
    tracer.close()

    ids = Ids.of(TRACED)
    spans = receiver.of(ids.trace)
    (root,) = spans["rollout"]
    assert (root.id, root.parent, root.facts["rl.reward"]) == (ids.span, 0, 0.5)
    assert root.end - root.start >= 5e9
    (tool,) = spans["execute_tool"]
    assert (tool.parent, tool.facts["gen_ai.tool.name"]) == (root.id, "traced")
    assert tool.facts["rl.outcome"] == "answered"
    (sent,) = [each for named in spans.values() for each in named if each.parent == tool.id]
    assert inside.result == f"00-{ids.trace:032x}-{sent.id:016x}-01"
    assert variables == {"TRACEPARENT": f"00-{ids.trace:032x}-{root.id:016x}-01"}
    for name in ("sample", "publish"):
        (span,) = spans[name]
        assert span.parent == root.id
    assert not outside.result.endswith("-01"), "nothing but rollouts is traced"
    assert {span.trace for span in receiver.spans} == {ids.trace}
    assert tracing.variables() == {}


def test_an_agent_traces_its_rollouts(
    trainer: ScriptedTrainer, make_pod: MakePod, receiver: otlp.Receiver
) -> None:
    traces = {"endpoint": receiver.url}
    pod = make_pod(training=a_job()["spec"]["training"] | {"tracking": {"traces": traces}})
    paths = [pod.environment["PYTHONPATH"], str(otlp.exporter_packages())]
    pod.environment["PYTHONPATH"] = os.pathsep.join(paths)
    pod.serve_first_of(trainer)
    tasks = trainer.insert(2, group_size=2)
    until(lambda: trainer.all_done(tasks), what="the groups")
    rollouts = trainer.chosen(tasks)

    def whole() -> bool:
        traced = [receiver.of(Ids.of(rollout.id).trace) for rollout in rollouts]
        return all({"rollout", "complete"} <= set(spans) for spans in traced)

    until(whole, what="the spans to arrive", seen=lambda: receiver.spans)
    for rollout in rollouts:
        ids = Ids.of(rollout.id)
        spans = receiver.of(ids.trace)
        (root,), (sample,), (score,) = spans["rollout"], spans["sample"], spans["score"]
        assert root.id == ids.span
        assert {sample.parent, score.parent, spans["complete"][0].parent} == {root.id}
        assert root.service == "rl-sampler"
        assert root.facts["rl.task"] == rollout.task
        assert root.facts["rl.reward"] == rollout.reward
        assert root.facts["rl.tokens"] == sample.facts["rl.tokens"] == rollout.num_generated
        assert root.start <= sample.start <= sample.end <= root.end
