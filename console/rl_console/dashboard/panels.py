"""The charts of a run: which columns of its metrics each shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A chart."""

    title: str
    columns: tuple[str, ...]
    """Names of columns; one that ends with a dot stands for all that begin with it."""
    unit: str = ""
    note: str = ""


PANELS: tuple[Panel, ...] = (
    Panel(title="Reward", columns=("reward_mean",), note="Mean over the step's rollouts."),
    Panel(title="Reward by scorer", columns=("reward_parts.",), note="Not weighted."),
    Panel(title="KL divergence", columns=("kl",), unit="nats/token", note="From the reference."),
    Panel(title="Entropy", columns=("entropy",), unit="nats"),
    Panel(title="Loss", columns=("loss", "value_loss")),
    Panel(title="Gradient norm", columns=("gradient_norm",)),
    Panel(title="Response length", columns=("response_tokens_mean",), unit="tokens"),
    Panel(
        title="Log-probability gap",
        columns=("logprob_gap_mean",),
        note="Mean |trainer − engine| of the step's tokens before the update.",
    ),
    Panel(title="Staleness", columns=("staleness_mean", "staleness_max"), unit="steps"),
    Panel(
        title="Shares",
        columns=("clip_fraction", "cut_off_share", "equal_groups_share", "dropped_share"),
        note="Clipped tokens, cut off rollouts, groups of equal rewards, dropped groups.",
    ),
    Panel(title="Throughput", columns=("tokens_per_second",), unit="tokens/s"),
    Panel(title="Time by phase", columns=("seconds.",), unit="s"),
    Panel(title="FLOPs utilization", columns=("mfu",)),
    Panel(title="Policy version", columns=("policy_version",)),
)
COLUMNS = tuple(column for panel in PANELS for column in panel.columns)
COMPARED: tuple[str, ...] = (
    "reward_mean",
    "kl",
    "entropy",
    "loss",
    "gradient_norm",
    "response_tokens_mean",
    "staleness_mean",
    "tokens_per_second",
)
"""Columns of the comparison of runs."""
MOST_COMPARED = 10
