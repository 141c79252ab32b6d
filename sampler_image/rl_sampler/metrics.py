"""Prometheus metrics, read from the agent's state when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.tally import Tally


class AgentCollector(Collector):
    """Yields the agent's figures; names begin with ``rl_sampler_``."""

    def __init__(self, *, serving: Serving, tally: Tally, problems: Problems) -> None:
        self._serving, self._tally, self._problems = serving, tally, problems

    def collect(self) -> Iterator[Metric]:
        """All figures as they are now."""
        serving, tally = self._serving, self._tally
        gauges = {
            "engine_up": ("Whether the engine answers.", float(serving.engine is not None)),
            "policy_version": (
                "Policy version that is served; 0 when none is.",
                serving.policy.version if serving.policy else 0,
            ),
            "policy_lag_steps": ("Training steps behind the trainer.", serving.lag),
            "groups_running": ("Groups being worked on.", tally.groups_running),
            "update_pause_last_seconds": ("Pause of the last update.", tally.pause_seconds_last),
        }
        counters = {
            "groups_done": ("Groups completed.", tally.groups_done),
            "groups_failed": ("Groups handed back, killed or lost.", tally.groups_failed),
            "groups_expired": ("Groups aborted as too old to train.", tally.groups_expired),
            "members_adopted": ("Members taken over.", tally.members_adopted),
            "tokens_generated": ("Tokens generated.", tally.tokens_generated),
            "requests_repeated": ("Requests that an update spoilt.", tally.requests_repeated),
            "updates": ("Policies loaded.", tally.updates),
            "update_failures": ("Policies not staged or not loaded.", tally.update_failures),
            "update_pause_seconds": ("Seconds paused for updates.", tally.pause_seconds_total),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"rl_sampler_{name}", text, value=value)
        for name, (text, count) in counters.items():
            yield CounterMetricFamily(f"rl_sampler_{name}", text, value=count)
        yield labelled(
            "tool_calls",
            "Tool calls of the policy.",
            ["outcome"],
            {(outcome,): made for outcome, made in tally.tool_calls.items()},
        )
        yield labelled(
            "completions",
            "Requests to judges and simulated users.",
            ["caller", "model", "outcome"],
            tally.completions,
        )
        yield labelled(
            "completion_tokens",
            "Tokens that their servers counted.",
            ["caller", "model", "kind"],
            tally.completion_tokens,
        )
        standing = GaugeMetricFamily(
            "rl_sampler_problem",
            "1 while this stands in the way; the log says why.",
            labels=["topic"],
        )
        for topic in self._problems.topics:
            standing.add_metric([topic], 1)
        yield standing


def labelled(
    name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], int]
) -> CounterMetricFamily:
    """A counter with labels."""
    family = CounterMetricFamily(f"rl_sampler_{name}", text, labels=labels)
    for values, count in counts.items():
        family.add_metric(list(values), count)
    return family


def agent_registry(*, serving: Serving, tally: Tally, problems: Problems) -> CollectorRegistry:
    """A registry with the agent's figures alone."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(serving=serving, tally=tally, problems=problems))
    return registry
