"""The panels of the Grafana dashboards, as tables of titles, units and PromQL.

Labels are those of the chart's PodMonitor and ServiceMonitor: ``rl_operator_io_job`` is the RLJob,
``rl_operator_io_pool`` the SamplerPool, ``namespace`` that of the pod.
"""

from __future__ import annotations

from dataclasses import dataclass

RUN = 'namespace="$namespace",rl_operator_io_job=~"$job"'
POOL = 'namespace="$namespace",rl_operator_io_pool=~"$pool"'
NAMESPACE = 'namespace=~"$namespace"'
RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the text of its legend."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart, or with ``stat`` a single number.

    Attributes:
        unit: Grafana's name of a unit: ``short``, ``s``, ``percentunit``, ``bytes``.
        note: what to read from it; shown at its title.
    """

    title: str
    unit: str
    queries: tuple[Query, ...]
    note: str = ""
    stat: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of rows of panels.

    Attributes:
        name: the file's, and the last part of its uid.
        variables: names with the label and the metric that their values come from; the first
            narrows the second.
    """

    name: str
    title: str
    variables: tuple[tuple[str, str, str], ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def _run(metric: str, *, by: str = "rl_operator_io_job") -> str:
    return f"max by ({by}) ({metric}{{{RUN}}})"


def _runs(*metrics: tuple[str, str]) -> tuple[Query, ...]:
    """A query for each metric of a run, with its part of the legend."""
    return tuple(
        Query(_run(metric), f"{{{{rl_operator_io_job}}}} {legend}".strip())
        for metric, legend in metrics
    )


def _rate(metric: str, labels: str, *, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}{RATE}))"


def _quantile(share: float, metric: str, labels: str = "") -> str:
    where = f"{{{labels}}}" if labels else ""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{where}{RATE})))"


def _stat(title: str, expression: str, unit: str = "short", *, note: str = "") -> Panel:
    return Panel(title, unit, (Query(expression, "{{rl_operator_io_job}}"),), note, stat=True)


RUN_DASHBOARD = Dashboard(
    "run",
    "RL run",
    (
        ("namespace", "namespace", "rl_trainer_step"),
        ("job", "rl_operator_io_job", 'rl_trainer_step{namespace="$namespace"}'),
    ),
    (
        (
            "Now",
            (
                _stat("Step", _run("rl_trainer_step")),
                _stat("Mean reward", _run("rl_trainer_reward_mean")),
                _stat("Published policy", _run("rl_trainer_policy_version")),
                _stat(
                    "Samplers behind by",
                    f"max by (rl_operator_io_job) (rl_sampler_policy_lag_steps{{{RUN}}})",
                    note="Training steps that the policy of the last sampler is behind the "
                    "trainer; algorithm.offPolicy.maxStaleness limits what is trained.",
                ),
                _stat(
                    "Sampled tokens/s",
                    _rate("rl_sampler_tokens_generated_total", RUN, by="rl_operator_io_job"),
                ),
                _stat(
                    "Problems",
                    f"sum by (rl_operator_io_job) (rl_sampler_problem{{{RUN}}}) or "
                    f"0 * {_run('rl_trainer_step')}",
                    note="Sampler pods that something keeps from work: see Samplers.",
                ),
            ),
        ),
        (
            "What is learned",
            (
                Panel(
                    "Reward",
                    "short",
                    _runs(
                        ("rl_trainer_reward_mean", "mean"),
                        ("rl_trainer_reward_min", "min"),
                        ("rl_trainer_reward_max", "max"),
                    ),
                ),
                Panel(
                    "Reward by scorer",
                    "short",
                    (
                        Query(
                            _run("rl_trainer_reward_part_mean", by="rl_operator_io_job, scorer"),
                            "{{rl_operator_io_job}} {{scorer}}",
                        ),
                    ),
                ),
                Panel(
                    "Evaluation",
                    "percentunit",
                    (
                        Query(
                            _run(
                                "rl_trainer_evaluation_accuracy",
                                by="rl_operator_io_job, dataset, temperature",
                            ),
                            "{{rl_operator_io_job}} {{dataset}} at {{temperature}}",
                        ),
                    ),
                ),
                Panel(
                    "Groups without signal, cut-off and unread responses",
                    "percentunit",
                    _runs(
                        ("rl_trainer_equal_groups_ratio", "equal rewards"),
                        ("rl_trainer_cut_off_responses_ratio", "cut off"),
                        ("rl_trainer_no_answer_ratio", "no answer"),
                    ),
                    "Near 1 for long: the policy learns nothing. See the condition LearningSignal.",
                ),
            ),
        ),
        (
            "How the policy changes",
            (
                Panel("Entropy", "short", _runs(("rl_trainer_entropy_nats", "nats"))),
                Panel("KL to the reference", "short", _runs(("rl_trainer_kl_nats", "nats"))),
                Panel("Loss", "short", _runs(("rl_trainer_policy_loss", ""))),
                Panel(
                    "Gradient norm before clipping",
                    "short",
                    _runs(("rl_trainer_gradient_norm", "")),
                ),
                Panel(
                    "Clipped tokens",
                    "percentunit",
                    _runs(("rl_trainer_clipped_tokens_ratio", "")),
                ),
                Panel(
                    "Log-probability gap between trainer and sampler",
                    "short",
                    _runs(("rl_trainer_logprob_gap_nats", "nats")),
                    "It should stay near its first value. If it grows, the engine samples from "
                    "another policy than the one that is trained.",
                ),
            ),
        ),
        (
            "What is slow",
            (
                Panel(
                    "Seconds of a step by phase",
                    "s",
                    (
                        Query(
                            _run("rl_trainer_step_phase_seconds", by="rl_operator_io_job, phase"),
                            "{{rl_operator_io_job}} {{phase}}",
                        ),
                    ),
                ),
                Panel(
                    "Tokens per second",
                    "short",
                    (
                        Query(_run("rl_trainer_tokens_per_second"), "trained"),
                        Query(
                            _rate(
                                "rl_sampler_tokens_generated_total", RUN, by="rl_operator_io_job"
                            ),
                            "sampled",
                        ),
                    ),
                ),
                Panel("MFU", "percentunit", _runs(("rl_trainer_mfu_ratio", ""))),
                Panel(
                    "Median staleness of trained rollouts, in steps",
                    "short",
                    (Query(_quantile(0.5, "rl_trainer_staleness_steps", RUN), "median"),),
                ),
                Panel(
                    "Groups lost, by cause, per second",
                    "short",
                    (
                        Query(
                            _rate(
                                "rl_trainer_groups_dropped_total",
                                RUN,
                                by="rl_operator_io_job, cause",
                            ),
                            "{{rl_operator_io_job}} {{cause}}",
                        ),
                    ),
                ),
                Panel(
                    "Generated tokens of a rollout",
                    "short",
                    _runs(("rl_trainer_response_tokens_mean", "mean")),
                ),
            ),
        ),
        (
            "Samplers",
            (
                Panel(
                    "Policy that each pod serves",
                    "short",
                    (Query(f"rl_sampler_policy_version{{{RUN}}}", "{{pod}}"),),
                ),
                Panel(
                    "What keeps samplers from work",
                    "short",
                    (Query(f"rl_sampler_problem{{{RUN}}}", "{{pod}} {{topic}}"),),
                ),
            ),
        ),
    ),
)

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
                    (Query(_rate("rl_sampler_tokens_generated_total", POOL, by="pod"), "{{pod}}"),),
                ),
                Panel(
                    "Groups by outcome, per second",
                    "short",
                    tuple(
                        Query(
                            _rate(
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
                            _rate("rl_sampler_update_pause_seconds_total", POOL, by="pod"),
                            "{{pod}}",
                        ),
                    ),
                ),
                Panel(
                    "Failed updates per second",
                    "short",
                    (Query(_rate("rl_sampler_update_failures_total", POOL, by="pod"), "{{pod}}"),),
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
                            _rate("rl_sampler_tool_calls_total", POOL, by="outcome"),
                            "{{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Requests to judges and other models, per second",
                    "short",
                    (
                        Query(
                            _rate("rl_sampler_completions_total", POOL, by="caller, outcome"),
                            "{{caller}} {{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Calls of the container code, per second",
                    "short",
                    (
                        Query(
                            _rate("rl_sampler_code_calls_total", POOL, by="call, outcome"),
                            "{{call}} {{outcome}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

OPERATOR_DASHBOARD = Dashboard(
    "operator",
    "RL operator",
    (("namespace", "namespace", "rl_operator_leader"),),
    (
        (
            "Jobs",
            (
                Panel(
                    "Jobs by phase",
                    "short",
                    (Query(f"sum by (phase) (rl_operator_job_phase{{{NAMESPACE}}})", "{{phase}}"),),
                ),
                Panel(
                    "Jobs that wait for a person",
                    "short",
                    (
                        Query(
                            "sum by (rljob_namespace, rljob, phase) (rl_operator_job_phase{"
                            f'{NAMESPACE},phase=~"Stalled|Failed"}})',
                            "{{rljob_namespace}}/{{rljob}} {{phase}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Reconciling",
            (
                Panel(
                    "Time in the queue",
                    "s",
                    (
                        Query(_quantile(0.5, "rl_operator_queue_seconds", NAMESPACE), "median"),
                        Query(_quantile(0.99, "rl_operator_queue_seconds", NAMESPACE), "P99"),
                    ),
                ),
                Panel(
                    "Time of one reconcile, P99",
                    "s",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (le, kind) (rate("
                            f"rl_operator_reconcile_seconds_bucket{{{NAMESPACE}}}{RATE})))",
                            "{{kind}}",
                        ),
                    ),
                ),
                Panel(
                    "Reconciles per second",
                    "short",
                    (
                        Query(
                            _rate("rl_operator_reconciles_total", NAMESPACE, by="kind, result"),
                            "{{kind}} {{result}}",
                        ),
                    ),
                ),
                Panel(
                    "Objects that wait for a worker",
                    "short",
                    (Query(f"rl_operator_queue_length{{{NAMESPACE}}}", "{{pod}}"),),
                ),
            ),
        ),
        (
            "API server",
            (
                Panel(
                    "Requests per second by status",
                    "short",
                    (
                        Query(
                            _rate("rl_operator_api_requests_total", NAMESPACE, by="status"),
                            "{{status}}",
                        ),
                    ),
                ),
                Panel(
                    "Writes per second",
                    "short",
                    (
                        Query(
                            _rate("rl_operator_api_writes_total", NAMESPACE, by="verb, kind"),
                            "{{verb}} {{kind}}",
                        ),
                    ),
                    "At rest only Leases are written.",
                ),
                Panel(
                    "Silence of each watch",
                    "s",
                    (Query(f"rl_operator_watch_silence_seconds{{{NAMESPACE}}}", "{{path}}"),),
                    "A bookmark comes about once a minute.",
                ),
                Panel(
                    "Events that were not posted, per second",
                    "short",
                    (
                        Query(
                            _rate("rl_operator_events_dropped_total", NAMESPACE, by="pod"),
                            "{{pod}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Process",
            (
                Panel(
                    "Memory",
                    "bytes",
                    (
                        Query(
                            f"process_resident_memory_bytes{{{NAMESPACE}}} and on (pod) "
                            f"rl_operator_leader{{{NAMESPACE}}}",
                            "{{pod}}",
                        ),
                    ),
                ),
                Panel("Leader", "short", (Query(f"rl_operator_leader{{{NAMESPACE}}}", "{{pod}}"),)),
            ),
        ),
    ),
)

STORES_DASHBOARD = Dashboard(
    "stores",
    "RL stores, as runs see them",
    (("namespace", "namespace", "rl_sampler_engine_up"),),
    (
        (
            "Document store and bucket",
            (
                Panel(
                    "Sampler pods without their store or bucket",
                    "short",
                    (
                        Query(
                            "sum by (rl_operator_io_job, topic) (rl_sampler_problem{"
                            f'{NAMESPACE},topic=~"store|bucket|policy"}})',
                            "{{rl_operator_io_job}} {{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Age of each run's last step",
                    "s",
                    (
                        Query(
                            "time() - max by (rl_operator_io_job) "
                            f"(rl_trainer_step_timestamp_seconds{{{NAMESPACE}}})",
                            "{{rl_operator_io_job}}",
                        ),
                    ),
                ),
                Panel(
                    "Share of the trainers' time by phase",
                    "percentunit",
                    (
                        Query(
                            _rate("rl_trainer_phase_seconds_total", NAMESPACE, by="phase"),
                            "{{phase}}",
                        ),
                    ),
                    "wait: for rollouts; form: reads rollouts, writes the batch; hand_out: writes "
                    "prompts. A slow store shows in these.",
                ),
                Panel(
                    "Policies that samplers could not fetch or load, per second",
                    "short",
                    (
                        Query(
                            _rate(
                                "rl_sampler_update_failures_total",
                                NAMESPACE,
                                by="rl_operator_io_job",
                            ),
                            "{{rl_operator_io_job}}",
                        ),
                    ),
                ),
                Panel(
                    "Entries that trackers have not taken",
                    "short",
                    (
                        Query(
                            f"rl_trainer_tracking_behind_entries{{{NAMESPACE}}}",
                            "{{rl_operator_io_job}} {{tracker}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

DASHBOARDS = (RUN_DASHBOARD, POOLS_DASHBOARD, OPERATOR_DASHBOARD, STORES_DASHBOARD)
