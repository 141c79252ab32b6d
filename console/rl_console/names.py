"""Names of objects as users give them, before a request is made of them."""

from __future__ import annotations

import re

from rl_console.errors import UsageError

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""Of a Kubernetes object. In a path, an empty one would mean all, and ``..`` another path."""


def require_name(kind: str, name: str) -> str:
    """A name as it is; raises UsageError where no object can have it.

    Args:
        kind: what it names, e.g. ``RLJob``.
        name: as the user gave it.
    """
    if not name:
        raise UsageError(
            f"the name of the {kind} is empty",
            remedy="Give one; a variable of the shell may not be set",
        )
    if not NAME.fullmatch(name):
        raise UsageError(
            f"the {kind} cannot have the name {name!r}",
            remedy="Names have small letters, digits, - and . alone, and begin and end with a "
            "letter or digit",
        )
    return name


def require_job(namespace: str, job: str) -> None:
    """Raise UsageError where no job of a namespace can have this name."""
    require_name("namespace", namespace)
    require_name("RLJob", job)
