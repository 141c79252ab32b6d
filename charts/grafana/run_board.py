"""A run: what it learns, how the policy changes, what is slow."""

from __future__ import annotations

from panels import RUN, Dashboard, Panel, Query, quantile, rate, run, runs, stat

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
                stat("Step", run("rl_trainer_step")),
                stat("Mean reward", run("rl_trainer_reward_mean")),
                stat("Published policy", run("rl_trainer_policy_version")),
                stat(
                    "Samplers behind by",
                    f"max by (rl_operator_io_job) (rl_sampler_policy_lag_steps{{{RUN}}})",
                    note="Training steps that the policy of the last sampler is behind the "
                    "trainer; algorithm.offPolicy.maxStaleness limits what is trained.",
                ),
                stat(
                    "Sampled tokens/s",
                    rate("rl_sampler_tokens_generated_total", RUN, by="rl_operator_io_job"),
                ),
                stat(
                    "Problems",
                    f"sum by (rl_operator_io_job) (rl_sampler_problem{{{RUN}}}) or "
                    f"0 * {run('rl_trainer_step')}",
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
                    runs(
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
                            run("rl_trainer_reward_part_mean", by="rl_operator_io_job, scorer"),
                            "{{rl_operator_io_job}} {{scorer}}",
                        ),
                    ),
                ),
                Panel(
                    "Evaluation",
                    "percentunit",
                    (
                        Query(
                            run(
                                "rl_trainer_evaluation_accuracy",
                                by="rl_operator_io_job, split, dataset, temperature",
                            ),
                            "{{rl_operator_io_job}} {{dataset}} ({{split}}, temperature "
                            "{{temperature}})",
                        ),
                    ),
                ),
                Panel(
                    "Groups without signal, cut-off and unread responses",
                    "percentunit",
                    runs(
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
                Panel("Entropy", "short", runs(("rl_trainer_entropy_nats", "nats"))),
                Panel("KL to the reference", "short", runs(("rl_trainer_kl_nats", "nats"))),
                Panel("Loss", "short", runs(("rl_trainer_policy_loss", ""))),
                Panel(
                    "Gradient norm before clipping",
                    "short",
                    runs(("rl_trainer_gradient_norm", "")),
                ),
                Panel(
                    "Clipped tokens",
                    "percentunit",
                    runs(("rl_trainer_clipped_tokens_ratio", "")),
                ),
                Panel(
                    "Log-probability gap between trainer and sampler",
                    "short",
                    runs(("rl_trainer_logprob_gap_nats", "nats")),
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
                            run("rl_trainer_step_phase_seconds", by="rl_operator_io_job, phase"),
                            "{{rl_operator_io_job}} {{phase}}",
                        ),
                    ),
                ),
                Panel(
                    "Tokens per second",
                    "short",
                    (
                        Query(run("rl_trainer_tokens_per_second"), "trained"),
                        Query(
                            rate("rl_sampler_tokens_generated_total", RUN, by="rl_operator_io_job"),
                            "sampled",
                        ),
                    ),
                ),
                Panel("MFU", "percentunit", runs(("rl_trainer_mfu_ratio", ""))),
                Panel(
                    "Median staleness of trained rollouts, in steps",
                    "short",
                    (Query(quantile(0.5, "rl_trainer_staleness_steps", RUN), "median"),),
                ),
                Panel(
                    "Groups lost, by cause, per second",
                    "short",
                    (
                        Query(
                            rate(
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
                    runs(("rl_trainer_response_tokens_mean", "mean")),
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
