"""A program that acts out an episode by requests to the policy's API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, rule, rules

PROGRAM = "Program"
"""The agent, and the scorer that takes the reward which the program posts."""


class Program(Model):
    """A program of yours that plays the agent, unmodified; see docs/guides/programs.md."""

    model_config = rules(
        rule(
            "self.runsIn == 'Sidecar'",
            "agent.program.runsIn Pod is not available yet: set runsIn: Sidecar, which runs the "
            "program in the container code of the sampler pod, without the job's Secrets",
            field="runsIn",
        ),
    )
    command: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1024)]],
        Field(min_length=1, max_length=64),
    ]
    """Program and arguments, e.g. `[python, -m, my_agent]`, in code.configMapRef or code.image."""
    runs_in: Literal["Pod", "Sidecar"] = "Pod"
    """Where it runs. `Pod`: in a pod of its own; not available yet. `Sidecar`: in the container
    `code`, beside the programs of other episodes, so for code that you trust."""
    on_failure: Literal["InfrastructureError", "RewardZero"]
    """What an exit code other than 0, a time-out or a missing reward means.
    `InfrastructureError`: no data, the episode is played again. `RewardZero`: the policy's fault,
    each scorer's value is 0."""
    timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 3600
    """Longest time in seconds of one episode; then the program is killed."""
    megabytes: Annotated[int, Field(ge=16, le=1048576)] | None = None
    """Memory in MB that each process of the program may use. Unset: only code.resources limits
    it."""
    max_responses: Annotated[int, Field(ge=1, le=4096)] = 256
    """Most responses of the policy in one episode; later requests are refused."""

    @property
    def in_sidecar(self) -> bool:
        """Whether it runs in the sampler's pod, and reaches the gateway by the loopback."""
        return self.runs_in == "Sidecar"
