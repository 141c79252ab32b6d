"""This sampler's assignment: its pod's environment and its job's spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from pydantic import ValidationError

from rl_contracts.env import SamplerEnv
from rl_contracts.errors import RLError
from rl_contracts.ids import RunId, SamplerId, sampler_id
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import SamplerTemplate
from rl_sampler.engine.client import Engine
from rl_sampler.engine.weights import WeightsFolder


class AssignmentError(RLError):
    """The mounted spec does not describe this pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A pod's part in a run."""

    env: SamplerEnv
    spec: RLJobSpec
    template: SamplerTemplate
    """Of this pod's pool."""

    @property
    def about(self) -> dict[str, str]:
        """Attributes of this pod's spans in traces."""
        names = {"k8s.namespace.name": self.env.namespace, "k8s.pod.name": self.env.pod_name}
        return {**names, "rl.job": self.env.job, "rl.run": self.run}

    @property
    def run(self) -> RunId:
        """ID of the run that this pod samples for."""
        return RunId(self.env.run)

    @property
    def weights(self) -> WeightsFolder:
        """The folder with the model and this run's policies."""
        return WeightsFolder(
            self.env.weights_folder,
            adapters=self.spec.training.served_adapters is not None,
            base_folder=self.env.base_folder,
        )

    def engine(self, session: aiohttp.ClientSession) -> Engine:
        """A client of the engine, which this run may share with other runs."""
        env = self.env
        return Engine(env.engine_url, session=session, run=self.run, runs=env.engine_runs)

    @property
    def sampler(self) -> SamplerId:
        """ID of this pod's registration."""
        return sampler_id(self.run, self.env.pod_uid)


def load_assignment(environ: Mapping[str, str]) -> Assignment:
    """Read environment and spec file.

    Raises:
        EnvironmentVariableError: a variable is missing or malformed.
        AssignmentError: the spec file is unreadable, malformed, or lacks this pod's pool.
    """
    env = SamplerEnv.parse(environ)
    try:
        spec = RLJobSpec.model_validate_json(env.spec_file.read_bytes())
    except (OSError, ValidationError) as error:
        raise AssignmentError(f"cannot use spec file {env.spec_file}: {error}") from error
    for group in spec.samplers:
        if group.name == env.pool:
            return Assignment(env=env, spec=spec, template=group.template)
    names = ", ".join(group.name for group in spec.samplers)
    raise AssignmentError(f"pool {env.pool!r} is not in spec.samplers, which has {names}")
