"""Tests of a run's Harbor tasks in the bucket."""

from __future__ import annotations

from rl_contracts.stores.files.blobs import BlobStore

ARCHIVE_BYTES = 8 << 20
"""Of a compressed archive, which goes to the pod as one message."""


class HarborTests(BlobStore):
    """Archives (tar, gzip) of the files in tasks' folders ``tests``."""

    folder, suffix, most_bytes = "tests/", ".tar.gz", ARCHIVE_BYTES
