"""What trainer and agent of one pod say to each other where they take turns on its devices.

The agent listens on a Unix socket in a volume that only trainer, agent and engine mount. The
trainer opens a connection for each turn that it gives or takes, sends one line of JSON
(``TurnRequest``) and reads one (``TurnAnswer``). The file ``GATE`` exists while the engine may hold
the devices: an engine that is started without it waits for it and allocates nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SOCKET = "agent"
"""Name of the socket in the volume."""
GATE = "engine-may-run"
"""Name of the file that opens the way for the engine."""
HANDOVER = "handover"
"""Folder of the weights volume where the trainer puts policies: a folder for each, named as the
last part of the policy's prefix; its manifest comes last."""
MAX_LINE_BYTES = 64 << 10


class Turn(StrEnum):
    """Whose devices they are."""

    SAMPLE = "Sample"
    """The engine's: it has the weights of a policy and samples."""
    TRAIN = "Train"
    """The trainer's: the engine holds no memory of the devices but its context."""


class TurnRequest(BaseModel):
    """Asks the agent to take or give up the devices; the answer comes once that is done."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    turn: Turn
    version: Annotated[int, Field(ge=0)] = 0
    """Of a ``SAMPLE`` turn: oldest policy that the engine must serve before the turn begins."""
    seconds: Annotated[float, Field(gt=0, le=7 * 86400)]
    """Longest time that this may take."""


class TurnAnswer(BaseModel):
    """How a request ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    granted: bool
    message: Annotated[str, Field(max_length=2000)] = ""
    """Why it was not granted."""


def folder_name(prefix: str) -> str:
    """Name of a policy's folder: the last part of its prefix in the bucket."""
    return prefix.rstrip("/").rsplit("/", 1)[-1]
