"""Pods of other containers beside a pool's samplers: Deployment, Service and NetworkPolicy.

They run what the user brings, without a token and without a Secret but those that the manifest
names. They lack the labels of the run and of the pool, by which samplers are counted, evicted and
let through; only the pool's samplers reach them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rl_contracts.addresses import METADATA_ADDRESSES
from rl_contracts.spec.agent.environment import Environment
from rl_contracts.spec.agent.program import Program
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import Placement
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import pods
from rl_operator.render.metadata import labels, owned_by, stamped
from rl_operator.render.samplers import sandbox, user_code

Manifest = dict[str, Any]

DNS_PORT = 53
SYSTEM = {"kubernetes.io/metadata.name": "kube-system"}
NAME_SERVICE = {"namespaceSelector": {"matchLabels": SYSTEM}}
ANYWHERE = {
    "0.0.0.0/0": ["169.254.0.0/16", *(f"{ip}/32" for ip in METADATA_ADDRESSES if ip.version == 4)],
    "::/0": ["fe80::/10", *(f"{ip}/128" for ip in METADATA_ADDRESSES if ip.version == 6)],
}
"""All addresses, and which of them serve a node's credentials."""
END_SECONDS = 5
SOME_PODS, ALL_PODS = "25%", "100%"
REQUESTS = {"cpu": "50m", "memory": "128Mi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Pods beside the samplers of a pool, and the objects around them."""

    pool: Meta
    job: Meta
    name: str
    """Of each of their objects."""
    label: str
    """Selects them; its value is the pool."""
    component: str
    """What they are; also the name of their container."""
    port: int
    """Where samplers call them."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Labels that tell them from others of the pool with the same label."""
    quota: Placement | None = None
    """Where a queue has admitted them with their samplers; None: they share no quota."""

    @property
    def address(self) -> str:
        """Where agents reach these pods: ``host:port``."""
        return f"{self.name}.{self.pool.namespace}.svc:{self.port}"

    @property
    def selector(self) -> dict[str, str]:
        """Labels of these pods alone."""
        return {self.label: self.pool.name, **self.also}

    @property
    def samplers(self) -> Manifest:
        """The pool's samplers, as a peer of a policy."""
        return {"podSelector": {"matchLabels": {names.POOL_LABEL: self.pool.name}}}

    def container(
        self, section: Program | Environment, *, image: str | None, variables: Mapping[str, str]
    ) -> Manifest:
        """What every container has that runs what the user brings; its name is the component.

        Args:
            section: what the manifest says of it.
            image: the user's.
            variables: environment variables that the operator sets.
        """
        rendered = {
            "name": self.component,
            "image": image,
            "env": pods.environment(variables, section.env),
            "ports": [{"name": "calls", "containerPort": self.port, "protocol": "TCP"}],
            "resources": pods.resources(section.resources, REQUESTS),
            "securityContext": pods.container_security(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        return pods.reading(rendered, section.env_from)

    def template(
        self,
        container: Manifest,
        *,
        init: Sequence[Manifest] = (),
        volumes: Sequence[Manifest],
        drain: int,
        images: Images,
        runtime_class: str | None = None,
    ) -> Manifest:
        """The pods' template.

        Args:
            container: runs what the user brings.
            init: containers before it.
            volumes: of all of them.
            drain: seconds that the samplers' groups may take to finish, which need these pods.
            images: how images are pulled.
            runtime_class: of the pods; None: the nodes' own.
        """
        pulled = {"imagePullPolicy": images.pull_policy}
        before = [each | pulled for each in init]
        pod = {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **({"runtimeClassName": runtime_class} if runtime_class else {}),
            **pods.pull_secrets(images),
            "securityContext": pods.pod_security()
            | {"runAsUser": user_code.USER, "runAsGroup": user_code.USER},
            "terminationGracePeriodSeconds": drain + END_SECONDS,
            **({"initContainers": before} if before else {}),
            "containers": [container | pulled],
            "volumes": list(volumes),
        }
        if self.quota is not None:
            admitted = Placement(
                node_selector=self.quota.node_selector, tolerations=self.quota.tolerations
            )
            pod = pods.placed(pod, admitted, like=self.selector)
        listed = [each["name"] for each in (*init, container)]
        metadata = {
            "labels": {
                **labels(job=self.job.name, run="", component=self.component),
                **self.selector,
            },
            "annotations": sandbox.without_identity(listed),
        }
        return {"metadata": metadata, "spec": pod}

    def deployment(self, template: Manifest, *, size: int, unserved: bool) -> Manifest:
        """The Deployment with so many pods, of which a rollout in a queue adds none.

        Before the first policy of its runs (``unserved``), an edit replaces all pods at once: no
        episode is to begin in one of the earlier template.
        """
        rollout = {
            "maxSurge": SOME_PODS if self.quota is None else 0,
            "maxUnavailable": ALL_PODS if unserved else SOME_PODS,
        }
        body = {
            "replicas": size,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rollout},
            "selector": {"matchLabels": self.selector},
            "revisionHistoryLimit": 1,
            "template": template,
        }
        return self.child(kinds.DEPLOYMENT, body)

    def service(
        self, *, headless: bool = False, only: Mapping[str, str] = MappingProxyType({})
    ) -> Manifest:
        """The Service; a headless one has the addresses of all ready pods for its name.

        ``only``: further labels that pods must have to be behind it.
        """
        port = {"name": "calls", "port": self.port, "protocol": "TCP", "targetPort": self.port}
        body = {"type": "ClusterIP", "selector": {**self.selector, **only}, "ports": [port]}
        return self.child(kinds.SERVICE, body | ({"clusterIP": "None"} if headless else {}))

    def policy(
        self, *, reaches: Sequence[Manifest] = (), finds_names: bool = True, is_open: bool
    ) -> Manifest:
        """Lets agents call these pods, and them reach no more than is said here.

        Args:
            reaches: egress rules.
            finds_names: they reach the name service.
            is_open: they also reach all addresses but those of a node's credentials.
        """
        egress = [*reaches]
        if finds_names:
            dns = [tcp(DNS_PORT), {"port": DNS_PORT, "protocol": "UDP"}]
            egress.append({"to": [NAME_SERVICE], "ports": dns})
        if is_open:
            blocks = [
                {"ipBlock": {"cidr": cidr, "except": list(kept)}} for cidr, kept in ANYWHERE.items()
            ]
            egress.append({"to": blocks})
        body = {
            "podSelector": {"matchLabels": self.selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [self.samplers], "ports": [tcp(self.port)]}],
            "egress": egress,
        }
        return self.child(kinds.NETWORK_POLICY, body)

    def child(self, kind: kinds.Kind, body: Manifest, *, name: str = "") -> Manifest:
        """An object of the pool with this spec; ``name``: another one than the others have."""
        mine = labels(
            job=self.job.name, run=self.job.run, component=self.component, pool=self.pool.name
        )
        return stamped(
            {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "metadata": {
                    "name": name or self.name,
                    "namespace": self.pool.namespace,
                    "labels": mine,
                    "ownerReferences": owned_by(self.pool, kinds.SAMPLER_POOL),
                },
                "spec": body,
            }
        )


def quota_of(spec: SamplerPoolSpec, job_spec: RLJobSpec) -> Placement | None:
    """Where a queue has admitted a pool's samplers; None: it was asked for none."""
    scheduling = job_spec.scheduling
    asked = scheduling.queued and scheduling.sampler_quota != "None"
    return spec.template if asked else None


def tcp(port: int) -> Manifest:
    """A port of a policy."""
    return {"port": port, "protocol": "TCP"}
