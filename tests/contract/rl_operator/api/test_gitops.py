"""GitOps tools see no drift in any example, after the operator has reconciled it.

Argo CD computes a three-way merge of the manifest, the annotation of the last client-side apply and
the stored object; Flux, and Argo CD with ServerSideDiff, ask the API server by a dry run.
"""

from __future__ import annotations

import copy
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.world import MODEL_FILES, World
from tests.samples.manifests import EXAMPLES, documents
from tests.waiting import HUNG_SECONDS

OURS = ("RLJob", "SamplerPool")
RECONCILED = ((kinds.RLJOB, "jobs"), (kinds.SAMPLER_POOL, "pools"))
BUCKETS = re.compile(r"s3://(?:rl-data|models|datasets)/")
RECORD = json.dumps(
    {
        "id": "1",
        "query": "1+1=",
        "question": "1+1=",
        "answer": "2",
        "task": "sums",
        "entry": "{}",
        "seed": "1",
        "tests": ["1"],
        "turns": ["1"],
    }
).encode()
"""With all columns that an example names."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def manifests() -> list[dict[str, Any]]:
    """All RLJobs and SamplerPools of all examples."""
    loaded = (document for path in EXAMPLES for document in documents(path.read_text()))
    return [document for document in loaded if document["kind"] in OURS]


def three_way(last: Any, wanted: Any, stored: Any) -> Any:
    """What a three-way JSON merge makes of the stored object; lists are whole, as in any CRD."""
    if not (isinstance(wanted, dict) and isinstance(stored, dict)):
        return wanted
    before = last if isinstance(last, dict) else {}
    merged = {key: value for key, value in stored.items() if key not in before or key in wanted}
    for key, value in wanted.items():
        merged[key] = three_way(before.get(key), value, stored.get(key))
    return merged


class Repository:
    """The examples as a folder of manifests, with inputs that exist."""

    def __init__(self, world: World, folder: Path, *, first: int = 0, every: int = 1) -> None:
        self.world, self.file = world, folder / "manifests.yaml"
        place = f"s3://{world.settings.s3_bucket}/{world.settings.s3_prefix}"
        text = BUCKETS.sub(place, json.dumps(manifests()[first::every]))
        self.manifests: list[dict[str, Any]] = json.loads(text)
        for manifest in self.manifests:
            manifest["metadata"]["namespace"] = world.namespace
        self.file.write_text(yaml.safe_dump_all(self.manifests))
        for uri in set(re.findall(rf'{place}([^"]+)', text)):
            names = [""] if uri.endswith(".jsonl") else [f"/{name}" for name in MODEL_FILES]
            if uri.endswith("/"):  # a folder of Harbor tasks
                names = ["one/task.toml"]
            for name in names:
                content = RECORD if not name else b"{}"
                world.stores.objects.put(f"{world.settings.s3_prefix}{uri}{name}", content)

    def kubectl(self, *arguments: str, check: bool = True) -> tuple[int, str]:
        """Exit code and output of a kubectl command over all manifests."""
        command = (*arguments, "-f", str(self.file))
        done = self.world.apiserver.kubectl(*command, check=check)
        return done.returncode, done.stdout + done.stderr

    def reconcile(self) -> None:
        """Reconcile every job and pool until nothing more is written and nothing is checked."""
        world, operator = self.world, self.world.start_operator()
        deadline = time.monotonic() + HUNG_SECONDS
        while True:
            before = world.writes.count
            for kind, reconciler in RECONCILED:
                for item in world.objects(kind):
                    key = Key(kind.name, world.namespace, item["metadata"]["name"])
                    getattr(operator, reconciler).reconcile(key)
            if world.writes.count == before and not self.reasons("CheckingInputs"):
                return
            assert time.monotonic() < deadline, "never at rest"

    def reasons(self, reason: str) -> list[str]:
        """Messages of the jobs' conditions with this reason."""
        jobs = self.world.objects(kinds.RLJOB)
        conditions = [item for job in jobs for item in job["status"]["conditions"]]
        return [item["message"] for item in conditions if item["reason"] == reason]

    def stalls(self) -> list[str]:
        """Why jobs are stalled."""
        jobs = [manifest for manifest in self.manifests if manifest["kind"] == "RLJob"]
        conditions = [item for job in jobs for item in self.stored(job)["status"]["conditions"]]
        return [item["message"] for item in conditions if item["type"] == "Stalled"]

    def stored(self, manifest: dict[str, Any]) -> dict[str, Any]:
        kind = kinds.RLJOB if manifest["kind"] == "RLJob" else kinds.SAMPLER_POOL
        stored = self.world.cluster.get(kind, self.world.namespace, manifest["metadata"]["name"])
        assert stored is not None
        return stored


@pytest.mark.soak
def test_a_client_side_apply_of_an_example_shows_no_drift(world: World, tmp_path: Path) -> None:
    """Every third one, beginning with the second. The soak applies them all."""
    world.make_secret()
    check_client_side(Repository(world, tmp_path, first=1, every=3))


def check_client_side(repository: Repository) -> None:
    repository.kubectl("apply")
    repository.reconcile()
    assert repository.stalls() == []
    for manifest in repository.manifests:
        stored = repository.stored(manifest)
        annotation = stored["metadata"]["annotations"][LAST_APPLIED]
        wanted = copy.deepcopy(manifest)
        wanted["metadata"]["annotations"] = {LAST_APPLIED: annotation}
        assert three_way(json.loads(annotation), wanted, stored) == stored, stored["metadata"][
            "name"
        ]
    assert repository.kubectl("diff", check=False) == (0, "")
    _, output = repository.kubectl("apply")
    lines = output.strip().splitlines()
    assert [line for line in lines if not line.endswith(" unchanged")] == []
    assert len(lines) == len(repository.manifests)


def test_a_server_side_apply_of_an_example_shows_no_drift(world: World, tmp_path: Path) -> None:
    """Every third one, others than above. The soak applies them all."""
    world.make_secret()
    check_server_side(Repository(world, tmp_path, every=3))


def check_server_side(repository: Repository) -> None:
    repository.kubectl("apply", "--server-side", "--field-manager=flux")
    repository.reconcile()
    diff = ("diff", "--server-side", "--field-manager=flux")
    assert repository.kubectl(*diff, check=False) == (0, "")
    before = [repository.stored(manifest)["metadata"] for manifest in repository.manifests]
    repository.kubectl("apply", "--server-side", "--field-manager=flux")  # without a conflict
    after = [repository.stored(manifest)["metadata"] for manifest in repository.manifests]
    versions = [meta["resourceVersion"] for meta in before]
    assert [meta["resourceVersion"] for meta in after] == versions
    for meta in after:
        managers = {
            entry["manager"] for entry in meta["managedFields"] if "f:spec" in entry["fieldsV1"]
        }
        assert managers == {"flux"}, meta["name"]
