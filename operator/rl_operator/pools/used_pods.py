"""Removes pods of single episodes once they have served theirs; their Deployment makes new ones.

For a pod that agent-sandbox has made, the claim is deleted, and the pod goes with it. If the pod
alone were deleted, its claim would wait for a new one to start, although the warm pool has one.
"""

from __future__ import annotations

from collections.abc import Iterable

from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.metadata import Meta
from rl_operator.render.samplers.programs import COMPONENT
from rl_operator.state.pod import Pod
from rl_operator.state.snapshot import PoolSnapshot

EPISODE_ENDED, POD_USED = 0, 3
"""Exit codes of ``rl_sampler.user_code.programs.server``: after its episode, and where its
container was started again in a pod that an episode may have used. A server that cannot start has
others, so that no pod without Python is replaced for ever."""


def used(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that will serve no episode any more, and still exist."""
    return [pod for pod in pods if not pod.deleting and (_has_ended(pod) or not pod.live)]


def remove(cluster: Cluster, snapshot: PoolSnapshot) -> None:
    """Delete the used pods of a pool's episodes, or their claims."""
    namespace = snapshot.key.namespace
    claims = _by_pod(snapshot)
    for pod in used(snapshot.episode_pods):
        if not pod.from_sandbox:
            cluster.delete(kinds.POD, namespace, pod.name, uid=pod.uid)
        elif pod.name in claims:
            claim = claims[pod.name]
            cluster.delete(kinds.SANDBOX_CLAIM, namespace, claim.name, uid=claim.uid)


def _by_pod(snapshot: PoolSnapshot) -> dict[str, Meta]:
    """The pool's claims by the name of their pod, which is that of the Sandbox that has it.

    agent-sandbox 0.5 labels a claim's Sandbox with the claim's uid, but not its pod.
    """
    return {
        child.raw.get("status", {}).get("sandbox", {}).get("name", ""): child.meta
        for child in snapshot.children.values()
        if child.kind == kinds.SANDBOX_CLAIM.name and child.meta.owner_uid == snapshot.pool.meta.uid
    }


def _has_ended(pod: Pod) -> bool:
    codes = (container.exit_code for container in pod.containers if container.name == COMPONENT)
    return any(code in (EPISODE_ENDED, POD_USED) for code in codes)
