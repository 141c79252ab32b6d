"""A Harbor task as part of a task document: what a pod needs to play and to judge it."""

from __future__ import annotations

from pydantic import Field

from rl_contracts.documents.base import Record


class HarborTask(Record):
    """The limits of a Harbor task, and where its tests are."""

    image: str = ""
    """Of its pod, as ``task.toml`` names it; empty: it names none."""
    folder: str = ""
    """Working directory of the program and of the tests; empty: the image's own."""
    agent_seconds: float | None = None
    """Longest time of the program; None: the manifest's."""
    tests_seconds: float = 600.0
    """Longest time of the tests."""
    cpus: float = 0.0
    """Cores that it needs; 0: it does not say."""
    memory_mb: int = 0
    """MiB of memory that it needs; 0: it does not say."""
    storage_mb: int = 0
    """MiB of disk that it needs; 0: it does not say."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables of the program and of the tests."""
    tests_environment: dict[str, str] = Field(default_factory=dict)
    """Variables of the tests besides those."""
    public_network: bool = True
    """It may reach any address; otherwise fewer or none."""
    tests: str = ""
    """SHA-256 of the stored archive of its tests (``rl_contracts.stores.files.harbor_tests``)."""
