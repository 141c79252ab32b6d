"""The kinds of objects that the operator reads or writes, and their places in the API.

Kinds and keys are tuples: they are looked up hundreds of times for each job, and dataclasses are
hashed and compared in Python, which is slower.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rl_contracts.spec.resources import API_VERSION
from rl_operator.kube.api_errors import ApiMissingError

NAME = re.compile(r"(?!\.{1,2}\Z)[\w.:-]+", re.ASCII)
"""Names that objects can have."""


class Kind(NamedTuple):
    """One kind of object."""

    api_version: str
    plural: str
    name: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Version within the group."""
        return self.api_version.rpartition("/")[2]

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """URL path of one object, of its subresource, or of a namespace's collection.

        Raises:
            ApiMissingError: no object can have this name. Manifests name Secrets, pools and
                classes: ``../../other/secrets/stores`` would reach another namespace.
        """
        if name and not NAME.fullmatch(name):
            doing, message = f"{self.plural} of {namespace}", f"{name[:253]!r} is not a valid name"
            raise ApiMissingError(doing=doing, status=404, message=message)
        root = "/apis" if self.group else "/api"
        place = ["namespaces", namespace] if self.namespaced else []
        parts = [root, self.api_version, *place, self.plural, name, subresource]
        return "/".join(part for part in parts if part)

    def everywhere(self) -> str:
        """URL path of the collection over all namespaces."""
        return f"{'/apis' if self.group else '/api'}/{self.api_version}/{self.plural}"


RLJOB = Kind(API_VERSION, "rljobs", "RLJob")
SAMPLER_POOL = Kind(API_VERSION, "samplerpools", "SamplerPool")
PYTORCH_JOB = Kind("kubeflow.org/v1", "pytorchjobs", "PyTorchJob")
DEPLOYMENT = Kind("apps/v1", "deployments", "Deployment")
POD = Kind("v1", "pods", "Pod")
CONFIG_MAP = Kind("v1", "configmaps", "ConfigMap")
SECRET = Kind("v1", "secrets", "Secret")
DISRUPTION_BUDGET = Kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy")
SERVICE = Kind("v1", "services", "Service")
EVENT = Kind("events.k8s.io/v1", "events", "Event")
LEASE = Kind("coordination.k8s.io/v1", "leases", "Lease")
KUEUE = "kueue.x-k8s.io/v1beta2"
WORKLOAD = Kind(KUEUE, "workloads", "Workload")
RESOURCE_FLAVOR = Kind(KUEUE, "resourceflavors", "ResourceFlavor", namespaced=False)
WORKLOAD_PRIORITY_CLASS = Kind(
    KUEUE, "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
SANDBOX = "extensions.agents.x-k8s.io/v1beta1"
SANDBOX_TEMPLATE = Kind(SANDBOX, "sandboxtemplates", "SandboxTemplate")
SANDBOX_WARM_POOL = Kind(SANDBOX, "sandboxwarmpools", "SandboxWarmPool")
SANDBOX_CLAIM = Kind(SANDBOX, "sandboxclaims", "SandboxClaim")
NODE = Kind("v1", "nodes", "Node", namespaced=False)
PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", namespaced=False)
TOKEN_REVIEW = Kind("authentication.k8s.io/v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEW = Kind(
    "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)

WRITTEN = (
    RLJOB,
    SAMPLER_POOL,
    PYTORCH_JOB,
    DEPLOYMENT,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SERVICE,
    WORKLOAD,
    SANDBOX_TEMPLATE,
    SANDBOX_WARM_POOL,
    SANDBOX_CLAIM,
)


class Key(NamedTuple):
    """One of our objects by kind and name: the key of work items and caches."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"
