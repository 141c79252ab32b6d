"""Prometheus metrics, read from the agent's state when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving


class AgentCollector(Collector):
    """Yields the agent's metrics; their names begin with ``rl_sampler_``."""

    def __init__(self, *, serving: Serving, counters: Counters, problems: Problems) -> None:
        self._serving, self._counters, self._problems = serving, counters, problems

    def collect(self) -> Iterator[Metric]:
        """The current values."""
        serving, counters = self._serving, self._counters
        gauges = {
            "engine_up": ("Whether the engine answers.", float(serving.engine is not None)),
            "policy_version": (
                "Policy version that the engine serves; 0 when none is served.",
                serving.policy.version if serving.policy else 0,
            ),
            "policy_lag_steps": ("Training steps behind the trainer.", serving.lag),
            "groups_running": ("Groups that are being sampled.", counters.groups_running),
            "update_pause_last_seconds": ("Pause of the last update.", counters.pause_seconds_last),
            "update_staged_last_seconds": (
                "Staging of the last update, before its pause.",
                counters.staged_seconds_last,
            ),
        }
        totals = {
            "groups_done": ("Groups completed.", counters.groups_done),
            "groups_failed": ("Groups handed back, dead or lost.", counters.groups_failed),
            "groups_expired": ("Groups aborted as too old to train.", counters.groups_expired),
            "members_adopted": ("Members adopted from earlier attempts.", counters.members_adopted),
            "turns_saved": (
                "Saves of a member with one more finished turn.",
                counters.turns_saved,
            ),
            "turns_replayed": (
                "Turns of earlier attempts that were replayed.",
                counters.turns_replayed,
            ),
            "tokens_generated": ("Tokens generated.", counters.tokens_generated),
            "requests_repeated": (
                "Requests repeated because an update invalidated them.",
                counters.requests_repeated,
            ),
            "updates": ("Policies loaded.", counters.updates),
            "update_failures": ("Policies not staged or not loaded.", counters.update_failures),
            "update_pause_seconds": ("Seconds paused for updates.", counters.pause_seconds_total),
            "update_staged_seconds": (
                "Seconds of staging updates, before their pauses.",
                counters.staged_seconds_total,
            ),
            "update_bytes": ("Bytes of the tensors of these updates.", counters.update_bytes_total),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"rl_sampler_{name}", text, value=value)
        for name, (text, count) in totals.items():
            yield CounterMetricFamily(f"rl_sampler_{name}", text, value=count)
        yield labelled(
            "tool_calls",
            "Tool calls of the policy, by outcome.",
            ["outcome"],
            {(outcome,): made for outcome, made in counters.tool_calls.items()},
        )
        yield labelled(
            "code_calls",
            "Calls of the container code; lost: it did not listen, or ended during the call.",
            ["call", "outcome"],
            counters.code_calls,
        )
        yield labelled(
            "completions",
            "Requests to judges, simulated users and browse models.",
            ["caller", "model", "outcome"],
            counters.completions,
        )
        yield labelled(
            "completion_tokens",
            "Tokens of these requests, as their servers count them.",
            ["caller", "model", "kind"],
            counters.completion_tokens,
        )
        problems = GaugeMetricFamily(
            "rl_sampler_problem",
            "1 while this topic has a problem; the log has the reason.",
            labels=["topic"],
        )
        for topic in self._problems.topics:
            problems.add_metric([topic], 1)
        yield problems


def labelled(
    name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], int]
) -> CounterMetricFamily:
    """A counter with a value for each combination of label values."""
    family = CounterMetricFamily(f"rl_sampler_{name}", text, labels=labels)
    for values, count in counts.items():
        family.add_metric(list(values), count)
    return family


def agent_registry(
    *, serving: Serving, counters: Counters, problems: Problems
) -> CollectorRegistry:
    """A registry with the agent's metrics only."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(serving=serving, counters=counters, problems=problems))
    return registry
