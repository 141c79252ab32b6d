"""Jobs that need no sampler, whose trainer is the real one, and how it is made to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rl_console import view
from rl_contracts.spec.status import Condition, RLJobStatus
from tests.cluster.lab import Lab
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.cluster.world import items
from tests.waiting import HUNG_SECONDS

FAULTS = "faults"
"""Name of the ConfigMap with what ends a trainer."""
FOLDER = "/faults"
REQUESTS = {"cpu": "40m", "memory": "64Mi"}
"""Little, for many of them stand side by side on one node."""
COMPLETE_SECONDS = 3 * HUNG_SECONDS
ORDER_SECONDS = 1
TRAINED = ("Succeeded", "Trained")
HALTED = ("Suspended", "Suspended")
CRASHED = ("Failed", "TrainerFailed")


def fault_config() -> dict[str, Any]:
    """The ConfigMap that is mounted where Python imports ``sitecustomize`` from."""
    text = (Path(__file__).parent / "strike.py").read_text()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": FAULTS},
        "data": {"sitecustomize.py": text},
    }


def pod_template(faults: str = "") -> dict[str, Any]:
    """What is laid over a trainer's pod: its attempts end as ``strike.py`` describes."""
    container = {
        "name": "pytorch",
        "env": [
            {"name": "PYTHONPATH", "value": f"{FOLDER}:/opt/app"},
            {"name": "FAULTS", "value": faults},
            {"name": "PACE", "value": "0.5"},
        ],
        "volumeMounts": [{"name": FAULTS, "mountPath": FOLDER, "readOnly": True}],
    }
    volume = {"name": FAULTS, "configMap": {"name": FAULTS}}
    return {"spec": {"containers": [container], "volumes": [volume]}}


def taught_job(name: str, *, faults: str = "", **changes: Any) -> dict[str, Any]:
    """A job of objective SFT: a trainer alone, whose few steps take a second.

    Args:
        name: of the job.
        faults: by attempt, e.g. ``1=exit:42``.
        changes: values by path, as ``short_job`` takes them.
    """
    small = {
        "algorithm": {"objective": "SFT"},
        "samplers": None,
        "reward": None,
        "agent": None,
        "trainer__resources": {"requests": REQUESTS, "limits": {"memory": "3Gi"}},
        "trainer__podTemplate": pod_template(faults),
        "lifecycle__suspendGraceSeconds": 20,
    }
    return short_job(name, **{**small, **changes})


def attempts(status: RLJobStatus) -> list[tuple[str, str]]:
    """Result and reason of each attempt."""
    return [(attempt.result, attempt.reason) for attempt in status.attempts]


def trainer_pod(lab: Lab, job: str) -> str:
    """Name of the job's running trainer pod."""

    def look() -> str:
        pods = [pod for pod in lab.pods(job) if pod.role == "trainer" and pod.phase == "Running"]
        return pods[-1].name if pods else ""

    return until(
        look,
        what=f"a running trainer of {job}",
        seconds=COMPLETE_SECONDS,
        seen=lambda: lab.pods(job),
    )


def await_step(lab: Lab, job: str, step: int) -> None:
    """Wait until the status says that so many steps are done."""
    until(
        lambda: lab.job(job).status.progress.step >= step,
        what=f"step {step} of {job}",
        seconds=COMPLETE_SECONDS,
        seen=lambda: lab.job(job).status.model_dump_json(by_alias=True),
    )


def await_trainer(lab: Lab, run: str, number: int) -> None:
    """Wait until so many trainers have taken a run, and the last of them beats."""

    def look() -> bool:
        with lab.stores() as stores:
            record = stores.runs.get(run)
        return record is not None and (record.trainers, record.heartbeat_at > 0) == (number, True)

    until(look, what=f"trainer {number} of {run}", seconds=COMPLETE_SECONDS)


def order(lab: Lab, job: str, fault: str) -> None:
    """Have a fault strike the running trainer."""
    # It strikes once this command has been answered: its process would go with the trainer's.
    write = f"sleep {ORDER_SECONDS}; echo {fault} > /tmp/fault.new; mv /tmp/fault.new /tmp/fault"
    command = f"({write}) > /dev/null 2>&1 &"
    lab.kubectl("exec", trainer_pod(lab, job), "-c", "pytorch", "--", "sh", "-c", command)


def evict(lab: Lab, pod: str) -> None:
    """Ask for a pod's eviction, as a drain of its node does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{lab.namespace}/pods/{pod}/eviction"
    lab.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def patch(lab: Lab, job: str, text: str) -> None:
    """Merge a patch into the job's spec."""
    lab.kubectl("patch", "rljob", job, "--type=merge", "-p", f'{{"spec": {text}}}')


def suspend_pool(lab: Lab, pool: str, *, wanted: bool) -> None:
    """Let a pool have no pods, or have them again."""
    change = json.dumps({"spec": {"suspend": wanted}})
    lab.kubectl("patch", "samplerpool", pool, "--type=merge", "-p", change)


def await_suspended_pool(lab: Lab, pool: str) -> None:
    """Wait until a pool says that none of its pods is left."""
    wait = ("--for=condition=Suspended", f"--timeout={HUNG_SECONDS:.0f}s")
    lab.kubectl("wait", "samplerpool", pool, *wait, seconds=HUNG_SECONDS + 10)


def condition_of(status: RLJobStatus, kind: str) -> Condition:
    """A condition of a job."""
    condition = view.condition(status, kind)
    assert condition is not None, f"{kind} is not said"
    return condition


def await_phase(lab: Lab, job: str, phase: str, reason: str = "") -> RLJobStatus:
    """Wait until a job has a phase, and its Ready condition a reason."""

    def look() -> RLJobStatus | None:
        status = lab.job(job).status
        ready = view.condition(status, "Ready")
        reached = status.phase == phase and ready is not None and reason in ("", ready.reason)
        return status if reached else None

    def seen() -> str:
        return lab.job(job).status.model_dump_json(by_alias=True)

    status = until(look, what=f"{job} to be {phase} {reason}", seconds=COMPLETE_SECONDS, seen=seen)
    assert status is not None
    return status


def await_gone(lab: Lab, jobs: dict[str, str]) -> None:
    """Delete jobs, by name with their uids, and wait until nothing names them any more."""
    lab.delete("rljob", *jobs)

    def left() -> list[str]:
        objects = [
            *items(lab, namespaces={lab.namespace}).values(),
            *items(lab, namespaces=set()).values(),
        ]
        return sorted(
            f"{item.kind} {item.name}"
            for item in objects
            if item.kind != "Event"
            and any(
                uid in item.metadata or item.name.startswith(f"{job}-") for job, uid in jobs.items()
            )
        )

    until(lambda: not left(), what="the garbage collector", seen=left)
