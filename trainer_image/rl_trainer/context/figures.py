"""A run's figures for Prometheus: those of its last step, and sums over its lineage.

They are made of the documents of steps and evaluations, as ``metrics.jsonl`` and trackers are. An
attempt that resumes a run starts with the sums of the steps before it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.step_metrics import GpuUse, StepMetrics

MOST_SERIES = 256
"""Most series of one metric, to bound a run's cost in Prometheus; no manifest comes near it."""

STALENESS_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64)
"""Training steps; ``algorithm.offPolicy.maxStaleness`` is at most the last one."""

PREFIX = "rl_trainer_"
Shown = Callable[[StepMetrics], float | None]
Values = Mapping[tuple[str, ...], float]
"""Of one metric, by its labels' values."""

GAUGES: dict[str, tuple[str, Shown]] = {
    "step": ("Steps that the weights contain.", lambda metrics: metrics.step),
    "epoch": ("Fencing epoch of the attempt that made the step.", lambda metrics: metrics.epoch),
    "policy_version": ("Newest published policy version.", lambda metrics: metrics.policy_version),
    "step_timestamp_seconds": (
        "When the step ended, by the document store's clock.",
        lambda metrics: metrics.time,
    ),
    "reward_mean": (
        "Mean reward of all rollouts of the step's groups.",
        lambda metrics: metrics.reward_mean,
    ),
    "reward_std": ("Standard deviation of their rewards.", lambda metrics: metrics.reward_std),
    "reward_min": ("Smallest reward.", lambda metrics: metrics.reward_min),
    "reward_max": ("Largest reward.", lambda metrics: metrics.reward_max),
    "equal_groups_ratio": (
        "Share of groups whose rewards are all equal.",
        lambda metrics: metrics.equal_groups_share,
    ),
    "cut_off_responses_ratio": (
        "Share of responses that reached a token limit.",
        lambda metrics: metrics.cut_off_share,
    ),
    "no_answer_ratio": (
        "Share of responses in which no answer was read.",
        lambda metrics: metrics.no_answer_share,
    ),
    "policy_loss": ("Loss of the policy.", lambda metrics: metrics.loss),
    "value_loss": ("Loss of the critic.", lambda metrics: metrics.value_loss),
    "kl_nats": ("Mean divergence of a token from the reference.", lambda metrics: metrics.kl),
    "kl_coefficient": ("Weight of that divergence.", lambda metrics: metrics.kl_coefficient),
    "entropy_nats": ("Mean entropy of the tokens' distributions.", lambda metrics: metrics.entropy),
    "maxent_tau": ("Temperature of the MaxEnt estimator.", lambda metrics: metrics.tau),
    "clipped_tokens_ratio": (
        "Share of tokens beyond the clip on the side that their advantage pushes to.",
        lambda metrics: metrics.clip_fraction,
    ),
    "policy_ratio_min": (
        "Smallest probability of a token, trainer by sampler.",
        lambda metrics: metrics.ratio_min,
    ),
    "policy_ratio_max": (
        "Largest probability of a token, trainer by sampler.",
        lambda metrics: metrics.ratio_max,
    ),
    "logprob_gap_nats": (
        "Mean absolute gap of log-probabilities between trainer and sampler, before the update.",
        lambda metrics: metrics.logprob_gap_mean,
    ),
    "correction_weight": (
        "Mean weight of the off-policy correction.",
        lambda metrics: metrics.correction_weight,
    ),
    "experts_load_max_ratio": (
        "Tokens of the busiest expert by the mean of its layer, of the worst layer.",
        lambda metrics: metrics.experts.get("load_max_ratio"),
    ),
    "experts_load_entropy_ratio": (
        "Entropy of the experts' shares of tokens, by that of even ones; mean over layers.",
        lambda metrics: metrics.experts.get("load_entropy"),
    ),
    "experts_dead": (
        "Experts that no token of the step chose, of all layers.",
        lambda metrics: metrics.experts.get("dead"),
    ),
    "experts_router_entropy_nats": (
        "Mean entropy of the routers' probabilities.",
        lambda metrics: metrics.experts.get("router_entropy"),
    ),
    "experts_load_balance_loss": (
        "Load-balance loss of the routers, not weighted.",
        lambda metrics: metrics.experts.get("load_balance_loss"),
    ),
    "experts_z_loss": (
        "Z-loss of the routers, not weighted.",
        lambda metrics: metrics.experts.get("z_loss"),
    ),
    "gradient_norm": (
        "Norm of the gradient before clipping.",
        lambda metrics: metrics.gradient_norm,
    ),
    "learning_rate": ("Learning rate of the step.", lambda metrics: metrics.learning_rate),
    "skipped_updates": (
        "Updates of the step that were not made: their gradient was not finite in float16.",
        lambda metrics: metrics.skipped_updates,
    ),
    "loss_scale": ("Factor of losses under precision FP16.", lambda metrics: metrics.loss_scale),
    "response_tokens_mean": (
        "Mean generated tokens of a rollout.",
        lambda metrics: metrics.response_tokens_mean,
    ),
    "withheld_rollouts": (
        "Rollouts whose reward counted and whose tokens were too old to train.",
        lambda metrics: metrics.withheld,
    ),
    "dropped_groups_ratio": (
        "Groups lost in the last ten steps, as a share of all.",
        lambda metrics: metrics.dropped_share,
    ),
    "tokens_per_second": (
        "Trained tokens by the time of training.",
        lambda metrics: metrics.tokens_per_second,
    ),
    "mfu_ratio": ("Model FLOPs utilization.", lambda metrics: metrics.mfu),
}
"""Gauges of the last step. A figure that the run does not have is left out."""


class Figures(Collector):
    """What a scrape of the trainer answers with.

    One thread updates it, others read ``page`` at any time: it is replaced as a whole.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        """Start without a step: the page is empty.

        Args:
            clock: seconds since 1970.
        """
        self._clock = clock
        self._began: float | None = None
        self._last: StepMetrics | None = None
        self._tokens, self._rollouts = 0, 0
        self._dropped: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._staleness: Counter[int] = Counter()
        self._evaluations: dict[tuple[str, ...], EvaluationResult] = {}
        self.page = b""
        """Prometheus' text format."""

    def go_on(self, steps: Iterable[StepMetrics], results: Iterable[EvaluationResult]) -> None:
        """Begin to train, after the steps and evaluations of earlier attempts."""
        self._began = self._clock()
        for step in steps:
            self._add(step)
        self.evaluated(results)

    def step(self, metrics: StepMetrics) -> None:
        """Update the page after a step."""
        self._add(metrics)
        self._write()

    def evaluated(self, results: Iterable[EvaluationResult]) -> None:
        """Update the page after evaluations; the last of each source and temperature is shown."""
        for result in results:
            self._evaluations[result.split, result.dataset, f"{result.temperature:g}"] = result
        self._write()

    def _add(self, metrics: StepMetrics) -> None:
        self._last = metrics
        self._tokens += metrics.tokens
        self._rollouts += metrics.rollouts
        self._dropped.update(metrics.drops.by_cause)
        for phase, seconds in metrics.seconds.items():
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
        self._staleness.update({int(age): count for age, count in metrics.staleness.items()})

    def collect(self) -> Iterator[Metric]:
        """Every metric that has a series."""
        began = _one(
            "attempt_start_timestamp_seconds",
            "When the attempt began to train, by the trainer's clock.",
            self._began,
        )
        for metric in (began, *self._of_step(), *self._of_lineage(), *self._of_evaluations()):
            if metric.samples:
                yield metric

    def _write(self) -> None:
        self.page = generate_latest(self)

    def _of_step(self) -> list[Metric]:
        last = self._last
        if last is None:
            return []
        return [
            *(_one(name, text, value(last)) for name, (text, value) in GAUGES.items()),
            *_of_gpus(last.gpus),
            _gauge(
                "reward_part_mean",
                "Mean score of a scorer, not weighted.",
                ("scorer",),
                _by_one(last.reward_parts),
            ),
            _gauge(
                "step_phase_seconds",
                "Time of the last step by phase.",
                ("phase",),
                _by_one(last.seconds),
            ),
            _gauge(
                "tracking_behind_entries",
                "Entries that a tracker has not taken.",
                ("tracker",),
                _by_one(last.tracking_behind),
            ),
        ]

    def _of_lineage(self) -> list[Metric]:
        if self._last is None:
            return []
        return [
            _counter(
                "tokens_trained", "Generated tokens that were trained.", (), {(): self._tokens}
            ),
            _counter("rollouts_trained", "Rollouts that were trained.", (), {(): self._rollouts}),
            _counter(
                "groups_dropped",
                "Groups that were lost before training.",
                ("cause",),
                _by_one(self._dropped),
            ),
            _counter("phase_seconds", "Time by phase.", ("phase",), _by_one(self._seconds)),
            _histogram(
                "staleness_steps",
                "Training steps between a trained rollout's oldest token and its update.",
                self._staleness,
                bounds=STALENESS_BOUNDS,
            ),
        ]

    def _of_evaluations(self) -> list[Metric]:
        results, labels = self._evaluations, ("split", "dataset", "temperature")
        rates = {
            (*name, k): rate
            for name, result in results.items()
            for k, rate in result.pass_at.items()
        }
        return [
            _gauge(
                "evaluation_accuracy",
                "Mean reward of the last evaluation.",
                labels,
                {
                    name: result.accuracy
                    for name, result in results.items()
                    if result.accuracy is not None
                },
            ),
            _gauge(
                "evaluation_pass_ratio",
                "Prompts that some of k samples answer.",
                (*labels, "k"),
                rates,
            ),
            _gauge(
                "evaluation_loss_nats",
                "Mean loss of a source's tokens.",
                labels,
                {name: result.loss for name, result in results.items() if result.loss is not None},
            ),
            _gauge(
                "evaluation_step",
                "Steps of the policy that was evaluated last.",
                labels,
                {name: result.step for name, result in results.items()},
            ),
        ]


def _of_gpus(uses: Sequence[GpuUse]) -> Iterator[Metric]:
    shown: dict[str, tuple[str, Callable[[GpuUse], float | None]]] = {
        "gpu_memory_peak_bytes": (
            "Most that a rank had allocated on its GPU during the last step.",
            lambda use: use.peak_bytes,
        ),
        "gpu_memory_used_bytes": (
            "Used of the GPU after the last step, by all processes and CUDA.",
            lambda use: use.used_bytes,
        ),
        "gpu_memory_size_bytes": ("Memory of the GPU.", lambda use: use.size_bytes),
        "gpu_busy_ratio": (
            "Share of the driver's last sampling interval in which a kernel ran.",
            lambda use: use.busy,
        ),
    }
    for name, (text, value) in shown.items():
        values = {str(rank): value(use) for rank, use in enumerate(uses)}
        known = {rank: each for rank, each in values.items() if each is not None}
        yield _gauge(name, text, ("rank",), _by_one(known))


def _by_one(values: Mapping[str, float]) -> Values:
    return {(name,): value for name, value in values.items()}


def _one(name: str, text: str, value: float | None) -> Metric:
    return _gauge(name, text, (), {} if value is None else {(): value})


def _gauge(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=labels), values)


def _counter(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels in sorted(values)[:MOST_SERIES]:
        family.add_metric(labels, values[labels])
    return family


def _histogram(name: str, text: str, counts: Mapping[int, int], *, bounds: Sequence[int]) -> Metric:
    """Whole numbers, by how often each was seen, in buckets up to each bound."""
    buckets = [
        (str(bound), sum(count for value, count in counts.items() if value <= bound))
        for bound in bounds
    ]
    total = sum(value * count for value, count in counts.items())
    return HistogramMetricFamily(
        PREFIX + name, text, buckets=[*buckets, ("+Inf", sum(counts.values()))], sum_value=total
    )
