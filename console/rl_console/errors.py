"""Errors of the console; each message says what was being done and why it failed."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.errors import RLError


class ClusterUnavailableError(RLError):
    """The API server did not answer; retrying may help."""

    def __init__(self, *, doing: str, cause: str) -> None:
        super().__init__(f"the Kubernetes API did not answer while {doing}: {cause}")


class NotFoundError(RLError):
    """An object does not exist in the cluster."""

    def __init__(self, *, doing: str) -> None:
        super().__init__(f"not found while {doing}")


class RequestRefusedError(RLError):
    """The API server or a tool rejected a request."""

    def __init__(self, *, doing: str, cause: str) -> None:
        super().__init__(f"refused while {doing}: {cause}")


class PlanError(RLError):
    """A manifest or a model's config cannot be planned; the message names file, field and cause."""


class StageFailedError(RLError):
    """A stage failed: the failed condition, the remedy, and the last lines of a log."""

    def __init__(
        self, condition: str, *, remedy: str, log_name: str = "", log: Sequence[str] = ()
    ) -> None:
        super().__init__(condition)
        self.condition, self.remedy = condition, remedy
        self.log_name, self.log = log_name, list(log)
