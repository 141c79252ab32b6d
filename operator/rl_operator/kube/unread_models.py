"""Leaves the Kubernetes client's models out of the process.

Whoever imports the client, for its credentials or, as kopf does, for two types, imports 800 modules
of models and of calls that nobody here makes: 40 MB, and most of the time in which a process
starts. In their places stand types of their names, whose objects hold nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGES = ("kubernetes.client.models.", "kubernetes.client.api.")


def leave_out() -> None:
    """From now on; before anything imports the client."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(PACKAGES) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Unread(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


class _Unread(ModuleType):
    """Has every type that it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = type(name, (), {"__module__": self.__name__, "__init__": _hold_nothing})
        setattr(self, name, found)
        return found


def _hold_nothing(*_: Any, **__: Any) -> None:
    """Kubeflow's client makes some when it is imported."""
