"""Names, labels, annotations and field managers: every string that ties our objects together."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rl_contracts.spec.resources import GROUP, RLJobSpec
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.kube.weak_memo import WeakMemo

JOB_LABEL = f"{GROUP}/job"
RUN_LABEL = f"{GROUP}/run"
POOL_LABEL = f"{GROUP}/pool"
BESIDE_PREFIX = f"runs.{GROUP}/"
"""Prefix of labels on pods of a shared pool that serves several runs: one for each run
but the first, with its job as value. The first run has the labels of any pod."""
PROGRAMS_LABEL = f"{GROUP}/programs"
"""On pods that run programs for a pool's samplers, with the pool as value. They lack the labels of
the run and of the pool, by which samplers are counted, evicted and let through."""
ENVIRONMENTS_LABEL = f"{GROUP}/environments"
"""The same for pods of an image of environments."""
OWN_POD_LABELS = frozenset([PROGRAMS_LABEL, ENVIRONMENTS_LABEL])
IMAGE_LABEL = f"{GROUP}/image"
"""On pods that each run the program of one episode, with a digest of their image as value."""
CLAIMED_LABEL = "sandbox.users.io/rl-claimed"
"""Of pods that agent-sandbox has given to a claim; its domain is the one in which agent-sandbox
lets claims label pods."""
ATTEMPT_LABEL = f"{GROUP}/attempt"
COMPONENT_LABEL = f"{GROUP}/component"
PART_OF = {
    "app.kubernetes.io/part-of": "rl-operator",
    "app.kubernetes.io/managed-by": "rl-operator",
}

APPLIED_ANNOTATION = f"{GROUP}/applied"
"""Digest of the manifest that the operator applied last."""
ABANDON_ANNOTATION = f"{GROUP}/abandon-data"
"""``"true"`` on an RLJob being deleted: let it go although its data could not be deleted."""
UNUSABLE_ANNOTATION = f"{GROUP}/unusable"
"""On a Workload that we have deactivated: why its admission was unusable (``Reason: message``)."""
UNUSABLE_DEMAND_ANNOTATION = f"{GROUP}/unusable-demand"
"""Beside it: digest of what the job asked for then."""
FLAVORS_ANNOTATION = f"{GROUP}/flavors"
"""On a Workload: the ResourceFlavors of its admission as they were then."""
ASSIGNMENT_ANNOTATION = f"{GROUP}/assignment"
"""On a shared pool's Deployment: the epoch of the assignment that it was written for."""
SPECS_ANNOTATION = f"{GROUP}/specs"
"""On a pool's pods: the ConfigMaps from which they read the specs of their runs, with commas."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
FINALIZER = f"{GROUP}/data"
IN_USE_FINALIZER = f"{GROUP}/in-use"
"""On a shared pool while it serves a run."""

SPEC_MANAGER = "rl-operator"
STATUS_MANAGER = "rl-operator-status"
FINALIZER_MANAGER = "rl-operator-finalizer"
POOL_MANAGER = "rl-operator-pool"

BESIDE_CONTAINER = "rl-operator-"
"""Prefix of the containers of pods of programs or environments in a sampler's pod set; no container
of a podTemplate may have it."""
MOST_CHARACTERS = 63
"""Of a Service's name."""
SPEC_KEY = "rljob.json"
SPEC_VOLUME = "spec"
"""Of trainer and sampler pods: the ConfigMap with the job's spec."""
NO_GROUP = ""
"""In place of a sampler group, for a pool whose group is not in the spec."""
OPERATORS_OWN: dict[str, bool | set[str]] = {
    "suspend": True,
    "stop": True,
    "lifecycle": True,
    "trainer": True,
    "managed_by": True,
    "network_policy": True,
    "weight_sync": {"on_timeout"},
    "scheduling": True,
}
"""Fields of an RLJob that no sampler pod reads."""


def digest(value: Any, *, length: int = 10) -> str:
    """A short digest of JSON-like data; equal data has an equal digest."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def pool(job: str, group: str) -> str:
    """Name of the SamplerPool of a job's sampler group."""
    return f"{job}-{group}"


def pool_of(job: str, group: SamplerGroup) -> str:
    """Name of the SamplerPool of a job's sampler group, its own or a shared one."""
    return group.pool_ref.name if group.pool_ref is not None else pool(job, group.name)


def group(job: str, spec: RLJobSpec, pool: str) -> str:
    """Name of the sampler group that a pool serves in a job; the inverse of ``pool_of``."""
    groups = (sampler.name for sampler in spec.samplers if pool_of(job, sampler) == pool)
    return next(groups, pool.removeprefix(f"{job}-"))


def beside(run: str) -> str:
    """Label of pods that serve a run beside the one of ``RUN_LABEL``; its value is the job."""
    return f"{BESIDE_PREFIX}{run}"


def shared_policy(pool: str) -> str:
    """Name of a shared pool's NetworkPolicy; no job's has a dot."""
    return f"{pool}.pool"


def programs(pool: str) -> str:
    """Name of the Deployment, Service and NetworkPolicy of the pods that run a pool's programs."""
    name = f"{pool}-programs"
    return name if len(name) <= MOST_CHARACTERS else f"{pool[:52]}-{digest(pool)}"


def environments(pool: str) -> str:
    """The same of the pods of an image of environments."""
    name = f"{pool}-environments"
    return name if len(name) <= MOST_CHARACTERS else f"{pool[:52]}-{digest(name)}"


def episodes(pool: str, image: str) -> str:
    """Name of the Deployment and the Service of the pods of an image that each run one episode."""
    name, of_image = f"{pool}-episodes", digest(image)
    if len(name) + len(of_image) < MOST_CHARACTERS:
        return f"{name}-{of_image}"
    return f"{pool[:41]}-{digest(pool)}-{of_image}"


def own_pods(pool: str) -> tuple[str, str]:
    """Names of the objects that a pool may have for pods of programs or environments."""
    return programs(pool), environments(pool)


def workload(job: str) -> str:
    """Name of the Workload of a job."""
    return f"rljob-{job}"


def trainer(job: str, attempt: int) -> str:
    """Name of the trainer's job object of one attempt, ≥ 1."""
    return f"{job}-{attempt}"


def spec_config(job: str, spec: RLJobSpec, group: str) -> str:
    """Name of the ConfigMap from which the pods of a sampler group read a spec.

    It changes with the fields that they read: an edit creates new pods and never changes a file
    under running ones. An edit of one group changes the name of that group only. A pool that the
    spec no longer names is rendered until it is released: ``group`` is then not in the spec.
    """
    digests = _digests_of(spec)
    return f"{job}-spec-{digests.get(group, digests[NO_GROUP])}"


def trainer_config(job: str, spec: RLJobSpec) -> str:
    """Name of the ConfigMap from which the trainer's pods read a spec.

    It changes with every field: each attempt reads the spec as it is when its trainer is created.
    """
    return f"{job}-spec-{_whole_digest_of(spec)}"


def _digests(spec: RLJobSpec) -> dict[str, str]:
    """By sampler group, and for none: a digest of the fields that its pods read."""
    read = spec.model_dump(mode="json", by_alias=True, exclude={**OPERATORS_OWN, "samplers": True})
    of_groups = {group.name: _read(group) for group in spec.samplers}
    return {
        name: digest({**read, "sampler": entry})
        for name, entry in {NO_GROUP: [], **of_groups}.items()
    }


def _read(group: SamplerGroup) -> list[str | int]:
    template = group.template
    return [group.name, template.max_concurrent_groups, template.engine.startup_seconds]


_digests_of = WeakMemo(_digests)


def _whole_digest(spec: RLJobSpec) -> str:
    # With the other digests: one of these names exists only where the others are made as here.
    return digest([_digests_of(spec), spec.model_dump(mode="json", by_alias=True)])


_whole_digest_of = WeakMemo(_whole_digest)
