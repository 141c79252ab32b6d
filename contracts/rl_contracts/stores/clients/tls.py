"""Certificates out of the Secret, as the clients want them."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def pem_files(pems: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Files with these PEM texts, readable by us alone, while the context lasts.

    Args:
        pems: by name; empty ones are left out.

    Yields:
        Paths by name. A client that is made meanwhile has read them.
    """
    with tempfile.TemporaryDirectory(prefix="certificates-") as folder:
        paths = {name: Path(folder, name) for name, pem in pems.items() if pem}
        for name, path in paths.items():
            path.touch(mode=0o600)
            path.write_text(pems[name])
        yield {name: str(path) for name, path in paths.items()}


def trusting(ca: str) -> ssl.SSLContext:
    """A client's context that checks name and certificate.

    Args:
        ca: PEM of the only authorities to trust; empty trusts the system's.
    """
    return ssl.create_default_context(cadata=ca or None)
