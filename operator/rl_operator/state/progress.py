"""A reading of the stores: a run's documents, and whether the stores can be reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube.redact import redacted


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a store can be reached; with the remedy where it cannot."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


REMEDIES = {
    "StateStoreUnreachable": "Check that the server runs and that mongoUri in the stores' Secret "
    "names it.",
    "StorageUnreachable": "Check that the server runs and that s3Endpoint in the stores' Secret "
    "names it.",
    "AccessDenied": "Check the credentials in the stores' Secret.",
    "BucketNotFound": "Create the bucket, or correct s3Bucket in the stores' Secret.",
    "Refused": "docs/concepts/stores.md lists the products that are supported.",
}
"""By reason, where the error itself names no remedy."""
NOT_CHECKED = Reach("Unknown", "NotChecked", "The operator has not contacted it yet.")
REACHED = Reach("True", "Reachable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the stores hold of a run at one time."""

    store: Reach = NOT_CHECKED
    bucket: Reach = NOT_CHECKED
    run: Run | None = None
    samplers: tuple[Sampler, ...] = ()
    """Registrations of samplers that are alive."""
    registrations: tuple[Sampler, ...] = ()
    """These, and those of samplers that ended a short time ago."""
    backlog: int = 0
    now: float = 0.0
    """The store's clock."""
    bucket_name: str = ""
    """Of the stores' Secret; empty if it is not known."""

    @property
    def known(self) -> bool:
        """Whether ``run`` is what the store holds."""
        return self.store.status == "True"

    def of_no_run(self) -> Reading:
        """The reading without what it says of the run."""
        return Reading(
            store=self.store, bucket=self.bucket, now=self.now, bucket_name=self.bucket_name
        )


def not_reached(reason: str, cause: str, remedy: str = "") -> Reach:
    """A store that could not be used; without a remedy of its own the one for the reason."""
    if reason not in REMEDIES:
        reason = "Refused"
    return Reach("False", reason, f"{plain(cause).rstrip('.')}. {remedy or REMEDIES[reason]}")


def plain(text: str) -> str:
    """A client's message without the parts that change from one attempt to the next."""
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", text)
    return redacted(text.split(" (configured timeouts")[0].strip())[:300]


def staleness_bound(spec: RLJobSpec | None) -> int:
    """Training steps that a served policy may be behind the trainer in normal operation, ≥ 0."""
    if spec is None:
        return 0
    return spec.algorithm.off_policy.max_staleness + spec.weight_sync.every_steps


def lag(run: Run | None, serving: Sequence[Sampler]) -> int:
    """Training steps between the published policy and the oldest one that is served, ≥ 0."""
    if run is None or run.policy is None:
        return 0
    published = run.policy.step
    return max(0, published - min((sampler.step for sampler in serving), default=published))
