"""Validates pod templates by a dry run at the API server before anything is created.

A PyTorchJob with a bad pod template is stored and its pods never appear; a Deployment with an
unknown field loses that field. So the templates are sent as Deployments, which the operator may
create anyway, with ``dryRun=All`` and strict field validation. The trainer's is sent as a
PyTorchJob too: the schema of that kind lacks some fields of core/v1, which would be dropped.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.spec.base import Model
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import kinds, names
from rl_operator.kube.api_errors import ApiHookError, ApiMissingError, ApiRefusedError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import trainer
from rl_operator.render.metadata import owned_by
from rl_operator.render.overrides import reserved_variable
from rl_operator.render.samplers import deployment, own_pods, user_code
from rl_operator.state import pool_ref

Manifest = dict[str, Any]
Known = tuple[str, int, str, bool]
"""A job's uid and generation, the digest of the shared pool's template, and whether the cluster has
the trainer's kind."""

INVALID = (400, 422)
"""Statuses of malformed and invalid objects; others come from quotas and policies and may pass."""
REFUSED_SECONDS = 60.0
"""A refusal is tried again after this time: webhooks answer alike, and may change their mind."""
KEPT_RESULTS = 20_000
TEMPLATES = {
    kinds.DEPLOYMENT: "spec.template",
    kinds.PYTORCH_JOB: "spec.pytorchReplicaSpecs.Worker.template",
}
"""Where each kind that is tried has its pod template."""
REMEDIES = {
    kinds.DEPLOYMENT: "Fix the field: it must be valid in a core/v1 PodTemplateSpec.",
    kinds.PYTORCH_JOB: "Remove the field: training-operator's PyTorchJob has no such field, so the "
    "trainer's pods would lose it.",
}
GO_FIELD = re.compile(r"Go struct field \w+\.([\w.]+)")
UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
IN_CONTAINER = re.compile(
    r"spec\.(containers|initContainers)\[(\d+)\]\.(resources(?!\.claims)|image|envFrom|env)(.*)"
)
PLACES = {
    "spec.nodeSelector": "nodeSelector",
    "spec.tolerations": "tolerations",
    "spec.topologySpreadConstraints": "topologySpread",
    "spec.priorityClassName": "priorityClassName",
    "spec.serviceAccountName": "serviceAccountName",
}
PROGRAM = "spec.agent.program"
OF_PROGRAM = {"spec.runtimeClassName": "runtimeClassName"}
OF_SAMPLERS = ("engine", "agent", "stage")
"""Containers of samplers; in the trainer's pod where they take turns on its GPUs."""
OF_METADATA = ("labels", "annotations")
CONTAINER_FIELDS = {
    ("pytorch", "resources"): "resources",
    ("pytorch", "image"): "image",
    ("engine", "resources"): "resources",
    ("engine", "image"): "engine.image",
    ("agent", "image"): "image",
    ("stage", "image"): "image",
    ("code", "resources"): "resources",
    ("code", "image"): "image",
    ("code", "env"): "env",
    ("code", "envFrom"): "envFrom",
    ("program", "resources"): "resources",
    ("program", "image"): "image",
    ("program", "env"): "env",
    ("program", "envFrom"): "envFrom",
    ("environment", "resources"): "resources",
    ("environment", "image"): "image",
    ("environment", "env"): "env",
    ("environment", "envFrom"): "envFrom",
    ("pytorch", "env"): "env",
    ("pytorch", "envFrom"): "envFrom",
    ("engine", "env"): "engine.env",
    ("engine", "envFrom"): "engine.envFrom",
    ("agent", "env"): "env",
    ("agent", "envFrom"): "envFrom",
    ("stage", "env"): "env",
    ("stage", "envFrom"): "envFrom",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """Validates the pods of jobs; equal templates that passed are sent once."""

    cluster: Cluster
    images: Images
    clock: Callable[[], float]
    """Monotonic seconds."""
    passed: set[tuple[str, str, str]] = field(default_factory=set)
    """Kind, path and digest of the sections whose pods passed."""
    by_spec: dict[Known, tuple[Refusal | None, float]] = field(default_factory=dict)
    """The result of each spec, and until when it holds, monotonic seconds."""

    def refusal(self, job: Meta, spec: RLJobSpec, *, trainer_kind: bool = True) -> Refusal | None:
        """Why the API server refuses a job's pods, by field; None if it does not.

        ``trainer_kind``: whether the cluster has the kind PyTorchJob.
        """
        known = (job.uid, job.generation, _shared(spec), trainer_kind)
        result, until = self.by_spec.get(known, (None, 0.0))
        if known in self.by_spec and self.clock() < until:
            return result
        if len(self.by_spec) >= KEPT_RESULTS:
            self.by_spec.clear()
        result = self._refusal(job, spec, trainer_kind=trainer_kind)
        until = math.inf if result is None else self.clock() + REFUSED_SECONDS
        self.by_spec[known] = (result, until)
        return result

    def _refusal(self, job: Meta, spec: RLJobSpec, *, trainer_kind: bool) -> Refusal | None:
        for kind, at, section, render in _tries(job, spec, self.images):
            if kind == kinds.PYTORCH_JOB and not trainer_kind:
                continue
            beside = spec.samplers if spec.colocated else []
            sections = [each.model_dump(mode="json") for each in (section, spec.code, *beside)]
            known = (kind.name, at, names.digest(sections, length=32))
            if known in self.passed:
                continue
            refused = self._tried(job, kind, at, render())
            if refused is not None:
                return refused
            if len(self.passed) >= KEPT_RESULTS:
                self.passed.clear()
            self.passed.add(known)
        return self._of_sandboxes(job, spec)

    def _of_sandboxes(self, job: Meta, spec: RLJobSpec) -> Refusal | None:
        """Why agent-sandbox cannot make the pods of a job's episodes; None if it can."""
        group = spec.samplers[0] if spec.samplers else None
        template = group and own_pods.template_of_sandboxes(job, spec, group, images=self.images)
        if not template:
            return None
        manifest = template | {"metadata": _tried_as(job)}
        try:
            self.cluster.try_out(kinds.SANDBOX_TEMPLATE, manifest)
        except ApiMissingError:
            return _unusable("The cluster has no kind SandboxTemplate of " + kinds.SANDBOX)
        except ApiRefusedError as error:
            if error.status in INVALID:
                return _unusable(f"agent-sandbox's kind refuses the pods: {error.message[:600]}")
        return None

    def _tried(self, job: Meta, kind: Kind, at: str, body: Manifest) -> Refusal | None:
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": _tried_as(job),
            "spec": body,
        }
        try:
            self.cluster.try_out(kind, manifest)
        except ApiHookError:
            if kind == kinds.PYTORCH_JOB:
                return None  # the creation says that training-operator does not answer
            raise
        except ApiRefusedError as error:
            if error.status not in INVALID:
                return None
            template = _value(manifest, TEMPLATES[kind])
            path, complaint = _first_cause(error, f"{TEMPLATES[kind]}.")
            return Refusal(
                field=field_of(at, path, template),
                value=_shown(_value(template, path)),
                reason="PodRefused",
                message=f"The API server refuses such pods: {complaint[:600].rstrip('.')}.",
                remedy=REMEDIES[kind],
            )
        return None


def _tried_as(job: Meta) -> Manifest:
    """Metadata of what is tried: its name is free, and the admission policy wants an owner."""
    return {
        "generateName": f"{job.name}-",
        "namespace": job.namespace,
        "ownerReferences": owned_by(job, kinds.RLJOB),
    }


def _unusable(complaint: str) -> Refusal:
    return Refusal(
        field="spec.agent.program.podsFrom",
        value="AgentSandbox",
        reason="AgentSandboxMissing",
        message=f"{complaint.rstrip('.')}.",
        remedy="Install agent-sandbox v0.5 with its extensions, or use podsFrom: Deployment.",
    )


def _shared(spec: RLJobSpec) -> str:
    """Digest of a shared pool's template, which is not part of the job's generation."""
    shared = [sampler.template for sampler in spec.samplers if sampler.pool_ref is not None]
    return names.digest([template.model_dump(mode="json") for template in shared]) if shared else ""


def _tries(
    job: Meta, spec: RLJobSpec, images: Images
) -> Iterator[tuple[Kind, str, Model, Callable[[], Manifest]]]:
    """What is tried of a job: kind, path and section of its pods, and renderer of its spec."""

    def deployed(render: Callable[[], Manifest]) -> Manifest:
        return {"selector": {"matchLabels": {names.JOB_LABEL: job.name}}, "template": render()}

    for at, section, render in _templates(job, spec, images):
        yield kinds.DEPLOYMENT, at, section, functools.partial(deployed, render)
    of_trainer = functools.partial(trainer.render, job, spec, attempt=1, images=images)
    yield kinds.PYTORCH_JOB, "spec.trainer", spec.trainer, lambda: of_trainer()["spec"]


def _templates(
    job: Meta, spec: RLJobSpec, images: Images
) -> Iterator[tuple[str, Model, Callable[[], Manifest]]]:
    """Path, section and renderer of the pod template, of the trainer and each sampler group."""
    of_trainer = functools.partial(trainer.pod_template, job, spec, attempt=1, images=images)
    yield "spec.trainer", spec.trainer, of_trainer
    for index, group in enumerate(spec.pooled):
        of_group = functools.partial(deployment.pod_template, job, spec, group, images=images)
        yield pool_ref.place(index, group), group.template, of_group
    at = own_pods.field_of(spec)
    if at and spec.samplers:
        of_own = functools.partial(own_pods.of_group, job, spec, spec.samplers[0], images=images)
        yield at, spec.agent, of_own


def _first_cause(error: ApiRefusedError, within: str) -> tuple[str, str]:
    """Path below the pod template, empty if the API server names none, and its message."""
    for path, complaint in error.causes:
        if path.startswith(within):
            return path.removeprefix(within), complaint
    for pattern in (UNKNOWN_FIELD, GO_FIELD):
        named = pattern.search(error.message)
        if named is not None:
            return named[1].removeprefix(within), error.message
    return "", error.message


def field_of(at: str, path: str, template: Manifest) -> str:
    """The field of the job's spec that a place in a pod template comes from.

    Args:
        at: path of the trainer or of the group's template, e.g. ``spec.trainer``.
        path: in the pod template, e.g. ``spec.tolerations[0].operator``.
        template: the pod template.
    """
    places = PLACES | (OF_PROGRAM if at == PROGRAM else {})
    for start, ours in places.items():
        if path.startswith(start):
            return f"{at}.{ours}{path.removeprefix(start)}"
    if path.startswith(OF_METADATA):  # the API server leaves "metadata" out
        path = f"metadata.{path}"
    inside = IN_CONTAINER.fullmatch(path)
    if inside is not None:
        container = template["spec"][inside[1]][int(inside[2])]
        ours = CONTAINER_FIELDS.get((container["name"], inside[3]), "")
        # One of these names that podTemplate adds has no image, which is reserved.
        rendered = "image" in container
        if ours and rendered and not (inside[3] == "env" and _added(container, inside[4])):
            return f"{_section_of(at, container)}.{ours}{inside[4]}"
    return f"{at}.podTemplate.{path}".rstrip(".")


def _section_of(at: str, container: Manifest) -> str:
    """The section of the spec that describes one of our containers."""
    if container["name"] == user_code.NAME:
        return "spec.code"
    colocated = at == "spec.trainer" and container["name"] in OF_SAMPLERS
    return "spec.samplers[0].template" if colocated else at


def _added(container: Manifest, place: str) -> bool:
    """Whether a variable comes from us or from podTemplate: those of ``env`` precede ours."""
    index = re.match(r"\[(\d+)\]", place)
    before = container["env"][: int(index[1])] if index is not None else []
    return any(reserved_variable(variable["name"], trainer=True) for variable in before)


def _shown(value: Any) -> str:
    """A value as the manifest could have it, in at most 200 characters."""
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:200]


def _value(template: Manifest, path: str) -> Any:
    """The value at a path; empty where the path cannot be followed."""
    place: Any = template
    for step in re.findall(r"\[([^\]]+)\]|([^.\[\]]+)", path):
        key = step[0] or step[1]
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            return ""
    return place
