"""An OpenEnv server that answers the policy's actions with observations and rewards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, ObjectName

ENVIRONMENT = "Environment"
"""The agent, and the scorer that takes the sum of the rewards of an environment's steps."""
HEADERS_FOLDER = "environment"
"""Of ``headersSecret``'s keys, beside the folders of endpoints' tokens."""
FieldName = Annotated[str, Field(pattern=r"^\w{1,64}$")]


class Environment(Model):
    """An OpenEnv server; see docs/guides/environments.md."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+$", max_length=1024)]
    """Base URL of the server, e.g. `http://wordle:8000`."""
    headers_secret: ObjectName | None = None
    """Secret whose keys are HTTP headers of each request. Unset: none are added."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Longest time in seconds of one reset or step."""
    action: Literal["Text", "Json", "Tool"] = "Text"
    """How a response becomes an action. `Text`: it is the value of textField. `Json`: it holds
    the action as an object. `Tool`: it calls tools."""
    text_field: FieldName | None = None
    """Field of a Text action. Unset: `message`."""
    observation_field: FieldName | None = None
    """Field of observations that the policy is shown. Unset: all."""

    @property
    def text(self) -> str:
        """Field of the action that holds the response."""
        return self.text_field or "message"
