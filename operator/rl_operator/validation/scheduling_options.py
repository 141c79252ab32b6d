"""What of ``spec.scheduling`` cannot be honoured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.render.workload import MOST_SETS

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_NAME = 253
NO_SURGE = ("0", "0%")


def of_scheduling(spec: RLJobSpec) -> Iterator[Refusal]:
    """What cannot be honoured, whatever the cluster looks like."""
    wanted = spec.scheduling
    if wanted.gang is not None:
        yield Refusal(
            field="spec.scheduling.gang",
            value=json.dumps(wanted.gang)[:200],
            reason="SchedulerUnsupported",
            message="A gang is a PodGroup of Volcano or coscheduling, which are not supported.",
            remedy="Remove it. Kueue admits trainer and samplers together, with at least "
            "trainer.elastic.minReplicas and autoscaling.minReplicas; without a queue the trainer "
            "starts when its samplers are there. lifecycle.pendingDeadlineSeconds bounds the wait.",
        )
    if wanted.provider in ("Volcano", "Coscheduling"):
        yield Refusal(
            field="spec.scheduling.provider",
            value=wanted.provider,
            reason="SchedulerUnsupported",
            message="Its PodGroups are made for each PyTorchJob alone: trainer and samplers would "
            "not be placed together.",
            remedy="Use Kueue, or None: then the trainer starts when its samplers are there.",
        )
        return
    yield from _of_names(spec)
    if wanted.queued:
        yield from _beyond_queue(spec)


def _of_names(spec: RLJobSpec) -> Iterator[Refusal]:
    wanted = spec.scheduling
    named = {
        "queueName": wanted.queue_name,
        "workloadPriorityClassName": wanted.workload_priority_class_name,
    }
    for field, value in named.items():
        if value and not wanted.queued:
            yield _unused(field, value)
        elif value and (len(value) > LONGEST_NAME or not OBJECT_NAME.fullmatch(value)):
            yield Refusal(
                field=f"spec.scheduling.{field}",
                value=value[:200],
                reason="NameMalformed",
                message="This is no name of an object.",
                remedy=f"Use at most {LONGEST_NAME} lower-case letters, digits, '-' and '.'.",
            )
    if wanted.sampler_quota != "MaxReplicas" and not wanted.queued:
        yield _unused("samplerQuota", wanted.sampler_quota)
    if wanted.queued and not wanted.queue_name:
        yield Refusal(
            field="spec.scheduling.queueName",
            value="(empty)",
            reason="QueueMissing",
            message="Kueue admits a job to a queue.",
            remedy="Name a LocalQueue of the job's namespace.",
        )


def _unused(field: str, value: str) -> Refusal:
    return Refusal(
        field=f"spec.scheduling.{field}",
        value=value[:200],
        reason="QueueUnused",
        message="Without spec.scheduling.provider Kueue no queue is asked.",
        remedy="Set the provider, or remove it.",
    )


def _beyond_queue(spec: RLJobSpec) -> Iterator[Refusal]:
    """What would take more than a queue has admitted."""
    quota = spec.scheduling.sampler_quota
    if len(spec.samplers) >= MOST_SETS and quota != "None":
        yield Refusal(
            field="spec.samplers",
            value=str(len(spec.samplers)),
            reason="TooManyPodSets",
            message=f"A Workload has at most {MOST_SETS} pod sets, and the trainer's is one.",
            remedy=f"Have at most {MOST_SETS - 1} groups.",
        )
    for index, group in enumerate(spec.samplers):
        if group.pool_ref is not None:
            yield Refusal(
                field=f"spec.samplers[{index}].poolRef.name",
                value=group.pool_ref.name,
                reason="PoolNotQueued",
                message="A shared pool's pods are not of the job's Workload: no queue admits them.",
                remedy="Give the group a template, or set spec.scheduling.provider to None.",
            )
            continue
        surge = str(group.template.rollout.max_surge)
        if surge not in NO_SURGE and quota == "MaxReplicas":
            yield Refusal(
                field=f"spec.samplers[{index}].template.rollout.maxSurge",
                value=surge,
                reason="SurgeBeyondQueue",
                message="These pods come on top of those that the queue admits.",
                remedy="Set it to 0.",
            )
