"""Removes pods of single episodes once they have served theirs; their Deployment makes new ones."""

from __future__ import annotations

from collections.abc import Iterable

from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
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
    """Delete the used pods of a pool's episodes."""
    for pod in used(snapshot.episode_pods):
        cluster.delete(kinds.POD, snapshot.key.namespace, pod.name, uid=pod.uid)


def _has_ended(pod: Pod) -> bool:
    codes = (container.exit_code for container in pod.containers if container.name == COMPONENT)
    return any(code in (EPISODE_ENDED, POD_USED) for code in codes)
