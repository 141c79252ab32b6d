"""Errors that cross a package boundary. Each message says what failed and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a user's input is rejected, and how to fix it."""

    field: str
    """Path of the field in the manifest, e.g. ``spec.data.train[0].uri``."""
    value: str
    """The refused value, shortened to 200 characters; never a secret."""
    reason: str
    """CamelCase word for conditions, e.g. ``DatasetNotFound``."""
    message: str
    """What is wrong, one sentence."""
    remedy: str
    """What the user can do about it, one sentence."""

    def __str__(self) -> str:
        """Field, value, message and remedy as a single line."""
        return f"{self.field} = {self.value!r}: {self.message} {self.remedy}"


class RLError(Exception):
    """Base of all errors of this product."""


def _with_remedy(what: str, remedy: str) -> str:
    return f"{what.rstrip('.')}. {remedy}" if remedy else what


class RefusedError(RLError):
    """A user's input is rejected; retrying without a change cannot help."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class StoreUnavailableError(RLError):
    """The document store or the bucket did not answer within a deadline; retrying may help."""

    def __init__(self, *, store: str, doing: str, cause: str, remedy: str = "") -> None:
        self.what = f"{store} did not answer while {doing}: {cause}"
        super().__init__(_with_remedy(self.what, remedy))
        self.store, self.doing, self.cause, self.remedy = store, doing, cause, remedy


class AccessDeniedError(RLError):
    """A store rejected the credentials or denied permission."""

    def __init__(self, *, store: str, doing: str, cause: str, remedy: str = "") -> None:
        self.what = f"{store} refused the credentials while {doing}: {cause}"
        super().__init__(_with_remedy(self.what, remedy))
        self.store, self.doing, self.cause, self.remedy = store, doing, cause, remedy


class CommandRefusedError(RLError):
    """A store refused a command for a reason that repeating it cannot change."""

    def __init__(self, *, store: str, doing: str, cause: str, remedy: str) -> None:
        self.what = f"{store} refused the command while {doing}: {cause}"
        super().__init__(_with_remedy(self.what, remedy))
        self.store, self.doing, self.cause, self.remedy = store, doing, cause, remedy


class ObjectMissingError(RLError):
    """A bucket or an object does not exist."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} does not exist")
        self.uri = uri


class IntegrityError(RLError):
    """Bytes do not match their digest or their declared shape; they must not be used."""


class ObjectTooLargeError(IntegrityError):
    """An object is larger than its reader's bound; nothing of it was read."""

    def __init__(self, uri: str, *, size_bytes: int, most: int) -> None:
        super().__init__(
            f"{uri} has {size_bytes} bytes, more than the {most} that are read of such an object"
        )
        self.size_bytes, self.most = size_bytes, most


class SchemaTooNewError(RefusedError):
    """A newer release wrote a document; reading it could lose fields, so it is not read."""

    def __init__(self, *, document: str, version: int, known: int) -> None:
        super().__init__(
            Refusal(
                field="schema_version",
                value=str(version),
                reason="SchemaTooNew",
                message=f"Document {document} was written by a newer release; this one knows "
                f"versions up to {known}.",
                remedy="Use the operator, trainer and sampler images of the newer release.",
            )
        )


class SchemaUnknownError(IntegrityError):
    """A document has no valid schema version: this product did not write it."""

    def __init__(self, *, document: str, version: object) -> None:
        super().__init__(
            f"document {document} has schema_version {version!r}: this product did not write it"
        )


class FencedOutError(RLError):
    """The run document names another epoch: this trainer's writes are rejected and it must stop."""

    def __init__(self, *, run: str, epoch: int, present: int | None) -> None:
        """Say why.

        Args:
            run: which run.
            epoch: of this trainer.
            present: the epoch that the run document names; None: there is no run document.
        """
        if present is None:
            why = (
                "its run document is gone from the document store: the store was restored from a "
                "backup that is older than the run, or the run was deleted"
            )
        elif present < epoch:
            why = (
                f"the document store was restored from a backup: it names epoch {present}, which "
                f"is before this trainer's epoch {epoch}"
            )
        else:
            why = f"a newer trainer has taken over from epoch {epoch}"
        super().__init__(f"run {run}: {why}")
        self.run, self.epoch, self.present = run, epoch, present


class LateAttemptError(RLError):
    """A later attempt of the same job has the run: this attempt started too late and must end."""

    def __init__(self, *, run: str, attempt: int, newest: int) -> None:
        super().__init__(
            f"run {run}: this is attempt {attempt}, but attempt {newest} of the same job has the "
            "run already. This trainer started too late and leaves the run as it is."
        )
        self.run, self.attempt, self.newest = run, attempt, newest
