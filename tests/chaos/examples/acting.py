"""Examples with agents, run on the cluster with the small models that are made for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rl_console.report import Report, read_report
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Run
from tests.cluster.lab import Lab
from tests.waiting import HUNG_SECONDS

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
MAKE_SECONDS = 1500.0
COMPLETE_SECONDS = 4 * HUNG_SECONDS
ALL_SECONDS = MAKE_SECONDS + COMPLETE_SECONDS + HUNG_SECONDS
ON_CPU = ("trainer", "samplers")
"""Sections of the calculator's example that any example needs on a machine without a GPU."""

Played = tuple[Report, list[Rollout], Run]


def documents(manifest: str) -> list[dict[str, Any]]:
    """The objects of an example."""
    return list(yaml.safe_load_all((EXAMPLES / manifest).read_text()))


def put_inputs(lab: Lab, task: str, folder: Path) -> None:
    """Make an example's model and data as its user does, and put them where its manifest says."""
    command = [sys.executable, str(EXAMPLES / "agents/make.py"), task, "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    with lab.stores() as stores:
        for kind, prefix in (("model", "models"), ("data", "datasets")):
            for path in (folder / kind).iterdir():
                stores.objects.put_file(f"{prefix}/{task}/{path.name}", path)


def on_cpu(*, model: str = "", **training: Any) -> dict[str, Any]:
    """What makes an example a short one of this machine; ``model`` is a folder of the bucket."""
    (job,) = documents("calculator-agent.yaml")
    spec = {name: job["spec"][name] for name in ON_CPU}
    if model:
        spec["model"] = {"uri": f"s3://rl-data/models/{model}"}
    return spec | ({"training": training} if training else {})


@dataclass
class Stage:
    """Applies examples, and deletes all that it applied."""

    lab: Lab
    image: str
    """Of the samplers, for whatever else needs Python."""
    applied: list[dict[str, Any]] = field(default_factory=list)

    def apply(self, manifests: list[dict[str, Any]], **changes: Any) -> str:
        """Apply objects; ``changes`` are sections of the job. Returns the last one's name."""
        for manifest in manifests:
            if manifest["kind"] == "Deployment":
                (container,) = manifest["spec"]["template"]["spec"]["containers"]
                container["image"] = self.image
            if manifest["kind"] == "RLJob":
                manifest["spec"] |= changes
            self.applied.append(manifest)
            self.lab.apply(manifest)
        return str(manifests[-1]["metadata"]["name"])

    def play(
        self,
        manifests: list[dict[str, Any]],
        *,
        meanwhile: Callable[[], None] | None = None,
        seconds: float = COMPLETE_SECONDS,
        **changes: Any,
    ) -> Played:
        """Run the last job of ``manifests`` to its end, which comes within ``seconds``."""
        name = self.apply(manifests, **changes)
        if meanwhile is not None:
            meanwhile()
        self.lab.await_condition(name, "Complete", seconds=seconds)
        with self.lab.stores() as stores:
            ended = stores.runs.get(self.lab.job(name).status.run_id)
            assert ended is not None
            batches = stores.batches.lineage(ended.head_batch)
            ids = [member.rollout for batch in batches for member in batch.members]
            rollouts = stores.rollouts.get(ids)
            report = read_report(stores.objects, stores.run_prefix(ended.id))
        return report, [rollouts[key] for key in ids], ended

    def clear(self) -> None:
        """Delete it all, the last first."""
        for manifest in reversed(self.applied):
            self.lab.delete(manifest["kind"].lower(), manifest["metadata"]["name"])
