"""What the stores say of a run, and whether they can be reached."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler
from rl_contracts.errors import (
    AccessDeniedError,
    ObjectMissingError,
    SchemaTooNewError,
    StoreUnavailableError,
)
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.unexpected import UnexpectedAnswerError, unexpected_answers
from rl_operator.kube.redact import redacted


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a store can be reached."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


NOT_CHECKED = Reach("Unknown", "NotAsked", "Nothing has been asked of it yet.")
REACHED = Reach("True", "Reachable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the stores say of a run."""

    store: Reach = NOT_CHECKED
    bucket: Reach = NOT_CHECKED
    run: Run | None = None
    samplers: tuple[Sampler, ...] = ()
    """Alive ones."""
    registrations: tuple[Sampler, ...] = ()
    """All whose end is not long ago."""
    backlog: int = 0
    now: float = 0.0
    """The store's clock."""
    gist: bytes = b""
    """The same as long as nothing else here has changed but heartbeats and what moves with them
    (``Overview.gist``), the backlog and the clock; empty where that is not known."""

    @property
    def known(self) -> bool:
        """Whether ``run`` is what the store holds."""
        return self.store.status == "True"

    def of_no_run(self) -> Reading:
        """What it says of the stores alone."""
        return Reading(store=self.store, bucket=self.bucket, now=self.now)


def reach(ask: Callable[[], None]) -> Reach:
    """Ask a store something and tell how it went."""
    try:
        with unexpected_answers():
            ask()
    except StoreUnavailableError as error:
        reason = "StorageUnreachable" if error.store == "bucket" else "StateStoreUnreachable"
        return Reach("False", reason, f"{plain(error.cause)} {error.remedy}".rstrip())
    except AccessDeniedError as error:
        return Reach("False", "AccessDenied", f"{plain(error.what)} {error.remedy}".rstrip())
    except ObjectMissingError as error:
        return Reach("False", "BucketNotFound", str(error))
    except SchemaTooNewError as error:
        return Reach("False", error.refusal.reason, str(error))
    except UnexpectedAnswerError as error:
        return Reach("False", "Refused", plain(str(error)))
    return REACHED


def plain(text: str) -> str:
    """A client's message without what changes from one attempt to the next."""
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", text)
    return redacted(text.split(" (configured timeouts")[0].strip())[:300]


def staleness_bound(spec: RLJobSpec | None) -> int:
    """Training steps that a served policy may be behind while all is well."""
    if spec is None:
        return 0
    return spec.algorithm.off_policy.max_staleness + spec.weight_sync.every_steps


def lag(run: Run | None, serving: Sequence[Sampler]) -> int:
    """Training steps between the published policy and the oldest one that is served, ≥ 0."""
    if run is None or run.policy is None:
        return 0
    published = run.policy.step
    return max(0, published - min((one.step for one in serving), default=published))
