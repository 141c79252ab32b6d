"""The operator: jobs, its queue, its requests to the API server."""

from __future__ import annotations

from panels import NAMESPACE, RATE, Dashboard, Panel, Query, quantile, rate

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
                        Query(quantile(0.5, "rl_operator_queue_seconds", NAMESPACE), "median"),
                        Query(quantile(0.99, "rl_operator_queue_seconds", NAMESPACE), "P99"),
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
                            rate("rl_operator_reconciles_total", NAMESPACE, by="kind, result"),
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
                            rate("rl_operator_api_requests_total", NAMESPACE, by="status"),
                            "{{status}}",
                        ),
                    ),
                ),
                Panel(
                    "Writes per second",
                    "short",
                    (
                        Query(
                            rate("rl_operator_api_writes_total", NAMESPACE, by="verb, kind"),
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
                            rate("rl_operator_events_dropped_total", NAMESPACE, by="pod"),
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
