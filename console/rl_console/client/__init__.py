"""RLJobs from Python, e.g. from a notebook: docs/guides/notebooks.md.

The names in ``__all__`` are the public ones. They change with a new major version alone.
"""

from rl_console.client.connection import Connection, connect
from rl_console.client.job import RLJob
from rl_console.client.metrics import Metrics, MetricsRow
from rl_console.client.watching import Watch
from rl_console.errors import (
    ClusterUnavailableError,
    ConsoleError,
    NotAllowedError,
    NotFoundError,
    RequestRefusedError,
    StageFailedError,
    TimeOverError,
    UsageError,
)
from rl_contracts.queries.answers import RolloutAnswer, RolloutRow
from rl_contracts.requested import EpisodeAnswer
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import RLJobStatus

__all__ = [
    "ClusterUnavailableError",
    "Connection",
    "ConsoleError",
    "EpisodeAnswer",
    "Metrics",
    "MetricsRow",
    "NotAllowedError",
    "NotFoundError",
    "RLJob",
    "RLJobSpec",
    "RLJobStatus",
    "RequestRefusedError",
    "RolloutAnswer",
    "RolloutRow",
    "StageFailedError",
    "TimeOverError",
    "UsageError",
    "Watch",
    "connect",
]
