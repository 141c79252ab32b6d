"""The operator's reconcilers on a real API server and real stores; the test plays the rest.

No controller runs there: the test writes what training-operator, the Deployment controller and the
kubelet would say, and documents as trainers and samplers would.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler
from rl_contracts.documents.task import Task
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.names import COMPONENT_LABEL
from rl_operator.kube.settings import JobRules
from rl_operator.render import reader
from tests.contract.rl_operator.reconciling import (
    RULES,
    Operator,
    Writes,
)
from tests.kube.api_requests import delete_all
from tests.kube.apiserver import ApiServer, apply
from tests.samples.documents import a_run, a_sampler, a_task
from tests.samples.manifests import a_job
from tests.waiting import HUNG_SECONDS

WORLD_SYSTEM = "rl-world"
"""Namespace of the operators in this process."""
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
TRAIN = b'{"id": "1", "query": "1+1=", "answer": "2"}\n'
PYTORCHJOB_CRD = "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"


@dataclass
class World:
    """A namespace with a job in it."""

    apiserver: ApiServer
    cluster: Cluster
    """Of the administrator."""
    operators: Cluster
    """With the rights of the operator."""
    stores: Stores
    settings: StoreSettings
    namespace: str
    writes: Writes = field(default_factory=Writes)
    operator: Operator | None = None
    registered: set[str] = field(default_factory=set)
    """Samplers; they beat whenever time passes in ``settle``."""

    def start_operator(
        self,
        *,
        rules: JobRules = RULES,
        trust_seconds: float = 0.0,
        cache_seconds: float = 0.0,
        fresh_readings: bool = True,
    ) -> Operator:
        """Start a new process without memory or watches; it does not trust cached reads."""
        if self.operator is not None:
            self.operator.close()
        self.operator = Operator(
            self.operators,
            system=WORLD_SYSTEM,
            rules=rules,
            trust_seconds=trust_seconds,
            cache_seconds=cache_seconds,
            fresh_readings=fresh_readings,
        )
        return self.operator

    # What a user does.

    def make_secret(self, **changes: str) -> None:
        values = self.settings.to_mapping() | changes
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.apply("v1", "Secret", "rl-operator-stores", data=encoded)

    def upload_inputs(self) -> None:
        prefix = self.settings.s3_prefix
        for name in MODEL_FILES:
            self.stores.objects.put(f"{prefix}model/{name}", b"{}")
        for name in ("train", "test"):
            self.stores.objects.put(f"{prefix}{name}.jsonl", TRAIN)

    def make_job(self, name: str = "job", **sections: Any) -> Key:
        root = f"s3://{self.settings.s3_bucket}/{self.settings.s3_prefix}"
        data = {
            "train": [{"name": "train", "uri": f"{root}train.jsonl"}],
            "validation": [{"name": "test", "uri": f"{root}test.jsonl"}],
        }
        manifest = a_job(
            name,
            namespace=self.namespace,
            **{"model": {"uri": f"{root}model"}, "data": data, **sections},
        )
        self._write(manifest)
        return Key("RLJob", self.namespace, name)

    def apply(self, api_version: str, kind: str, name: str, **fields: Any) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        self._write({"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields})

    def _write(self, manifest: dict[str, Any]) -> None:
        complaint = apply(self.apiserver, manifest)
        assert complaint == ""

    # What the operator does.

    def settle(self, key: Key) -> dict[str, Any]:
        """Reconcile a job and its pools until a whole pass writes nothing; the job's status.

        A conflict is followed by another reconcile, as in a worker.
        """
        operator = self.operator or self.start_operator()
        deadline = time.monotonic() + HUNG_SECONDS
        while True:
            before = self.writes.count
            status = self.reconcile(key)
            if self.writes.count == before and not self._checks(operator, key, status):
                return status
            assert time.monotonic() < deadline, f"never at rest: {status}"
            time.sleep(0.02)

    def reconcile(self, key: Key) -> dict[str, Any]:
        """Reconcile a job and its pools once; the job's status."""
        operator = self.operator or self.start_operator()
        self.beat()
        with contextlib.suppress(ApiConflictError):  # the refused write counts, too
            operator.jobs.reconcile(key)
            for pool in self.objects(kinds.SAMPLER_POOL):
                name = pool["metadata"]["name"]
                operator.pools.reconcile(Key("SamplerPool", self.namespace, name))
        return self.status(key)

    def _checks(self, operator: Operator, key: Key, status: dict[str, Any]) -> bool:
        """Whether a job's inputs are being checked, by its status or in truth.

        A job that is stalled stays so while it is checked again; one whose reader is about to start
        has no check yet.
        """
        check = operator.preflight._checks.get(key)
        if check is not None and check.future is not None:
            return True
        return any(
            condition["reason"] == "CheckingInputs" for condition in status.get("conditions", [])
        )

    def status(self, key: Key) -> dict[str, Any]:
        job = self.cluster.get(kinds.RLJOB, key.namespace, key.name)
        assert job is not None
        status: dict[str, Any] = job["status"]
        return status

    def objects(self, kind: Kind) -> list[dict[str, Any]]:
        """The objects of jobs and pools: all but those of readers."""
        others = f"{COMPONENT_LABEL}!={reader.COMPONENT}"
        return self.cluster.select(kind, self.namespace, labels=others)

    def condition(self, key: Key, kind: str) -> dict[str, Any]:
        conditions = [
            condition for condition in self.status(key)["conditions"] if condition["type"] == kind
        ]
        return conditions[0] if conditions else {}

    def condition_now(self, key: Key, kind: str) -> bool:
        """Whether a condition is there and True, even before the first status."""
        conditions = self.status(key).get("conditions", [])
        return any(
            condition["type"] == kind and condition["status"] == "True" for condition in conditions
        )

    # What the rest of the cluster does.

    def start_pod(self, name: str, *, of: dict[str, Any]) -> None:
        """A ready pod from a Deployment's or a PyTorchJob's template."""
        spec = of["spec"]
        template = spec.get("template") or spec["pytorchReplicaSpecs"]["Worker"]["template"]
        pod = {
            "apiVersion": kinds.POD.api_version,
            "kind": kinds.POD.name,
            "metadata": {**template["metadata"], "name": name, "namespace": self.namespace},
            "spec": {"containers": [{"name": "pytorch", "image": "x"}]},
        }
        self._write(pod)
        running = {"name": "pytorch", "state": {"running": {"startedAt": _now()}}}
        self.set_pod(name, "Running", container=running, ready=True)

    def start_samplers(self, run: str, *, count: int = 2) -> None:
        """Pods of the pool ``main`` that have registered; two are its minimum in these tests."""
        (deployment,) = self.objects(kinds.DEPLOYMENT)
        for number in range(1, count + 1):
            self.start_pod(f"job-main-x-{number}", of=deployment)
            self.register(run, f"job-main-x-{number}")

    def set_pod(
        self, name: str, phase: str, *, container: dict[str, Any], ready: bool = False
    ) -> None:
        whole = {"image": "x", "imageID": "", "ready": ready, "restartCount": 0, **container}
        status = {
            "phase": phase,
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": _now()},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
            "containerStatuses": [whole],
        }
        self.set_status("pod", name, status)

    def end_trainer(self, name: str, kind: str, *, exit_code: int) -> None:
        """The trainer's pod ends and training-operator says so."""
        ended = {"terminated": {"exitCode": exit_code, "message": "last words"}}
        phase = "Failed" if exit_code else "Succeeded"
        self.set_pod(f"{name}-worker-0", phase, container={"name": "pytorch", "state": ended})
        condition = {"type": kind, "status": "True", "reason": kind, "message": ""}
        self.set_status("pytorchjob", name, {"conditions": [condition], "replicaStatuses": {}})

    def set_status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        self.apiserver.set_status(kind, self.namespace, name, status)

    def register(self, run: str, pod: str, **changes: Any) -> Sampler:
        now = self.stores.mongo.now()
        sampler = a_sampler(
            pod,
            id=f"{run}.sampler.{pod}",
            run=run,
            pod=pod,
            registered_at=now,
            heartbeat_at=now,
            **{"scorers": ["ExactMatch"], "state": "starting", **changes},
        )
        self.stores.samplers.put([sampler])
        self.registered.add(sampler.id)
        return sampler

    def beat(self) -> None:
        """Samplers whose registration is there go on beating, however slow the test is."""
        beaten = {"$set": {"heartbeat_at": self.stores.mongo.now()}}
        self.stores.mongo.collection("samplers").update_many(
            {"_id": {"$in": sorted(self.registered)}}, beaten
        )

    def clear(self) -> None:
        """Leave no job to the operators of later tests."""
        delete_all(self.apiserver.requests, kinds.POD, self.namespace, labels=reader.selector())
        for kind in (kinds.RLJOB, kinds.SAMPLER_POOL):
            for manifest in self.objects(kind):
                meta = manifest["metadata"]
                if meta.get("finalizers"):
                    bare = {"name": meta["name"], "namespace": self.namespace, "finalizers": None}
                    self.cluster.merge(kind, {"metadata": bare})
                self.cluster.delete(kind, self.namespace, meta["name"], uid=meta["uid"])

    def task(self, run: str, sequence: int) -> Task:
        return a_task(sequence, id=f"{run}.train.{sequence}", run=run)

    def write_run(self, run: str, **changes: Any) -> Run:
        now = self.stores.mongo.now()
        values = {
            "id": run,
            "heartbeat_at": now,
            "progress_at": now,
            "epoch": 1,
            "trainers": 1,
            **changes,
        }
        document = a_run(**values)
        self.stores.mongo.collection("runs").replace_one(
            {"_id": run}, document.to_mongo(), upsert=True
        )
        return document


def a_namespace(apiserver: ApiServer) -> str:
    name = f"ns-{secrets.token_hex(4)}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert apply(apiserver, namespace) == ""
    return name


def install_trainer_kind(apiserver: ApiServer, module: Path) -> None:
    """Training-operator's PyTorchJob CRD, from its own module."""
    apiserver.install(module / PYTORCHJOB_CRD)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
