"""The cluster tier's cluster and installation."""

from __future__ import annotations

from tests.cluster.conftest import alone, cluster, installed, lab, settings

__all__ = ["alone", "cluster", "installed", "lab", "settings"]
