"""Images of a run in the bucket."""

from __future__ import annotations

from rl_contracts.stores.files.blobs import BlobStore

FOLDER = "images/"
PNG_BYTES = 128 << 20
"""Of a stored image: it has at most 16,777,216 pixels (``spec.data.images.maxPixels``)."""


class ImageStore(BlobStore):
    """Stored images: PNG files of a size that models take as it is."""

    folder, suffix, most_bytes = FOLDER, ".png", PNG_BYTES
