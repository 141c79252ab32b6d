"""Figures on the pages match the constants of the code."""

from __future__ import annotations

import re

import pytest

from rl_contracts.audit import orphans
from rl_contracts.capacity import shape
from rl_contracts.documents import overflow, sampler
from rl_contracts.documents.datasets import reading, text
from rl_contracts.queries import lineage
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.stores import objects, reports
from rl_contracts.stores.files import images
from rl_operator.attempts import ends
from rl_operator.pools import autoscaler, removal_plan
from rl_operator.process import leadership
from rl_operator.state import pod
from rl_operator.status import operation
from rl_operator.stores import preflight
from rl_reader import dataset_checks, model_checks, mounted
from rl_sampler import heartbeat, run_watch
from rl_sampler.code.math_checker import PROCESSOR_SECONDS
from rl_sampler.policy import backoff, fetch
from rl_sampler.tasks import claims
from rl_trainer import attempt
from rl_trainer.publish import policy_collector
from rl_trainer.rollouts import collect
from tests.unit.docs.pages import ROOT

FIGURES = [
    ("algorithms.md", "After {} batches' worth of replaced groups", [collect.NO_SIGNAL_BATCHES]),
    ("data.md", "is longer than {} MB", [text.MAX_RECORD_BYTES >> 20]),
    ("data.md", "has more than {} MB of text", [reading.MAX_TEXT_BYTES >> 20]),
    (
        "stores.md",
        "everything not named below, into memory | {} MiB |",
        [objects.OBJECT_BYTES >> 20],
    ),
    ("stores.md", "(some 500,000 steps) | {} GiB |", [reports.METRICS_BYTES >> 30]),
    ("stores.md", "`preprocessor_config.json` | {} MiB |", [shape.CONFIG_BYTES >> 20]),
    ("stores.md", "an image of a run | {} MiB |", [images.PNG_BYTES >> 20]),
    ("stores.md", "in its document, at most {} GiB", [(overflow.PIECE_BYTES + 1) >> 30]),
    ("stores.md", "any object, into memory | {} MiB |", [mounted.OBJECT_BYTES >> 20]),
    ("stores.md", "a range of the metrics' columns | {} MiB |", [lineage.RANGE_BYTES >> 20]),
    ("stores.md", "a range of the metrics' columns | {} MiB |", [dataset_checks.READ_BYTES >> 20]),
    ("data.md", "reads the first {} MB", [dataset_checks.READ_BYTES >> 20]),
    (
        "operator.md",
        "a Lease of {} s, renewed every {} s; every write first checks that the last "
        "renewal is not older than {} s",
        [leadership.DURATION_SECONDS, leadership.RETRY_SECONDS, leadership.RENEW_DEADLINE_SECONDS],
    ),
    (
        "operations.md",
        "up to `restartBackoffMaxSeconds` ({}), the next attempt",
        [Lifecycle().restart_backoff_max_seconds],
    ),
    ("operations.md", "tried again every {} s, not counted", [ends.REFUSED_RETRY_SECONDS]),
    ("scaling.md", "waited for more than {} % of its time", [autoscaler.UP_WAIT_SHARE * 100]),
    (
        "conditions.md",
        "after {} s, then up to every {} s",
        [preflight.RETRY_FIRST_SECONDS, preflight.RETRY_MAX_SECONDS],
    ),
    ("policy-format.md", "deleted {} s later", [policy_collector.GRACE_SECONDS]),
    ("sampler.md", "writes its document every {} s", [heartbeat.BEAT_SECONDS]),
    ("sampler.md", "reads the run document every {} s", [run_watch.POLL_SECONDS]),
    (
        "sampler.md",
        "Leases of {} s are renewed every {} s",
        [claims.LEASE_SECONDS, claims.RENEW_SECONDS],
    ),
    (
        "sampler.md",
        "tried again after {} s, doubling up to {} s",
        [backoff.FIRST_SECONDS, backoff.MAX_SECONDS],
    ),
    ("rewards.md", "more than {} s of processor time", [PROCESSOR_SECONDS]),
    ("sampler.md", "ranges of {} MiB", [fetch.PART_BYTES >> 20]),
    ("stores.md", "heartbeat is younger than {} s", [sampler.SILENT_SECONDS]),
    ("stores.md", "keeps below {} MiB", [overflow.OVERFLOW_BYTES >> 20]),
    ("exit-codes.md", "is repeated for {} s", [attempt.PATIENCE_SECONDS]),
]
IN_WORDS = [
    ("stores.md", "objects below `model.uri` | 10,000 |", model_checks.MOST_FILES, 10_000),
    ("audit.md", "more than half a minute ago", orphans.LEASE_GRACE_SECONDS, 30),
    ("operations.md", "a minute over their grace", pod.LINGER_SECONDS, 60),
    ("scaling.md", "runs for two minutes without being heard", removal_plan.SILENT_SECONDS, 120),
    ("scaling.md", "not tried again for an hour", autoscaler.TOO_SMALL_SECONDS, 3600),
    ("scaling.md", "not followed by another for ten minutes", autoscaler.NO_GAIN_SECONDS, 600),
    ("operations.md", "after an attempt of ten minutes", ends.SETTLED_SECONDS, 600),
    ("scaling.md", "at most to the double", autoscaler.MAX_GROWTH, 2),
    ("scaling.md", "by at most a quarter", autoscaler.MAX_SHRINK, 0.25),
    ("conditions.md", "outlive their grace by five minutes", operation.STOP_SECONDS, 300),
]


def one_line(page: str) -> str:
    """A page as one line."""
    return re.sub(r"\s+", " ", next((ROOT / "docs").rglob(page)).read_text())


@pytest.mark.parametrize(("page", "phrase", "figures"), FIGURES, ids=lambda part: str(part)[:40])
def test_figures_match_the_code(page: str, phrase: str, figures: list[float]) -> None:
    assert phrase.format(*(f"{figure:g}" for figure in figures)) in one_line(page)


@pytest.mark.parametrize(("page", "phrase", "constant", "figure"), IN_WORDS, ids=str)
def test_figures_in_words_match_the_code(
    page: str, phrase: str, constant: float, figure: float
) -> None:
    assert phrase in one_line(page)
    assert constant == figure
