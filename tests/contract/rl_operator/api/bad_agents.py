"""Agents and scorers that the API server refuses, and what it then names."""

from __future__ import annotations

from typing import Any

from tests.samples.manifests import a_job, changed

Manifest = dict[str, Any]


def tool_loop(*, server: Manifest | None = None, **options: Any) -> Manifest:
    """An agent with one tool server; an Ellipsis takes a field of the server away."""
    fields = {"name": "calculator", "url": "http://calculator/mcp", **(server or {})}
    kept = {key: value for key, value in fields.items() if value is not ...}
    return {"kind": "ToolLoop", "mcpServers": [kept], **options}


def program(**options: Any) -> Manifest:
    """An agent that is a program."""
    fields = {"command": ["agent"], "runsIn": "Sidecar", "onFailure": "RewardZero", **options}
    kept = {key: value for key, value in fields.items() if value is not ...}
    return {"kind": "Program", "program": kept}


def environment(**options: Any) -> Manifest:
    """An agent in an OpenEnv server."""
    fields = {"url": "http://wordle:8000", **options}
    kept = {key: value for key, value in fields.items() if value is not ...}
    return {"kind": "Environment", "environment": kept}


REFUSED_AGENTS = {
    "tools for one turn": (
        changed("spec.agent", {"mcpServers": [{"name": "a", "url": "http://a/mcp"}]}),
        "options for other kinds",
    ),
    "turns for one turn": (changed("spec.agent.maxTurns", 3), "are for kinds of several turns"),
    "a tool loop without tools": (
        changed("spec.agent", {"kind": "ToolLoop"}),
        "needs at least one of mcpServers",
    ),
    "a ReAct agent without tools": (
        changed("spec.agent", {"kind": "ReAct"}),
        "needs at least one of mcpServers",
    ),
    "built-in tools for one turn": (
        changed("spec.agent", {"builtInTools": ["Answer"]}),
        "are for kinds ToolLoop and ReAct",
    ),
    "final tools of a program of the policy": (
        changed("spec.agent", {"kind": "Code", "finalTools": [{"name": "submit"}]}),
        "are for kinds ToolLoop and ReAct",
    ),
    "the built-in answer as a final tool": (
        changed(
            "spec.agent",
            {"kind": "ReAct", "builtInTools": ["Answer"], "finalTools": [{"name": "answer"}]},
        ),
        "ends the episode anyway",
    ),
    "a search without a service": (
        changed("spec.agent", {"kind": "ToolLoop", "builtInTools": ["Search"]}),
        "agent.search and the tool Search in agent.builtInTools need each other",
    ),
    "a service that no tool asks": (
        changed("spec.agent", tool_loop(search={"url": "http://search:8000/retrieve"})),
        "agent.search and the tool Search in agent.builtInTools need each other",
    ),
    "a service without a protocol": (
        changed(
            "spec.agent",
            {"kind": "ReAct", "builtInTools": ["Search"], "search": {"url": "search:8000"}},
        ),
        "agent.search.url",
    ),
    "more documents than a service is asked for": (
        changed(
            "spec.agent",
            {"kind": "ReAct", "builtInTools": ["Search"], "search": {"url": "http://s", "topK": 0}},
        ),
        "agent.search.topK",
    ),
    "too few turns": (changed("spec.agent", tool_loop(minTurns=11)), "must not exceed maxTurns"),
    "a server with two ways": (
        changed("spec.agent", tool_loop(server={"command": ["x"]})),
        "either url or command",
    ),
    "a server without a way": (
        changed("spec.agent", tool_loop(server={"url": ...})),
        "either url or command",
    ),
    "a token for a command": (
        changed(
            "spec.agent",
            tool_loop(server={"url": ..., "command": ["x"], "tokenSecretRef": {"name": "t"}}),
        ),
        "tokenSecretRef goes with",
    ),
    "two servers of one name": (
        changed("spec.agent.mcpServers", [tool_loop()["mcpServers"][0]] * 2),
        "mcpServers[1]",
    ),
    "notes while stopping": (
        changed("spec.agent", tool_loop(context={"summaryTokens": 9})),
        "summaryTokens goes with",
    ),
    "options of a scorer of ours": (
        changed("spec.reward.scorers.0.options", {"a": 1}),
        "go with entryPoint",
    ),
    "an entry point that is none": (
        changed("spec.reward.scorers.0.entryPoint", "os.system"),
        "scorers[0].entryPoint",
    ),
    "turns of an agent of one's own": (
        changed("spec.agent", {"kind": "Custom", "entryPoint": "a:b", "maxTurns": 3}),
        "are for kinds of several turns",
    ),
    "a program of another kind": (
        changed("spec.agent", program() | {"kind": "SingleTurn"}),
        "agent.kind is SingleTurn: kind Program needs agent.program",
    ),
    "no program": (
        changed("spec.agent", {"kind": "Program"}),
        "agent.kind is Program: kind Program needs agent.program",
    ),
    "an image of a pod that a sidecar has not": (
        changed("spec.agent", program(image="mine:1")),
        "set code.image instead",
    ),
    "variables of a pod that a sidecar has not": (
        changed("spec.agent", program(env=[{"name": "A", "value": "b"}])),
        "set code.env instead",
    ),
    "resources of a pod that a sidecar has not": (
        changed("spec.agent", program(resources={"limits": {"memory": "1Gi"}})),
        "set code.resources instead",
    ),
    "a network of a pod that a sidecar has not": (
        changed("spec.agent", program(network="Open")),
        "set runsIn: Pod instead",
    ),
    "pods of programs beside a shared pool": (
        changed(
            "spec",
            a_job()["spec"]
            | {
                "agent": program(runsIn=...),
                "samplers": [{"name": "main", "poolRef": {"name": "shared"}}],
            },
        ),
        "shared pools (samplers[].poolRef) have no pods for",
    ),
    "a number of pods for many episodes in each": (
        changed("spec.agent", program(runsIn="Pod", pods=4)),
        "agent.program.pods is for runsIn EpisodePod, and runsIn is Pod",
    ),
    "images of many episodes in each pod": (
        changed("spec.agent", program(runsIn="Pod", images=["b:1"])),
        "agent.program.images is for runsIn EpisodePod, and runsIn is Pod",
    ),
    "pods of agent-sandbox for many episodes in each": (
        changed("spec.agent", program(runsIn="Pod", podsFrom="AgentSandbox")),
        "agent.program.podsFrom AgentSandbox is for runsIn EpisodePod, and runsIn is Pod",
    ),
    "spare pods of a Deployment": (
        changed("spec.agent", program(runsIn="EpisodePod", sparePods=2)),
        "agent.program.sparePods is for podsFrom AgentSandbox, and podsFrom is Deployment",
    ),
    "a runtime of pods that a sidecar does not have": (
        changed("spec.agent", program(runtimeClassName="gvisor")),
        "agent.program.runtimeClassName is for runsIn Pod or EpisodePod, and runsIn is Sidecar",
    ),
    "images of no tasks": (
        changed("spec.agent", program(runsIn="EpisodePod", images=["b:1"])),
        "no source of data has format Harbor",
    ),
    "more pods of all images than a group may have": (
        changed("spec.agent", program(runsIn="EpisodePod", pods=501, images=["b:1"])),
        "that is more than 1000 of a sampler group",
    ),
    "a queue that would not count pods of episodes": (
        changed(
            "spec",
            a_job()["spec"]
            | {
                "agent": program(runsIn="EpisodePod"),
                "scheduling": {"provider": "Kueue", "queueName": "q"},
            },
        ),
        "would not count these pods",
    ),
    "a program whose failures mean nothing": (
        changed("spec.agent", program(onFailure=...)),
        "agent.program.onFailure",
    ),
    "a program with tools of the manifest": (
        changed("spec.agent", program() | {"tools": [{"entryPoint": "a:b"}]}),
        "agent.kind Program brings tools of its own",
    ),
    "a program's reward without a program": (
        changed("spec.reward.scorers.0.kind", "Program"),
        "the reward that a program posts",
    ),
    "an environment of another kind": (
        changed("spec.agent", environment() | {"kind": "SingleTurn"}),
        "kind Environment needs agent.environment",
    ),
    "no environment": (
        changed("spec.agent", {"kind": "Environment"}),
        "kind Environment needs agent.environment",
    ),
    "an environment with tools of the manifest": (
        changed("spec.agent", environment() | {"tools": [{"entryPoint": "a:b"}]}),
        "agent.kind Environment brings tools of its own",
    ),
    "an environment whose repetitions are counted": (
        changed("spec.agent", environment() | {"repetitionLimit": 3}),
        "maxTurns also Environment",
    ),
    "an environment by address and by image": (
        changed("spec.agent", environment(image="wordle:1")),
        "agent.environment needs one of url, a server that runs already, and image",
    ),
    "an environment without address and image": (
        changed("spec.agent", environment(url=...)),
        "agent.environment needs one of url, a server that runs already, and image",
    ),
    "turns of a program that cannot be replayed": (
        changed("spec.agent", program() | {"durability": "Turns"}),
        "agent.program.replayable need each other",
    ),
    "turns of an environment that cannot be replayed": (
        changed("spec.agent", environment() | {"durability": "Turns"}),
        "agent.environment.replayable need each other",
    ),
    "an environment that is replayed for nothing": (
        changed("spec.agent", environment(replayable=True)),
        "agent.environment.replayable need each other",
    ),
    "copies of a server that runs already": (
        changed("spec.agent", environment(copies=2)),
        "agent.environment.copies is for image",
    ),
    "headers for pods of an image": (
        changed("spec.agent", environment(url=..., image="wordle:1", headersSecret="keys")),
        "agent.environment.headersSecret is for url",
    ),
    "pods of environments beside a shared pool": (
        changed(
            "spec",
            a_job()["spec"]
            | {
                "agent": environment(url=..., image="wordle:1"),
                "samplers": [{"name": "main", "poolRef": {"name": "shared"}}],
            },
        ),
        "have no pods for environments",
    ),
    "an environment's reward without an environment": (
        changed("spec.reward.scorers.0.kind", "Environment"),
        "or Environment, and agent.kind is SingleTurn",
    ),
    "code and a judge": (
        changed(
            "spec.reward.scorers",
            [
                {
                    "kind": "A",
                    "entryPoint": "a:b",
                    "judge": {"endpoints": [{"url": "http://a/v1", "model": "m"}]},
                }
            ],
        ),
        "entryPoint or judge, not both",
    ),
    "a judge nobody can ask": (
        changed("spec.reward.scorers", [{"kind": "A", "judge": {"endpoints": []}}]),
        "judge.endpoints",
    ),
    "a password in a URL": (
        changed(
            "spec.reward.scorers",
            [{"kind": "A", "judge": {"endpoints": [{"url": "http://u:p@a/v1", "model": "m"}]}}],
        ),
        "judge.endpoints[0].url",
    ),
}
