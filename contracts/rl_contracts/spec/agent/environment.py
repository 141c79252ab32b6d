"""An OpenEnv server that answers the policy's actions with observations and rewards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Environment as Variables
from rl_contracts.spec.base import (
    EnvironmentSources,
    Image,
    Model,
    ObjectName,
    Resources,
    rule,
    rules,
)

ENVIRONMENT = "Environment"
"""The agent, and the scorer that takes the sum of the rewards of an environment's steps."""
HEADERS_FOLDER = "environment"
"""Of ``headersSecret``'s keys, beside the folders of endpoints' tokens."""
FieldName = Annotated[str, Field(pattern=r"^\w{1,64}$")]
OF_IMAGE = {
    "command": "has(self.command)",
    "port": "has(self.port)",
    "copies": "has(self.copies)",
    "env": "size(self.env) > 0",
    "envFrom": "size(self.envFrom) > 0",
    "resources": "has(self.resources.limits) || has(self.resources.requests)",
    "network": "has(self.network)",
}
"""Fields of an image's pods, and CEL that is true where one is set."""


class Environment(Model):
    """An OpenEnv server, by its address or its image; see docs/guides/environments.md."""

    model_config = rules(
        rule(
            "has(self.url) != has(self.image)",
            "agent.environment needs one of url, a server that runs already, and image, which the "
            "operator runs: set one of them",
        ),
        rule(
            "!has(self.headersSecret) || has(self.url)",
            "agent.environment.headersSecret is for url: samplers reach pods of image without "
            "TLS and without headers: remove it",
            field="headersSecret",
        ),
        *(
            rule(
                f"has(self.image) || !({is_set})",
                f"agent.environment.{field} is for image, and image is unset: remove it, or set "
                "image instead of url",
                field=field,
            )
            for field, is_set in OF_IMAGE.items()
        ),
    )
    url: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+$", max_length=1024)] | None = None
    """Base URL of a server that runs already, e.g. `http://wordle:8000`. Unset: image is used."""
    image: Image | None = None
    """Image with a server, which runs in pods of its own beside the samplers. Unset: url is
    used."""
    command: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=1024)]],
            Field(min_length=1, max_length=64),
        ]
        | None
    ) = None
    """Program of the image and its arguments. Unset: the image's own."""
    port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Port at which the image's server listens, on all addresses. Unset: 8000."""
    copies: Annotated[int, Field(ge=1, le=64)] | None = None
    """Pods with the image for each sampler pod. All are kept running, and samplers of a group
    share theirs. Each takes as many episodes at once as its server allows, which in OpenEnv is one
    unless the server sets max_concurrent_envs. Unset: 1."""
    env: Variables = Field(default_factory=list)
    """Environment variables of the image's server, as in core/v1."""
    env_from: EnvironmentSources = Field(default_factory=list)
    """Secrets (`secretRef`) or ConfigMaps (`configMapRef`) whose keys all become environment
    variables of the image's server."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of each of the image's pods. Unset: it requests 50m of CPU and 128Mi of
    memory."""
    network: Literal["Closed", "Open"] | None = None
    """What the image's pods reach, by a NetworkPolicy. `Closed`: the cluster's name service.
    `Open`: also every other address, except link-local ones and others where clouds serve a node's
    credentials. Unset: Closed."""
    headers_secret: ObjectName | None = None
    """Secret whose keys are HTTP headers of each request to url. Unset: none are added."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Longest time in seconds of one reset or step."""
    replayable: bool = False
    """Whether the same reset and the same actions give the same observations and rewards, in any
    session: then agent.durability Turns plays the saved actions again where a sampler died."""
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

    @property
    def server_port(self) -> int:
        """Where the image's server listens."""
        return self.port or 8000

    @property
    def copies_per_sampler(self) -> int:
        """Pods of the image for each sampler pod, ≥ 1."""
        return self.copies or 1
