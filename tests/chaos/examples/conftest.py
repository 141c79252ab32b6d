"""What examples need beside themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rl_console.demo.settings import DemoSettings
from tests.chaos.examples.acting import Stage
from tests.cluster.lab import Lab


@pytest.fixture
def stage(lab: Lab, installed: DemoSettings) -> Iterator[Stage]:
    """Whatever is played on it is deleted again."""
    stage = Stage(lab=lab, image=installed.images["sampler"])
    yield stage
    stage.clear()
