"""Certificates from the Secret, in the form that the clients need."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def pem_files(pems: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Write PEM texts to files that only this user can read and that exist during the context.

    Args:
        pems: texts by name; empty texts are left out.

    Yields:
        Paths by name. A client that is created within the context has read them.
    """
    with tempfile.TemporaryDirectory(prefix="certificates-") as folder:
        paths = {name: Path(folder, name) for name, pem in pems.items() if pem}
        for name, path in paths.items():
            path.touch(mode=0o600)
            path.write_text(pems[name])
        yield {name: str(path) for name, path in paths.items()}


def trusting(ca: str) -> ssl.SSLContext:
    """A client's TLS context that verifies certificate and host name.

    Args:
        ca: PEM of the authorities to trust, and no others; empty: the system's authorities.
    """
    return ssl.create_default_context(cadata=ca or None)
