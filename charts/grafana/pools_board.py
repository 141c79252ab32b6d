"""Sampler pools: load, policies, tools."""

from __future__ import annotations

from panels import POOL, Dashboard, Panel, Query, rate

POOLS_DASHBOARD = Dashboard(
    "pools",
    "RL sampler pools",
    (
        ("namespace", "namespace", "rl_sampler_engine_up"),
        ("pool", "rl_operator_io_pool", 'rl_sampler_engine_up{namespace="$namespace"}'),
    ),
    (
        (
            "Load",
            (
                Panel(
                    "Engines that answer",
                    "short",
                    (
                        Query(
                            f"sum by (rl_operator_io_pool) (rl_sampler_engine_up{{{POOL}}})",
                            "{{rl_operator_io_pool}}",
                        ),
                    ),
                ),
                Panel(
                    "Groups in progress",
                    "short",
                    (Query(f"rl_sampler_groups_running{{{POOL}}}", "{{pod}}"),),
                ),
                Panel(
                    "Tokens per second",
                    "short",
                    (Query(rate("rl_sampler_tokens_generated_total", POOL, by="pod"), "{{pod}}"),),
                ),
                Panel(
                    "Groups by outcome, per second",
                    "short",
                    tuple(
                        Query(
                            rate(
                                f"rl_sampler_groups_{outcome}_total", POOL, by="rl_operator_io_pool"
                            ),
                            f"{{{{rl_operator_io_pool}}}} {outcome}",
                        )
                        for outcome in ("done", "failed", "expired")
                    ),
                ),
            ),
        ),
        (
            "Policies",
            (
                Panel(
                    "Steps behind the trainer",
                    "short",
                    (Query(f"rl_sampler_policy_lag_steps{{{POOL}}}", "{{pod}}"),),
                ),
                Panel(
                    "Pause of the last update",
                    "s",
                    (Query(f"rl_sampler_update_pause_last_seconds{{{POOL}}}", "{{pod}}"),),
                ),
                Panel(
                    "Share of time that updates pause the engine",
                    "percentunit",
                    (
                        Query(
                            rate("rl_sampler_update_pause_seconds_total", POOL, by="pod"),
                            "{{pod}}",
                        ),
                    ),
                ),
                Panel(
                    "Failed updates per second",
                    "short",
                    (Query(rate("rl_sampler_update_failures_total", POOL, by="pod"), "{{pod}}"),),
                ),
            ),
        ),
        (
            "Tools, judges and code",
            (
                Panel(
                    "Tool calls per second",
                    "short",
                    (
                        Query(
                            rate("rl_sampler_tool_calls_total", POOL, by="outcome"),
                            "{{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Requests to judges and other models, per second",
                    "short",
                    (
                        Query(
                            rate("rl_sampler_completions_total", POOL, by="caller, outcome"),
                            "{{caller}} {{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Calls of the container code, per second",
                    "short",
                    (
                        Query(
                            rate("rl_sampler_code_calls_total", POOL, by="call, outcome"),
                            "{{call}} {{outcome}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
