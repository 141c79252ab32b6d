"""Messages between the agent and what runs others' code for it: a line of JSON each.

The container ``code`` listens on a Unix socket, the pods of programs on a port. The agent opens a
connection for each call and sends a request, ``{"call": …}``:

=============  ==================================  =============================================
call           with                                answer
=============  ==================================  =============================================
``describe``   nothing                             ``refusal``, ``tools`` or ``failure``
``score``      ``scorer``, ``response``            ``value``, or ``failure``
``tool``       ``tool``, ``arguments``             ``text`` and ``failed``, or ``failure``
``compare``    ``reference``, ``answer``,          ``same``, or ``failure``
               ``seconds`` of processor time
``act``        the member: ``messages``,           requests ``{"do": …}`` of the user's agent,
               ``turn``, ``turns``, ``room``       each answered; then ``reason``, or ``failure``
``run``        ``program``: a ``ProgramCall``;    ``exit_code``, ``late``, ``log`` and
               its ``task`` and ``environment``    ``seconds``, or ``failure``
``ping``       nothing                             an empty object
``claim``      nothing                             an empty object, then ``run`` and further calls
                                                   on the same connection; or ``failure``
``test``       ``tests``: a ``JudgeCall``;         as of ``run``, and what the tests wrote:
               ``environment``                     ``reward_json`` and ``reward_text``; or
                                                   ``prevented``
``start``      ``server``: name of an MCP server   an empty object, then the program's own bytes
               with a command                      in both directions; or ``failure``
=============  ==================================  =============================================

A pod of programs knows ``ping`` and ``run``. It reads a line with the run's key before each. A pod
of a single episode wants to be claimed by a connection before it runs anything.

A connection that closes ends its call on both sides. Nothing that arrives is trusted: the agent
parses it with the models of ``replies``, and limits its size and time.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NotRequired, TypedDict

MAX_LINE_BYTES = 16 << 20
MESSAGE_CHARACTERS = 1000
"""Of a failure's message; the rest is cut off."""
REWARD_CHARACTERS = 65536
"""Of a file with rewards; the rest is cut off."""
LOG_CHARACTERS = 16384
"""Of a program's output; what is between its start and its end is cut out."""
GRACE_SECONDS = 10.0
"""How much longer than a call's own limit the agent waits for the answer."""
QUEUE_SECONDS = 600.0
"""How much longer it waits where the call may wait for others of the user's code."""


class ProgramCall(TypedDict):
    """A program of the manifest, as it is sent to what runs it."""

    command: list[str]
    seconds: float
    """Longest time; then the program is killed."""
    megabytes: int | None
    """Of data that each process may have; None: no limit of its own."""
    folder: NotRequired[str | None]
    """Working directory; None: one of its own, empty: the container's. Samplers of an earlier
    release, which may call newer pods during an upgrade, leave it out: as None."""


class JudgeCall(TypedDict):
    """Tests of a Harbor task."""

    archive: str
    """Their files: tar, gzip, base64."""
    seconds: float
    folder: str | None
    """As of a program."""


FailureKind = Literal["user", "time", "down"]
"""``user``: the user's code is wrong; ``time``: it took too long; ``down``: it says that a service
which it needs is down, or there was no thread for it."""


class MessageTooLongError(ValueError):
    """A message has more bytes than the other side reads."""


def line(message: dict[str, Any]) -> bytes:
    """A message as it is sent; values that JSON does not know become text.

    Raises:
        MessageTooLongError: names its size and the limit.
    """
    sent = json.dumps(message, ensure_ascii=False, default=str).encode(errors="replace")
    if len(sent) > MAX_LINE_BYTES:
        raise MessageTooLongError(
            f"a message of {len(sent)} bytes cannot be sent: the limit is {MAX_LINE_BYTES}"
        )
    return sent + b"\n"


def failure(kind: FailureKind, message: str) -> dict[str, Any]:
    """The answer of a call that failed."""
    return {"failure": {"kind": kind, "message": message[:MESSAGE_CHARACTERS]}}
