"""The pod that the operator renders for two runs, its containers run as processes on this machine.

Only paths and ports are changed: what a container sees as ``/weights`` is a folder of the test's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.training.lora import LoRA
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_operator.kube.metadata import Meta
from rl_operator.render.objects import spec_config
from rl_operator.render.samplers import deployment
from tests.contract.rl_sampler.engine.lora import AdapterTrainer, distance
from tests.contract.rl_sampler.engine_server import ENGINE_PYTHON, ENGINE_START_SECONDS, get
from tests.contract.rl_sampler.pods import MODEL_KEY
from tests.contract.rl_sampler.rescoring import CLOSE
from tests.samples.manifests import a_job
from tests.servers import ROOT, free_port
from tests.unit.rl_operator.builders import IMAGES
from tests.waiting import HUNG_SECONDS, until

GROUPS = [{"name": "main", "poolRef": {"name": "shared"}}]
AGENT = {"sampling": {"maxTokensPerTurn": 8, "maxContextTokens": 64}}
ON_CPU = [
    "--device",
    "cpu",
    "--attention-backend",
    "torch_native",
    "--max-total-tokens",
    "32768",
    "--max-running-requests",
    "64",
    "--skip-server-warmup",
]
RANKS = {"first": 4, "second": 2}
PORTS = ("8080", "8083", "8090", "8093", "30000")


def meta(name: str) -> Meta:
    return Meta(
        namespace="ns",
        name=name,
        uid=f"{name}-run",
        generation=1,
        resource_version="1",
        created_at=0.0,
        deleted_at=None,
        labels={},
        annotations={},
        finalizers=(),
        owner_uid="",
    )


@dataclass
class Processes:
    """A pod's containers as processes."""

    folder: Path
    pod: dict[str, Any]
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ports: dict[str, str] = field(
        default_factory=lambda: {name: str(free_port()) for name in PORTS}
    )

    def container(self, name: str) -> dict[str, Any]:
        both = (*self.pod["initContainers"], *self.pod["containers"])
        (chosen,) = (container for container in both if container["name"] == name)
        return dict(chosen)

    def command(self, words: list[str], python: Path | str) -> list[str]:
        return [str(python), *(self._moved(word) for word in words[1:])]

    def environment(self, container: dict[str, Any]) -> dict[str, str]:
        environment = {
            variable["name"]: self._moved(variable.get("value", "pod"))
            for variable in container["env"]
        }
        environment[env.SPEC_FILE] = str(
            self.folder / environment.get(env.JOB, "none") / "rljob.json"
        )
        environment[env.STORES_FOLDER] = str(self.folder / "stores")
        paths = os.pathsep.join(str(ROOT / folder) for folder in ("contracts", "sampler_image"))
        return os.environ | environment | {"PYTHONPATH": paths, "HOME": os.environ["HOME"]}

    def start(self, words: list[str], environ: dict[str, str], *, python: Path | str) -> None:
        with (self.folder / "log").open("ab") as log:
            self.running.append(
                subprocess.Popen(
                    self.command(words, python),
                    env=environ,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def stage(self, job: str) -> None:
        container = self.container(f"stage-{job}")
        subprocess.run(
            self.command(container["command"], sys.executable),
            check=True,
            timeout=HUNG_SECONDS,
            env=self.environment(container),
        )

    def start_engine(self) -> None:
        container = self.container("engine")
        words = [*container["command"], *container["args"]]
        environ = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environ.pop("PYTHONPATH", None)
        self.start(words, environ, python=ENGINE_PYTHON)

    def start_agent(self, job: str) -> None:
        container = self.container(f"agent-{job}")
        self.start(container["command"], self.environment(container), python=sys.executable)

    def probe(self, name: str, kind: str) -> int:
        """The status of an HTTP probe, as the kubelet asks."""
        asked = self.container(name)[kind]["httpGet"]
        port = self.ports[str(asked["port"])]
        return get(f"http://127.0.0.1:{port}{asked['path']}")[0]

    def engine_lives(self) -> bool:
        words = self.container("engine")["livenessProbe"]["exec"]["command"]
        done = subprocess.run(self.command(words, sys.executable), check=False, timeout=60)
        return done.returncode == 0

    def kill(self, number: int) -> None:
        os.killpg(self.running[number].pid, signal.SIGKILL)
        self.running[number].wait(timeout=HUNG_SECONDS)

    def _moved(self, word: str) -> str:
        for place in ("/weights", "/model/", "/run/rl-engine"):
            if word.startswith(place):
                return f"{self.folder}{word}"
        for ours, real in self.ports.items():
            if word == ours or word.endswith(f":{ours}"):
                return word.removesuffix(ours) + real
        return word


@pytest.fixture
def processes(tmp_path: Path, stores: Stores, store_settings: StoreSettings) -> Iterator[Processes]:
    """The pod of two runs whose model and Secret are there; nothing is started yet."""
    (tmp_path / "stores").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "run/rl-engine").mkdir(parents=True)
    for key, value in store_settings.to_mapping().items():
        (tmp_path / "stores" / key).write_text(value)
    uri = f"s3://{stores.objects.bucket}/{stores.objects.prefix}{MODEL_KEY}"
    jobs: list[tuple[Meta, RLJobSpec]] = []
    for name, rank in RANKS.items():
        lora = section_of(rank).model_dump(by_alias=True)
        training = {"steps": 60, "precision": "FP32", "lora": lora}
        own: dict[str, Any] = {
            "model": {"uri": uri},
            "agent": AGENT,
            "training": training,
            "samplers": GROUPS,
        }
        job, spec = meta(name), RLJobSpec.model_validate(a_job(name, **own)["spec"])
        (tmp_path / name).mkdir()
        (tmp_path / "weights" / str(len(jobs))).mkdir(parents=True)
        (tmp_path / name / "rljob.json").write_text(
            spec_config(job, spec, name="x")["data"]["rljob.json"]
        )
        jobs.append((job, spec))
    engine = {"engine": {"args": ON_CPU}}
    pool = SamplerPoolSpec.model_validate({"model": {"uri": uri}, "maxRuns": 2, "template": engine})
    (job, spec), *beside = jobs
    rendered = deployment.render(
        meta("shared"), pool, job=job, job_spec=spec, replicas=1, images=IMAGES, beside=beside
    )
    processes = Processes(tmp_path, rendered["spec"]["template"]["spec"])
    yield processes
    for number, process in enumerate(processes.running):
        if process.poll() is None:
            processes.kill(number)


@pytest.mark.timeout(900)
def test_pod_serves_both_runs(processes: Processes, stores: Stores, tiny_model: Path) -> None:
    for path in tiny_model.iterdir():
        stores.objects.put_file(f"{stores.objects.prefix}{MODEL_KEY}/{path.name}", path)
    trainers = {
        job: AdapterTrainer(stores, folder=tiny_model, section=section_of(rank), run=f"{job}-run")
        for job, rank in RANKS.items()
    }
    for job in RANKS:
        processes.stage(job)
    processes.start_engine()
    for job in RANKS:
        processes.start_agent(job)

    def ready(job: str) -> bool:
        assert all(process.poll() is None for process in processes.running), log_of(processes)
        return processes.probe(f"agent-{job}", "readinessProbe") == 200

    for job in RANKS:
        until(lambda: ready(job), seconds=ENGINE_START_SECONDS, what=f"{job} to be ready")  # noqa: B023
    assert_strangers_are_refused(processes)
    for seed, (job, trainer) in enumerate(trainers.items()):
        trainer.give(seed=seed)
        tasks = trainer.insert(2)
        until(lambda: trainer.all_done(tasks), what=f"the groups of {job}")  # noqa: B023
        for rollout in trainer.chosen(tasks):
            actual = distance(
                rollout, folder=tiny_model, seeds={1: seed}, section=section_of(RANKS[job])
            )
            assert actual < CLOSE
    assert processes.engine_lives()
    processes.kill(1)
    assert processes.engine_lives(), "the second run's agent vouches for it"
    processes.kill(2)
    assert not processes.engine_lives()


def assert_strangers_are_refused(processes: Processes) -> None:
    """Another container of the pod has no key, and sees the command lines of all at most."""
    url = f"http://127.0.0.1:{processes.ports['30000']}"
    for path in ("/v1/models", "/server_info", "/model_info", "/ping"):
        assert get(url + path)[0] == 401, path
    for path in ("/generate", "/unload_lora_adapter", "/load_lora_adapter", "/flush_cache"):
        request = urllib.request.Request(url + path, data=b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(request, timeout=60)
        refused.value.close()
    key = (processes.folder / "run/rl-engine/key").read_text()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert key.encode() not in command.read_bytes()


def section_of(rank: int) -> LoRA:
    return LoRA(rank=rank, alpha=8)


def log_of(processes: Processes) -> str:
    return (processes.folder / "log").read_text()[-3000:]
