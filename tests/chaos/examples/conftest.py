"""The cluster tier's cluster and installation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rl_console.demo.settings import DemoSettings
from tests.chaos.examples.acting import Stage
from tests.cluster.conftest import alone, cluster, installed, lab, settings
from tests.cluster.lab import Lab

__all__ = ["alone", "cluster", "installed", "lab", "settings", "stage"]


@pytest.fixture
def stage(lab: Lab, installed: DemoSettings) -> Iterator[Stage]:
    """Whatever is played on it is deleted again."""
    stage = Stage(lab=lab, image=installed.images["sampler"])
    yield stage
    stage.clear()
