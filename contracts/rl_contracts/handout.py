"""How a pod hands out the files of a model: the protocol of ``kubectl rl download``.

The pod listens on loopback, so who may forward a port of it reaches it, and nobody else.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PORT = 8085
INDEX_PATH, FILES_PATH = "/v1/model", "/v1/files/"
QUIET_SECONDS = 300.0
"""The pod ends when nobody has asked for as long."""


class HandedFile(BaseModel):
    """A file of the model."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, Field(pattern=r"^[^/.][^/]*$", max_length=255)]
    size_bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class HandedModel(BaseModel):
    """A model in Hugging Face layout, or an adapter in PEFT's."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    files: Annotated[tuple[HandedFile, ...], Field(max_length=10_000)]

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)
