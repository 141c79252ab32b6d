"""The files that a program may read: a Landlock ruleset, on kernels that have Landlock.

It allows reading the image's files: Python, its packages, system libraries and data. It hides
``/proc``, ``/sys``, ``/run``, ``/tmp``, home folders, other mounts, and all devices but a few
harmless ones. The rules apply to a process for ever, and to what it opens afterwards only.

Documentation/userspace-api/landlock.rst; the numbers of its calls are the same on all machines.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
GET_VERSION, PATH_BENEATH = 1, 1
READ_FILE, READ_FOLDER = 1 << 2, 1 << 3
FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Rights that each version adds; all are taken away, and reading is given back for some paths."""
NETWORK_VERSION, NETWORK_RIGHTS = 4, 0b11
SCOPE_VERSION, SCOPES = 6, 0b11
"""Abstract Unix sockets and signals."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
HIDDEN = frozenset(
    {"dev", "home", "media", "mnt", "proc", "root", "run", "srv", "sys", "tmp", "var"}
)
"""Folders of the root that no rule allows, even where they are part of the image."""


def version() -> int:
    """Version of this kernel's Landlock; 0 where it has none or it is off."""
    return max(_call(CREATE_RULESET, None, 0, GET_VERSION), 0)


def reading_rules() -> int | None:
    """A descriptor of a ruleset that allows reading the image; None where there is no Landlock.

    Raises:
        OSError: the kernel refused it.
    """
    have = version()
    if not have:
        return None
    handled = 0
    for since, rights in FILE_RIGHTS.items():
        handled |= rights if have >= since else 0
    attributes = struct.pack(
        "QQQ",
        handled,
        NETWORK_RIGHTS if have >= NETWORK_VERSION else 0,
        SCOPES if have >= SCOPE_VERSION else 0,
    )
    rules = _checked(CREATE_RULESET, attributes, len(attributes), 0)
    for path in _readable():
        _allow(rules, path)
    return rules


def restrict(rules: int) -> None:
    """Apply a ruleset to this process; it needs PR_SET_NO_NEW_PRIVS."""
    _checked(RESTRICT_SELF, rules, 0)


def _readable() -> Iterator[Path]:
    root = Path("/")
    device = root.stat().st_dev
    for path in root.iterdir():
        if path.name not in HIDDEN and not path.is_symlink() and path.lstat().st_dev == device:
            yield path
    for entry in (sys.prefix, sys.base_prefix, *sys.path):
        path = Path(entry)
        if entry and path.exists():
            yield path
    yield from (Path(device) for device in DEVICES if Path(device).exists())


def _allow(rules: int, path: Path) -> None:
    rights = READ_FILE | (READ_FOLDER if path.is_dir() else 0)
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _checked(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _checked(*arguments: int | bytes | None) -> int:
    result = _call(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock refused the rules: {os.strerror(number)}")
    return result


def _call(*arguments: int | bytes | None) -> int:
    """A system call; bytes are passed by address."""
    library = ctypes.CDLL(None, use_errno=True)
    passed = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    return int(library.syscall(*passed))
