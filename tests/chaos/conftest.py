"""The cluster tier's cluster and installation.

Here, once for all folders: a session's fixture that two of them import is made twice, and the
second one waits in vain for the lock that the first one holds.
"""

from __future__ import annotations

from tests.cluster.conftest import alone, cluster, installed, lab, settings

__all__ = ["alone", "cluster", "installed", "lab", "settings"]
