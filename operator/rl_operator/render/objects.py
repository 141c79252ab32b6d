"""Renders the small children: spec ConfigMap, NetworkPolicy, PodDisruptionBudget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import METRICS_PORT
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.weak_memo import WeakMemo
from rl_operator.render.metadata import labels, owned_by, stamped
from rl_operator.render.samplers import programs

Manifest = dict[str, Any]


_text_of: WeakMemo[RLJobSpec, str] = WeakMemo(
    lambda spec: spec.model_dump_json(by_alias=True, indent=1)
)


def spec_config(job: Meta, spec: RLJobSpec, *, name: str) -> Manifest:
    """The ConfigMap from which pods read the job's validated spec, defaults filled in.

    ``name``: that of the trainer's pods, or of those of a sampler group.
    """
    text = _text_of(spec)
    return stamped(
        {
            "apiVersion": kinds.CONFIG_MAP.api_version,
            "kind": kinds.CONFIG_MAP.name,
            "metadata": {
                "name": name,
                "namespace": job.namespace,
                "labels": labels(job=job.name, run=job.run),
                "ownerReferences": owned_by(job, kinds.RLJOB),
            },
            "data": {names.SPEC_KEY: text},
            "immutable": True,  # its name changes with its data
        }
    )


def network_policy(
    job: Meta, *, with_programs: bool = False, ports: Sequence[int] = (METRICS_PORT,)
) -> Manifest:
    """Allows traffic between this run's pods, plus metrics scraping at these ports.

    Pods of programs are not among the run's: ``with_programs`` lets them reach the gateway alone.
    """
    own = {"podSelector": {"matchLabels": {names.RUN_LABEL: job.run}}}
    outside = [programs.let_in(job)] if with_programs else []
    return stamped(
        {
            "apiVersion": kinds.NETWORK_POLICY.api_version,
            "kind": kinds.NETWORK_POLICY.name,
            "metadata": {
                "name": job.name,
                "namespace": job.namespace,
                "labels": labels(job=job.name, run=job.run),
                "ownerReferences": owned_by(job, kinds.RLJOB),
            },
            "spec": {
                "podSelector": {"matchLabels": {names.RUN_LABEL: job.run}},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"from": [own]},
                    {"ports": [{"port": port, "protocol": "TCP"} for port in ports]},
                    *outside,
                ],
            },
        }
    )


def pool_policy(pool: Meta, *, ports: Sequence[int]) -> Manifest:
    """Allows traffic between a shared pool's pods, plus metrics scraping.

    A job's policy does not suffice: it covers pods with its run's label, which a pod of several
    runs has for one of them only, and it is deleted with its job.
    """
    own = {"podSelector": {"matchLabels": {names.POOL_LABEL: pool.name}}}
    return stamped(
        {
            "apiVersion": kinds.NETWORK_POLICY.api_version,
            "kind": kinds.NETWORK_POLICY.name,
            "metadata": {
                "name": names.shared_policy(pool.name),
                "namespace": pool.namespace,
                "labels": {**names.PART_OF, names.POOL_LABEL: pool.name},
                "ownerReferences": owned_by(pool, kinds.SAMPLER_POOL),
            },
            "spec": {
                **own,
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"from": [own]},
                    {"ports": [{"port": port, "protocol": "TCP"} for port in ports]},
                ],
            },
        }
    )


def of_job_not_wanted(job: Meta, spec: RLJobSpec) -> list[tuple[kinds.Kind, str]]:
    """Kind and name of children that the spec no longer wants."""
    return [(kinds.NETWORK_POLICY, job.name)] if spec.network_policy == "None" else []


def of_pool_not_wanted(
    pool: Meta, spec: SamplerPoolSpec, *, runs: int
) -> list[tuple[kinds.Kind, str]]:
    """Kind and name of children that the pool's spec no longer wants while it serves ``runs``."""
    dropped = []
    if not spec.template.disruption.pdb:
        dropped.append((kinds.DISRUPTION_BUDGET, pool.name))
    several = max(spec.max_runs, runs) > 1
    if spec.shared and (not several or spec.network_policy == "None"):
        dropped.append((kinds.NETWORK_POLICY, names.shared_policy(pool.name)))
    return dropped


def disruption_budget(
    pool: Meta, *, job: str, run: str, max_unavailable: int = 1, shared: bool = False
) -> Manifest:
    """Limits how many samplers of a pool a node drain evicts at a time.

    Pods that are not ready may always be evicted: they serve nothing, their tasks are returned, and
    a pod that never gets ready must not block a drain forever.
    """
    selected = {names.POOL_LABEL: pool.name} | ({} if shared else {names.RUN_LABEL: run})
    return stamped(
        {
            "apiVersion": kinds.DISRUPTION_BUDGET.api_version,
            "kind": kinds.DISRUPTION_BUDGET.name,
            "metadata": {
                "name": pool.name,
                "namespace": pool.namespace,
                "labels": labels(job=job, run=run, component="sampler", pool=pool.name),
                "ownerReferences": owned_by(pool, kinds.SAMPLER_POOL),
            },
            "spec": {
                "maxUnavailable": max_unavailable,
                "selector": {"matchLabels": selected},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }
    )
