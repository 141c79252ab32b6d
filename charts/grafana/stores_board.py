"""Document store and bucket, as runs see them."""

from __future__ import annotations

from panels import NAMESPACE, Dashboard, Panel, Query, rate

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
                            rate("rl_trainer_phase_seconds_total", NAMESPACE, by="phase"),
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
                            rate(
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
