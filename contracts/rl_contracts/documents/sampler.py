"""A sampler pod's registration and heartbeat."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from rl_contracts.documents.base import Document
from rl_contracts.errors import Refusal

SILENT_SECONDS = 15.0
"""A sampler beats every two seconds; one that was silent for longer is taken for dead."""
SIMULATED_USER = "simulated user"
BROWSE_MODEL = "browse model"
TOOL_SERVER = "MCP server"
"""Their names in ``unavailable``, the last with its own behind it; no scorer can be called so."""
CLOCK_STEP_SECONDS = 120.0
"""A heartbeat further in the future was made before the store's clock was set back."""


class SamplerState(StrEnum):
    """What a sampler is doing."""

    STARTING = "starting"
    LOADING = "loading"
    """Staging or loading the first policy."""
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


class Sampler(Document):
    """One sampler pod of a run."""

    collection: ClassVar[str] = "samplers"

    run: str
    pool: str
    pod: str
    state: SamplerState
    version: int = 0
    """Policy version that the engine serves; 0 before the first."""
    step: int = 0
    """Training steps that this version contains."""
    staging_version: int = 0
    """Version being downloaded and verified; 0 when none."""
    engine: str = ""
    """Name and version that the engine reports, e.g. ``sglang 0.5.23``."""
    relay_url: str = ""
    """Where other samplers of the pool may take policies from; empty without a relay."""
    scorers: list[str] = Field(default_factory=list)
    """Scorer kinds that this sampler knows."""
    refusals: list[Refusal] = Field(default_factory=list)
    """What of the manifest it cannot honour; then it claims nothing."""
    unavailable: dict[str, str] = Field(default_factory=dict)
    """Scorers, by kind, models and MCP servers that do not answer now, and why; meanwhile it claims
    nothing."""
    registered_at: float
    heartbeat_at: float
    """Store time."""
    drained: bool = False
    """Ended by draining, not by dying."""
    groups_running: int = 0
    groups_done: int = 0
    groups_failed: int = 0
    tokens_generated: int = 0
    tokens_per_second: float = 0.0
    """Over the last heartbeat interval."""
    updates: int = 0
    """Policies loaded."""
    update_failures: int = 0
    pause_seconds_last: float = 0.0
    """How long the last update kept the engine paused."""
    last_error: str = ""

    def is_alive(self, now: float, *, silent_seconds: float = SILENT_SECONDS) -> bool:
        """Whether its pod may be counted on; the one test for all readers.

        Args:
            now: store time.
            silent_seconds: since its last heartbeat at most.
        """
        return is_alive(self.state, self.heartbeat_at, now, silent_seconds=silent_seconds)


def is_alive(
    state: object, heartbeat_at: float, now: float, *, silent_seconds: float = SILENT_SECONDS
) -> bool:
    """``Sampler.is_alive`` of a state and a heartbeat."""
    age = now - heartbeat_at
    return state != SamplerState.GONE and -CLOCK_STEP_SECONDS < age < silent_seconds
