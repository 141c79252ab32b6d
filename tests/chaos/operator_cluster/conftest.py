"""What makes trainers end."""

from __future__ import annotations

import pytest

from tests.chaos.operator_cluster import jobs
from tests.cluster.lab import Lab


@pytest.fixture(scope="session")
def lab(lab: Lab) -> Lab:
    """The tests' namespace, in which trainers find what ends them."""
    lab.apply(jobs.fault_config())
    return lab
