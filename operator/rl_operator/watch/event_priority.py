"""How soon a change of a watched object must be looked at.

While a job starts, its objects change two dozen times, and three of these changes let it go on. A
look costs more than all else that a change costs the operator: what nobody waits for is seen with
what comes next, or after a while.
"""

from __future__ import annotations

from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key
from rl_operator.kube.metadata import Raw
from rl_operator.state import trainer_job
from rl_operator.state.deployment_state import DeploymentState
from rl_operator.state.parsed_pods import parsed_pod

AT_ONCE = 0.0
SOON_SECONDS = 2.0
"""For what may wait, and is told by another change before long."""
TOLD_SECONDS = 0.5
"""For what people are to know, and nothing waits for."""
DECLARED = (
    "uid",
    "generation",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "deletionTimestamp",
)
"""Metadata that change with what is declared of an object; with a status none of them does."""


def may_wait(key: Key, before: Raw | None, after: Raw) -> float:
    """Seconds for which a look at an object of ours may wait for other changes.

    Args:
        key: of ours, which the change concerns.
        before: what has changed, as it was known; None where it was not.
        after: what it is now. What has gone does not wait.
    """
    match after["kind"]:
        case kinds.POD.name:
            waits = _starts(after) or (key.kind == kinds.SAMPLER_POOL.name and _serves(after))
        case kinds.DEPLOYMENT.name:
            return _of_deployment(after)
        case kinds.PYTORCH_JOB.name:
            waits = trainer_job.state_of(after) == "Active" and not _goes(after)
        case kinds.SAMPLER_POOL.name:
            waits = bool(after["spec"].get("job")) and _is_known(key, before, after)
        case kinds.RLJOB.name:
            is_own = key == _key(after)
            waits = is_own and before is not None and _only_status(before, after)
        case _:
            waits = False
    return SOON_SECONDS if waits else AT_ONCE


def _key(raw: Raw) -> Key:
    return Key(raw["kind"], raw["metadata"]["namespace"], raw["metadata"]["name"])


def _starts(raw: Raw) -> bool:
    """A pod that is not there yet, of which nothing is known but that it goes its way."""
    pod = parsed_pod(raw)
    ended = any(container.exit_code is not None for container in pod.containers)
    return pod.phase == "Pending" and not (pod.deleting or pod.reason or ended or pod.trouble())


def _serves(raw: Raw) -> bool:
    """A pod that is ready: its Deployment says so, too, and that is what its pool counts."""
    pod = parsed_pod(raw)
    return pod.ready and not (pod.deleting or pod.reason)


def _of_deployment(raw: Raw) -> float:
    """One that has fewer pods than it ought to, or all of them, and goes on.

    The job itself looks at the pods: that a pool is whole is what the pool says. A shared one's run
    waits for the pool.
    """
    state = DeploymentState.parse(raw)
    shared = names.ASSIGNMENT_ANNOTATION in raw["metadata"].get("annotations", {})
    if state.stuck or shared or _goes(raw) or state.declared == 0:
        return AT_ONCE
    if state.ready < state.declared:
        return SOON_SECONDS
    return TOLD_SECONDS if state.ready == state.declared == state.updated else AT_ONCE


def _is_known(key: Key, before: Raw | None, after: Raw) -> bool:
    """A job's pool that the job has just made, or that says something new of itself."""
    if before is None:
        return key.kind == kinds.RLJOB.name and not _goes(after)
    return _only_status(before, after)


def _only_status(before: Raw, after: Raw) -> bool:
    old, new = before["metadata"], after["metadata"]
    return all(old.get(one) == new.get(one) for one in DECLARED)


def _goes(raw: Raw) -> bool:
    return raw["metadata"].get("deletionTimestamp") is not None
