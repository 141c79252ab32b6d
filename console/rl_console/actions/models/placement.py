"""Where the pods of a model run, and with which pull Secrets: as the job's samplers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rl_contracts.pod_overlay import CONTAINER_LISTS, laid_over

Manifest = dict[str, Any]

FIELDS = ("nodeSelector", "tolerations", "priorityClassName", "serviceAccountName")
"""Of a sampler group's template, and of a pod."""


def placed(pod: Manifest, group: Mapping[str, Any], *, as_stage: str = "") -> Manifest:
    """A pod template with the placement of a sampler group and its ``podTemplate`` laid over it.

    Of the ``podTemplate``'s containers those count that the pod has, too: ``engine`` and ``stage``.
    The agent, the containers of the user's code and those that the user adds belong to sampling.

    Args:
        pod: as we render it.
        group: the template of the group, as the API server has it.
        as_stage: the container that stages the model, where it has another name.
    """
    own = {key: group[key] for key in FIELDS if group.get(key)}
    given: Mapping[str, Any] = group.get("podTemplate") or {}
    spec = dict(given.get("spec") or {})
    users = [each for key in CONTAINER_LISTS for each in spec.pop(key, None) or []]
    for key in CONTAINER_LISTS:
        names = [each["name"] for each in pod["spec"].get(key) or []]
        spec |= {key: list(_of(users, names, as_stage))} if names else {}
    placed = laid_over({**pod, "spec": {**pod["spec"], **own}}, {**given, "spec": spec})
    labels = {**(placed["metadata"].get("labels") or {}), **pod["metadata"]["labels"]}
    return {**placed, "metadata": {**placed["metadata"], "labels": labels}}


def _of(users: list[Manifest], names: list[str], as_stage: str) -> Iterator[Manifest]:
    for each in users:
        name = as_stage if as_stage and each["name"] == "stage" else each["name"]
        if name in names:
            yield {**each, "name": name}
