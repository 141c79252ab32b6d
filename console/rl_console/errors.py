"""Errors of the console: what was being done, why it failed, what to do, and the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rl_contracts.errors import RLError

FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
NOT_ALLOWED: Final = 4
UNREACHABLE: Final = 5
REFUSED: Final = 6
TIME_OVER: Final = 7
INTERRUPTED: Final = 130


class ConsoleError(RLError):
    """An error that is shown in one line: what happened, and the remedy if there is one."""

    exit_code: ClassVar[int] = FAILED

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{message.rstrip('.')}. {remedy}" if remedy else message)
        self.remedy = remedy


class UsageError(ConsoleError):
    """An option, an argument or a file cannot be used."""

    exit_code = USAGE


class TimeOverError(ConsoleError):
    """The time limit of the command is over; nothing has failed."""

    exit_code = TIME_OVER


class ClusterUnavailableError(ConsoleError):
    """The API server did not answer, or what is behind it; retrying may help."""

    exit_code = UNREACHABLE

    def __init__(
        self,
        *,
        doing: str,
        cause: str,
        remedy: str = "",
        status: int = 0,
        who: str = "the Kubernetes API",
        sent: bool = True,
    ) -> None:
        super().__init__(f"{who} did not answer while {doing}: {cause}", remedy=remedy)
        self.cause = cause
        self.status = status
        """HTTP status; 0: there was no answer."""
        self.sent = sent
        """Whether the request may have been sent; not where no connection was made."""


class NotFoundError(ConsoleError):
    """An object does not exist in the cluster."""

    exit_code = NOT_FOUND

    def __init__(self, *, doing: str, remedy: str = "") -> None:
        super().__init__(f"not found while {doing}", remedy=remedy)


class RequestRefusedError(ConsoleError):
    """The API server or a tool rejected a request."""

    exit_code = REFUSED

    def __init__(self, *, doing: str, cause: str, remedy: str = "", reason: str = "") -> None:
        super().__init__(f"refused while {doing}: {cause}", remedy=remedy)
        self.cause = cause
        self.reason = reason
        """The API server's word for the cause, e.g. ``AlreadyExists``."""


class NotAllowedError(RequestRefusedError):
    """The user has no right to do this, or is not known to the cluster."""

    exit_code = NOT_ALLOWED


class NotLoggedInError(NotAllowedError):
    """The API server does not know the user: credentials are missing, wrong or out of date."""


class PlanError(UsageError):
    """A manifest or a model's config cannot be planned; the message names file, field and cause."""


class DoesNotFitError(ConsoleError):
    """Jobs whose trainer or engines need more memory than GPUs have, by formula."""

    def __init__(self, jobs: Sequence[str], *, device_gib: float) -> None:
        super().__init__(
            f"{', '.join(jobs)} cannot fit on GPUs of {device_gib:g} GiB",
            remedy="The lines above say what to change",
        )


class StageFailedError(RLError):
    """A stage failed: the failed condition, the remedy, and the last lines of a log."""

    def __init__(
        self, condition: str, *, remedy: str, log_name: str = "", log: Sequence[str] = ()
    ) -> None:
        super().__init__(condition)
        self.condition, self.remedy = condition, remedy
        self.log_name, self.log = log_name, list(log)
