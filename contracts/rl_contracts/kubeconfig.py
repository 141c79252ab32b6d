"""What kubectl does with several kubeconfigs, where the Kubernetes client does otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def current_context(files: Iterable[Mapping[str, Any]]) -> str | None:
    """The current context of the first file that names one; the client takes the last one's.

    Args:
        files: contents, in the order of $KUBECONFIG.
    """
    return next(filter(None, (file.get("current-context") for file in files)), None)
