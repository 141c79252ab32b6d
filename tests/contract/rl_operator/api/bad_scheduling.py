"""Ways to be scheduled that the API server refuses, and the field that it then names."""

from __future__ import annotations

from tests.contract.rl_operator.api.bad_options import Manifest, a_group
from tests.samples.manifests import a_job

_SECTIONS: dict[str, tuple[Manifest, str]] = {
    "a scheduler that places PyTorchJobs alone": (
        {"scheduling": {"provider": "Volcano"}},
        "spec.scheduling.provider",
    ),
    "another one of that kind": (
        {"scheduling": {"provider": "Coscheduling", "queueName": "team"}},
        "spec.scheduling.provider",
    ),
    "Kueue without a queue": ({"scheduling": {"provider": "Kueue"}}, "spec.scheduling.queueName"),
    "a queue that nobody asks": (
        {"scheduling": {"queueName": "team"}},
        "spec.scheduling.queueName",
    ),
    "a queue of a name that none can have": (
        {"scheduling": {"provider": "Kueue", "queueName": "Team A"}},
        "spec.scheduling.queueName",
    ),
    "a queue of a name with an empty part": (
        {"scheduling": {"provider": "Kueue", "queueName": "q..q"}},
        "spec.scheduling.queueName",
    ),
    "a priority of a name with an empty part": (
        {
            "scheduling": {
                "provider": "Kueue",
                "queueName": "team",
                "workloadPriorityClassName": "p.-p",
            }
        },
        "spec.scheduling.workloadPriorityClassName",
    ),
    "a priority that nobody reads": (
        {"scheduling": {"workloadPriorityClassName": "urgent"}},
        "spec.scheduling.workloadPriorityClassName",
    ),
    "pods on top of those that are admitted": (
        {
            "scheduling": {"provider": "Kueue", "queueName": "team"},
            **a_group(rollout={"maxSurge": "10%"}),
        },
        "spec.samplers",
    ),
    "a shared pool, which no queue admits": (
        {
            "scheduling": {"provider": "Kueue", "queueName": "team"},
            "samplers": [{"name": "main", "poolRef": {"name": "shared"}}],
        },
        "spec.samplers",
    ),
    "more groups than a Workload has sets": (
        {
            "scheduling": {"provider": "Kueue", "queueName": "team"},
            "samplers": [{"name": f"g{number}"} for number in range(8)],
        },
        "spec.samplers",
    ),
}
REFUSED_SCHEDULING = {
    name: (a_job(**sections), named) for name, (sections, named) in _SECTIONS.items()
}
