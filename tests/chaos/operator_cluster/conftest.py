"""The cluster tier's cluster and installation, and what makes trainers end."""

from __future__ import annotations

import pytest

from tests.chaos.operator_cluster import jobs
from tests.cluster.conftest import alone, cluster, installed, settings
from tests.cluster.conftest import lab as cluster_lab
from tests.cluster.lab import Lab

__all__ = ["alone", "cluster", "cluster_lab", "installed", "settings"]


@pytest.fixture(scope="session")
def lab(cluster_lab: Lab) -> Lab:
    """The tests' namespace, in which trainers find what ends them."""
    cluster_lab.apply(jobs.fault_config())
    return cluster_lab
