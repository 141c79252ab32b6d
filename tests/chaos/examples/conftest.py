"""The cluster tier's cluster and installation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.examples.stage import Stage
from tests.cluster.conftest import alone, cluster, installed, lab, settings
from tests.cluster.lab import Lab

__all__ = ["alone", "cluster", "installed", "lab", "settings", "stage"]


@pytest.fixture
def stage(lab: Lab) -> Iterator[Stage]:
    """Whatever is played on it is deleted again."""
    stage = Stage(lab)
    yield stage
    stage.clear()
