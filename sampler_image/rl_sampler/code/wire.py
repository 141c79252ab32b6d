"""Messages between the agent and the container ``code``: a line of JSON each, over a Unix socket.

The agent opens a connection for each call and sends a request, ``{"call": …}``:

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
``run``        ``task`` and ``environment`` of    ``exit_code``, ``late``, ``log`` and
               an episode's program                ``seconds``, or ``failure``
``start``      ``server``: name of an MCP server   an empty object, then the program's own bytes
               with a command                      in both directions; or ``failure``
=============  ==================================  =============================================

A connection that closes ends its call on both sides. Nothing that arrives is trusted: the agent
parses it with the models of ``replies``, and limits its size and time.
"""

from __future__ import annotations

import json
from typing import Any, Literal

MAX_LINE_BYTES = 16 << 20
MESSAGE_CHARACTERS = 1000
"""Of a failure's message; the rest is cut off."""
LOG_CHARACTERS = 16384
"""Of a program's output; what is between its start and its end is cut out."""
GRACE_SECONDS = 10.0
"""How much longer than a call's own limit the agent waits for the answer."""

FailureKind = Literal["user", "time", "down"]
"""``user``: the user's code is wrong; ``time``: it took too long; ``down``: it says that a service
which it needs is down."""


def line(message: dict[str, Any]) -> bytes:
    """A message as it is sent; values that JSON does not know become text."""
    return json.dumps(message, ensure_ascii=False, default=str).encode(errors="replace") + b"\n"


def failure(kind: FailureKind, message: str) -> dict[str, Any]:
    """The answer of a call that failed."""
    return {"failure": {"kind": kind, "message": message[:MESSAGE_CHARACTERS]}}
