"""Renders the pods that run a job's programs: a Deployment for each pool, as large as the pool.

Each pod has one container of the user's image, without a token, without a Secret but those that the
manifest names for it, and with a digest of the run's key, which agents send. An init container of
ours makes both the digest and the server that runs the programs. A Service spreads calls over the
pods; a NetworkPolicy lets them reach the samplers' gateway alone.

Pods of single episodes (``runsIn: EpisodePod``) are the same, as many as the manifest says, and
each serves one call: ``pools/used_pods.py`` removes them then.
"""

from __future__ import annotations

from typing import Any

from rl_contracts import env
from rl_contracts.addresses import METADATA_ADDRESSES
from rl_contracts.spec.agent.program import Program
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import disk, pods
from rl_operator.render.metadata import labels, owned_by, stamped
from rl_operator.render.pool import future_pool
from rl_operator.render.samplers import episode_pods, sandbox, user_code

Manifest = dict[str, Any]

COMPONENT = "program"
NAME = "program"
"""Of the container."""
GATEWAY_PORT = 8084
"""Of the agents, where programs ask the policy."""
PORT = 8085
FOLDER = "/run/rl-programs"
SERVER = f"{FOLDER}/server"
KEY_DIGEST = f"{FOLDER}/key.sha256"
"""As ``rl_sampler.user_code.program_pod`` writes them."""
DNS_PORT = 53
SYSTEM = {"kubernetes.io/metadata.name": "kube-system"}
NAME_SERVICE = {"namespaceSelector": {"matchLabels": SYSTEM}}
ANYWHERE = {
    "0.0.0.0/0": ["169.254.0.0/16", *(f"{ip}/32" for ip in METADATA_ADDRESSES if ip.version == 4)],
    "::/0": ["fe80::/10", *(f"{ip}/128" for ip in METADATA_ADDRESSES if ip.version == 6)],
}
"""All addresses, and which of them serve a node's credentials."""
END_SECONDS = 5
REQUESTS = {"cpu": "50m", "memory": "128Mi"}


def program_of(spec: RLJobSpec) -> Program | None:
    """The program that runs in pods of its own; None where there is none."""
    program = spec.agent.program
    return None if program is None or program.in_sidecar else program


def address(pool: Meta) -> str:
    """Where agents reach these pods: ``host:port``."""
    return f"{names.programs(pool.name)}.{pool.namespace}.svc:{PORT}"


def beside(
    pool: Meta, spec: SamplerPoolSpec, *, job: Meta, job_spec: RLJobSpec, size: int, images: Images
) -> list[Manifest]:
    """The objects of a pool whose programs run in pods of their own; none for another pool."""
    program = program_of(job_spec)
    if program is None:
        return []
    policies = [] if job_spec.network_policy == "None" else [policy(pool, job, program)]
    return [
        *policies,
        service(pool, job),
        deployment(pool, spec, job=job, job_spec=job_spec, size=size, images=images),
    ]


def not_wanted(pool: Meta, job_spec: RLJobSpec) -> list[tuple[kinds.Kind, str]]:
    """Kind and name of what a pool that had such pods no longer wants.

    The Deployment is not among it: it is emptied, and goes with its pool.
    """
    name, has_pods = names.programs(pool.name), program_of(job_spec) is not None
    dropped = [] if has_pods else [(kinds.SERVICE, name)]
    if not has_pods or job_spec.network_policy == "None":
        dropped.append((kinds.NETWORK_POLICY, name))
    return dropped


def deployment(
    pool: Meta, spec: SamplerPoolSpec, *, job: Meta, job_spec: RLJobSpec, size: int, images: Images
) -> Manifest:
    """The Deployment of a pool with ``size`` samplers."""
    program = program_of(job_spec)
    assert program is not None
    template = pod_template(pool, spec, job=job, job_spec=job_spec, images=images)
    body = {
        "replicas": program.episode_pods if program.single_use and size else size,
        "selector": {"matchLabels": _selector(pool)},
        "revisionHistoryLimit": 1,
        "template": template,
    }
    return _child(pool, job, kinds.DEPLOYMENT, body)


def pod_template(
    pool: Meta, spec: SamplerPoolSpec, *, job: Meta, job_spec: RLJobSpec, images: Images
) -> Manifest:
    """The pods' template."""
    program = program_of(job_spec)
    assert program is not None
    ours = spec.template.image or images.sampler
    container = _container(program, job_spec, image=program.image or job_spec.code.image or ours)
    init, volumes = _init(job, image=ours), _volumes(job_spec)
    if program.single_use:
        container, init = episode_pods.serving_once(container), episode_pods.marking(init)
        volumes.append(episode_pods.volume())
    pulled = {"imagePullPolicy": images.pull_policy}
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **pods.pull_secrets(images),
        "securityContext": pods.pod_security()
        | {"runAsUser": user_code.USER, "runAsGroup": user_code.USER},
        "terminationGracePeriodSeconds": spec.template.drain.seconds + END_SECONDS,
        "initContainers": [init | pulled],
        "containers": [container | pulled],
        "volumes": volumes,
    }
    metadata = {
        "labels": {**labels(job=job.name, run="", component=COMPONENT), **_selector(pool)},
        "annotations": sandbox.without_identity([init["name"], NAME]),
    }
    return {"metadata": metadata, "spec": pod}


def of_group(job: Meta, spec: RLJobSpec, group: SamplerGroup, *, images: Images) -> Manifest:
    """The pods' template of a sampler group, before its pool exists."""
    pool, of_pool = future_pool(job, group)
    return pod_template(pool, of_pool, job=job, job_spec=spec, images=images)


def service(pool: Meta, job: Meta) -> Manifest:
    """The Service that spreads the agents' calls over the pods."""
    body = {
        "type": "ClusterIP",
        "selector": _selector(pool),
        "ports": [{"name": "calls", "port": PORT, "protocol": "TCP", "targetPort": PORT}],
    }
    return _child(pool, job, kinds.SERVICE, body)


def policy(pool: Meta, job: Meta, program: Program) -> Manifest:
    """Lets agents call these pods, and them reach the agents' gateway and the name service.

    Episode pods that reach nothing else are not told of a name: the gateway's URL is an address.
    """
    agents = {"podSelector": {"matchLabels": {names.POOL_LABEL: pool.name}}}
    egress: list[Manifest] = [{"to": [agents], "ports": [_tcp(GATEWAY_PORT)]}]
    if not program.single_use or program.network == "Open":
        ports = [_tcp(DNS_PORT), {"port": DNS_PORT, "protocol": "UDP"}]
        egress.append({"to": [NAME_SERVICE], "ports": ports})
    if program.network == "Open":
        blocks = [
            {"ipBlock": {"cidr": cidr, "except": list(kept)}} for cidr, kept in ANYWHERE.items()
        ]
        egress.append({"to": blocks})
    body = {
        "podSelector": {"matchLabels": _selector(pool)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [agents], "ports": [_tcp(PORT)]}],
        "egress": egress,
    }
    return _child(pool, job, kinds.NETWORK_POLICY, body)


def let_in(job: Meta) -> Manifest:
    """The ingress rule by which agents of a job admit these pods to their gateway."""
    ours = {names.JOB_LABEL: job.name, names.COMPONENT_LABEL: COMPONENT}
    return {"from": [{"podSelector": {"matchLabels": ours}}], "ports": [_tcp(GATEWAY_PORT)]}


def _container(program: Program, spec: RLJobSpec, *, image: str) -> Manifest:
    code = spec.code.config_map_ref
    own = {"HOME": pods.TMP, **({env.CODE_FOLDER: user_code.FOLDER} if code is not None else {})}
    mounts: list[Manifest] = [
        {"name": "programs", "mountPath": FOLDER, "readOnly": True},
        {"name": "tmp", "mountPath": pods.TMP},
    ]
    if code is not None:
        mounts.append({"name": "code", "mountPath": user_code.FOLDER, "readOnly": True})
    rendered = {
        "name": NAME,
        "image": image,
        "command": ["python3", "-I", "-S", SERVER],
        "args": ["--port", str(PORT), "--key-digest", KEY_DIGEST],
        "env": pods.environment(own, program.env),
        "ports": [{"name": "calls", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"requests": dict(REQUESTS)} | program.resources.to_kubernetes(),
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
        "volumeMounts": mounts,
    }
    return pods.reading(rendered, program.env_from)


def _init(job: Meta, *, image: str) -> Manifest:
    """The init container that copies the server and makes the digest of the key."""
    variables = {env.RUN: job.run, env.STORES_FOLDER: pods.STORES_FOLDER, "HOME": pods.TMP}
    return {
        "name": "prepare",
        "image": image,
        "command": ["python", "-m", "rl_sampler.user_code.program_pod", FOLDER],
        "env": pods.environment(variables),
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "stores", "mountPath": pods.STORES_FOLDER, "readOnly": True},
            {"name": "programs", "mountPath": FOLDER},
        ],
    }


def _volumes(spec: RLJobSpec) -> list[Manifest]:
    secret = {"secretName": spec.storage.secret_name, "defaultMode": pods.READ_BY_GROUP}
    listed: list[Manifest] = [
        {"name": "stores", "secret": secret},
        disk.in_memory("programs", disk.SMALL),
        disk.volume("tmp", disk.AGENT_TMP),
    ]
    if spec.code.config_map_ref is not None:
        listed.append({"name": "code", "configMap": {"name": spec.code.config_map_ref.name}})
    return listed


def _selector(pool: Meta) -> dict[str, str]:
    return {names.PROGRAMS_LABEL: pool.name}


def _tcp(port: int) -> Manifest:
    return {"port": port, "protocol": "TCP"}


def _child(pool: Meta, job: Meta, kind: kinds.Kind, body: Manifest) -> Manifest:
    return stamped(
        {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {
                "name": names.programs(pool.name),
                "namespace": pool.namespace,
                "labels": labels(job=job.name, run=job.run, component=COMPONENT, pool=pool.name),
                "ownerReferences": owned_by(pool, kinds.SAMPLER_POOL),
            },
            "spec": body,
        }
    )
