"""A sampler pod's registration and heartbeat."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from rl_contracts.documents.base import Document
from rl_contracts.errors import Refusal

SILENT_SECONDS = 15.0
"""A sampler sends a heartbeat at least every four seconds; after this silence it counts as dead."""
SIMULATED_USER = "simulated user"
BROWSE_MODEL = "browse model"
SEARCH_SERVICE = "search service"
TOOL_SERVER = "MCP server"
ENVIRONMENT_SERVER = "environment"
PROGRAM_PODS = "pods of programs"
"""Keys in ``unavailable``; a server's name follows TOOL_SERVER. No scorer can have such a name."""
CLOCK_STEP_SECONDS = 120.0
"""A heartbeat further in the future was written before the store's clock was set back."""


class SamplerState(StrEnum):
    """What a sampler is doing."""

    STARTING = "starting"
    LOADING = "loading"
    """Downloading or loading the first policy."""
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


class Sampler(Document):
    """A sampler pod's registration for a run."""

    collection: ClassVar[str] = "samplers"

    run: str
    pool: str
    pod: str
    state: SamplerState
    version: int = 0
    """Policy version that the engine serves; 0 before the first."""
    step: int = 0
    """Training steps that the served version contains."""
    staging_version: int = 0
    """Version being downloaded and verified; 0: none."""
    engine: str = ""
    """Engine name and version, e.g. ``sglang 0.5.23``."""
    relay_url: str = ""
    """URL from which other samplers of the pool can fetch policies; empty: no relay."""
    relay_key: str = ""
    """Its place in the tree in which policies are relayed: a digest of the id."""
    scorers: list[str] = Field(default_factory=list)
    """Scorer kinds that this sampler supports."""
    refusals: list[Refusal] = Field(default_factory=list)
    """Parts of the manifest that it cannot honour; while there are any it claims no task."""
    unavailable: dict[str, str] = Field(default_factory=dict)
    """Scorers, models, tool servers and services that do not answer, with the reason; meanwhile it
    claims no task."""
    registered_at: float
    heartbeat_at: float
    """Store time of the last heartbeat."""
    drained: bool = False
    """It ended by draining, not by a crash."""
    groups_running: int = 0
    groups_done: int = 0
    groups_failed: int = 0
    tokens_generated: int = 0
    tokens_per_second: float = 0.0
    """Generated tokens per second over the last heartbeat interval."""
    updates: int = 0
    """Number of policies loaded."""
    update_failures: int = 0
    pause_seconds_last: float = 0.0
    """How long the last policy update paused the engine."""
    last_error: str = ""

    def is_alive(self, now: float, *, silent_seconds: float = SILENT_SECONDS) -> bool:
        """Whether the sampler counts as alive; every reader uses this test.

        Args:
            now: store time.
            silent_seconds: longest allowed time since the last heartbeat.
        """
        return is_alive(self.state, self.heartbeat_at, now, silent_seconds=silent_seconds)


def is_alive(
    state: object, heartbeat_at: float, now: float, *, silent_seconds: float = SILENT_SECONDS
) -> bool:
    """``Sampler.is_alive`` for a state and a heartbeat (store time)."""
    age = now - heartbeat_at
    return state != SamplerState.GONE and -CLOCK_STEP_SECONDS < age < silent_seconds
