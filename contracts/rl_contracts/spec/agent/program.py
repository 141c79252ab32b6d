"""A program that acts out an episode by requests to the policy's API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import (
    Environment,
    EnvironmentSources,
    Image,
    Model,
    Resources,
    rule,
    rules,
)

PROGRAM = "Program"
"""The agent, and the scorer that takes the reward which the program posts."""
MOST_EPISODE_PODS = 1000
"""Of a sampler group, of all images."""
OF_POD = {
    "image": "has(self.image)",
    "env": "size(self.env) > 0",
    "envFrom": "size(self.envFrom) > 0",
    "resources": "has(self.resources.limits) || has(self.resources.requests)",
    "network": "self.network != 'Gateway'",
}
"""Fields of a program's own pod, and CEL that is true where one is set."""
EPISODE_PODS = 8
"""Pods for programs that each have one of their own, where the manifest names no number."""
SPARE_PODS = 2
"""Pods of agent-sandbox's warm pool beyond them, where the manifest names no number."""


class Program(Model):
    """A program of yours that plays the agent, unmodified; see docs/guides/programs.md."""

    model_config = rules(
        *(
            rule(
                f"self.runsIn != 'Sidecar' || !({is_set})",
                f"agent.program.{field} is for runsIn Pod or EpisodePod, and runsIn is Sidecar: "
                f"set {'runsIn: Pod' if field == 'network' else f'code.{field}'} instead",
                field=field,
            )
            for field, is_set in OF_POD.items()
        ),
        rule(
            "self.runsIn == 'EpisodePod' || !has(self.pods)",
            "agent.program.pods is for runsIn EpisodePod, and runsIn is {self.runsIn}: remove it; "
            "runsIn Pod has as many pods as samplers",
            field="pods",
        ),
        rule(
            "self.runsIn == 'EpisodePod' || size(self.images) == 0",
            "agent.program.images is for runsIn EpisodePod, and runsIn is {self.runsIn}: remove "
            "it; runsIn Pod has one image",
            field="images",
        ),
        rule(
            "self.runsIn == 'EpisodePod' || self.podsFrom == 'Deployment'",
            "agent.program.podsFrom AgentSandbox is for runsIn EpisodePod, and runsIn is "
            "{self.runsIn}: remove it, or set runsIn to EpisodePod",
            field="podsFrom",
        ),
        rule(
            "self.podsFrom == 'AgentSandbox' || !has(self.sparePods)",
            "agent.program.sparePods is for podsFrom AgentSandbox, and podsFrom is "
            "{self.podsFrom}: remove it; a Deployment starts a pod when another has ended",
            field="sparePods",
        ),
        rule(
            "self.runsIn != 'Sidecar' || !has(self.runtimeClassName)",
            "agent.program.runtimeClassName is for runsIn Pod or EpisodePod, and runsIn is "
            "Sidecar: set it in samplers[].template.podTemplate.spec instead",
            field="runtimeClassName",
        ),
        rule(
            f"(size(self.images) + 1) * self.?pods.orValue({EPISODE_PODS}) <= {MOST_EPISODE_PODS}",
            "agent.program.pods is the number of pods of each image, and with agent.program.images "
            f"that is more than {MOST_EPISODE_PODS} of a sampler group: lower pods or name fewer "
            "images",
            field="images",
        ),
    )
    command: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1024)]],
        Field(min_length=1, max_length=64),
    ]
    """Program and arguments, e.g. `[python, -m, my_agent]`, in its image or code.configMapRef."""
    runs_in: Literal["Pod", "EpisodePod", "Sidecar"] = "Pod"
    """Where it runs. `Pod`: in pods of its own, many episodes in each, which reach the policy's API
    and nothing else. `EpisodePod`: the same with a pod for each episode, which is never used again.
    `Sidecar`: in the container `code` of the sampler's pod, for code that you trust."""
    pods: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Number of pods of each image that stand ready for a sampler group with runsIn EpisodePod, and
    so most of its episodes at a time; others wait for a pod. Unset: 8."""
    pods_from: Literal["Deployment", "AgentSandbox"] = "Deployment"
    """What makes the pods of runsIn EpisodePod. `Deployment`: Kubernetes itself. `AgentSandbox`:
    the controller of kubernetes-sigs/agent-sandbox, each pod by a SandboxClaim, from a
    SandboxWarmPool; it must be installed, and the chart's agentSandbox.enabled set."""
    spare_pods: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Pods of each image that agent-sandbox's warm pool has ready beyond `pods`, for the next
    episodes: a claim takes one in place of waiting for the start of a pod. Unset: 2. Only with
    podsFrom AgentSandbox."""
    runtime_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """RuntimeClass of the program's pods, e.g. `gvisor`. Unset: the nodes' own runtime."""
    image: Image | None = None
    """Image of the program's pods; it needs Python 3.11 or newer as `python3`. Unset: code.image,
    else the sampler's image."""
    images: Annotated[list[Image], Field(max_length=64)] = Field(default_factory=list)
    """Further images of Harbor tasks with runsIn EpisodePod. An episode has a pod of the image that
    its task names, and of `image` where it names none; `pods` pods of each image stand ready."""
    env: Environment = Field(default_factory=list)
    """Environment variables of the program's pods, as in core/v1. It can read their values, also
    those from Secrets."""
    env_from: EnvironmentSources = Field(default_factory=list)
    """Secrets (`secretRef`) or ConfigMaps (`configMapRef`) whose keys all become environment
    variables of the program's pods."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of each of the program's pods, for all programs in it together. Unset: it
    requests 50m of CPU and 128Mi of memory."""
    network: Literal["Gateway", "Open"] = "Gateway"
    """What the program's pods reach, by a NetworkPolicy. `Gateway`: the policy's API, and with
    runsIn Pod the cluster's name service. `Open`: also every other address, except link-local ones
    and others where clouds serve a node's credentials."""
    on_failure: Literal["InfrastructureError", "RewardZero"]
    """What an exit code other than 0, a time-out or a missing reward means.
    `InfrastructureError`: no data, the episode is played again. `RewardZero`: the policy's fault,
    each scorer's value is 0."""
    replayable: bool = False
    """Whether the program, started a second time, sends the same requests where it gets the same
    answers: then agent.durability Turns answers them from what was saved where a sampler died."""
    timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 3600
    """Longest time in seconds of one episode; then the program is killed."""
    megabytes: Annotated[int, Field(ge=16, le=1048576)] | None = None
    """Memory in MB that each process of the program may use. Unset: only the resources of its
    container limit it."""
    max_responses: Annotated[int, Field(ge=1, le=4096)] = 256
    """Most responses of the policy in one episode; later requests are refused."""

    @property
    def in_sidecar(self) -> bool:
        """Whether it runs in the sampler's pod, and reaches the gateway by the loopback."""
        return self.runs_in == "Sidecar"

    @property
    def single_use(self) -> bool:
        """Whether each episode has a pod of its own."""
        return self.runs_in == "EpisodePod"

    @property
    def episode_pods(self) -> int:
        """Pods of a sampler group whose episodes each have one of their own."""
        return EPISODE_PODS if self.pods is None else self.pods

    @property
    def sandboxed(self) -> bool:
        """Whether agent-sandbox makes the pods of episodes."""
        return self.single_use and self.pods_from == "AgentSandbox"

    @property
    def spare(self) -> int:
        """Pods of each image that agent-sandbox has ready beyond those that are claimed."""
        return SPARE_PODS if self.spare_pods is None else self.spare_pods
