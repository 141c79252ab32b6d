"""Kills, stops, cuts and fills at random over a running job, and an audit at the end.

``python -m benchmarks.chaos --minutes 60 --seed 7`` on the node of the local cluster, as root,
after ``make demo``. It runs the demo's job with its real operator, trainer, samplers and stores,
strikes one pod after the other in an order of the seed, lets the job rest for a minute after each,
and suspends it in the end. Then it audits the run, scores every trained answer again, and prints
the seconds that each kind of fault cost: the table of docs/contributing/benchmarks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.asynchrony import connected
from benchmarks.support import strikes
from benchmarks.support.result import Result
from benchmarks.support.strikes import Act, Struck
from rl_contracts.audit.run import RunAudit, audit
from rl_contracts.stores.connect import Stores
from rl_sampler.scorers.answers import tagged_answer
from rl_sampler.scorers.response import Response
from rl_sampler.scorers.text import exact_match
from tests.chaos.operator_cluster.jobs import await_phase, patch
from tests.cluster.lab import SYSTEM, Lab, RunReader
from tests.cluster.manifests import job

NAME = "chaos"
STEPS = 100_000
"""The run never ends by itself."""
WARM_STEPS, WARM_SECONDS = 5, 60.0
"""Undisturbed: what a step usually takes."""
RECOVERED_STEPS, RECOVERED_SECONDS = 5, 900.0
POLL_SECONDS = 0.5
FULL_BYTES, BLOCK = 4 << 30, 1 << 20
SYSTEM_PODS = {
    "store": "rl-operator-store",
    "bucket": "rl-operator-minio",
    "operator": "rl-operator-",
}
"""How the names of the chart's pods begin, by target."""
TWICE = "were trained by more than"


@dataclass
class Steps:
    """Times at which steps were committed, from a thread that reads the run document."""

    reader: RunReader
    commits: list[float] = field(default_factory=list)
    step: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _moved: threading.Condition = field(default_factory=threading.Condition)

    def watch(self) -> None:
        """Read until ``end``; a document that cannot be read is no step."""
        while not self._ended.wait(POLL_SECONDS):
            document = self.reader.document()
            if document is not None and document.step > self.step:
                new = document.step - self.step if self.step else 1
                with self._moved:
                    self.commits += [time.monotonic()] * new
                    self.step = document.step
                    self._moved.notify_all()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch during the block."""
        thread = threading.Thread(target=self.watch, name="steps", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self.reader.close()

    def await_steps(self, number: int, *, seconds: float) -> bool:
        """Wait for some more steps; False if they were not made in time."""
        with self._moved:
            wanted = self.step + number
            return self._moved.wait_for(lambda: self.step >= wanted, timeout=seconds)


@dataclass(frozen=True)
class Pod:
    """A pod and its processes on this node."""

    name: str
    namespace: str
    uid: str

    def processes(self) -> dict[int, str]:
        """Names of its processes by id; ``pause`` holds its network."""
        names = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                group = (folder / "cgroup").read_text()
                if self.uid in group or self.uid.replace("-", "_") in group:
                    names[int(folder.name)] = (folder / "comm").read_text().strip()
        return names

    def signal(self, number: int) -> None:
        """Send a signal to all processes but ``pause``."""
        for process, name in self.processes().items():
            if name != "pause":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)


def pods(lab: Lab, target: str) -> list[Pod]:
    """Running pods that an act on ``target`` may strike."""
    namespace = SYSTEM if target in SYSTEM_PODS else lab.namespace
    selector = f"rl-operator.io/job={NAME},rl-operator.io/component={target}"
    chosen = [] if target in SYSTEM_PODS else ["-l", selector]
    listed = Lab(lab.cluster, lab.tools, namespace).get("pods", *chosen)["items"]
    stores = (SYSTEM_PODS["store"], SYSTEM_PODS["bucket"])
    running = []
    for item in listed:
        name = item["metadata"]["name"]
        if target in SYSTEM_PODS and not name.startswith(SYSTEM_PODS[target]):
            continue
        if target == "operator" and name.startswith(stores):
            continue
        if item["status"].get("phase") == "Running":
            running.append(Pod(name=name, namespace=namespace, uid=item["metadata"]["uid"]))
    return running


def strike(lab: Lab, act: Act, pod: Pod) -> None:
    """Make an act on a pod; returns when it is over."""
    if act.kind == "delete":
        where = Lab(lab.cluster, lab.tools, pod.namespace)
        where.kubectl("delete", "pod", pod.name, "--wait=false")
    elif act.kind == "kill":
        pod.signal(signal.SIGKILL)
    elif act.kind == "stop":
        pod.signal(signal.SIGSTOP)
        time.sleep(act.seconds)
        pod.signal(signal.SIGCONT)
    elif act.kind == "cut":
        with _cut(pod):
            time.sleep(act.seconds)
    else:
        with _filled(pod):
            time.sleep(act.seconds)


@contextlib.contextmanager
def _cut(pod: Pod) -> Iterator[None]:
    holder = next(process for process, name in pod.processes().items() if name == "pause")
    rule = ["nsenter", "-t", str(holder), "-n", "iptables", "-w"]
    chains = [("INPUT", "-i"), ("OUTPUT", "-o")]
    for chain, way in chains:
        subprocess.run([*rule, "-I", chain, way, "eth0", "-j", "DROP"], check=True)
    try:
        yield
    finally:  # without effect if the pod is gone, and its network with it
        for chain, way in chains:
            subprocess.run([*rule, "-D", chain, way, "eth0", "-j", "DROP"], check=False)


@contextlib.contextmanager
def _filled(pod: Pod) -> Iterator[None]:
    process = next(number for number, name in pod.processes().items() if name != "pause")
    path = Path(f"/proc/{process}/root/tmp/full")
    try:
        with contextlib.suppress(OSError), path.open("wb") as file:
            for _ in range(FULL_BYTES // BLOCK):
                file.write(bytes(BLOCK))
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def run_acts(lab: Lab, acts: list[Act], steps: Steps, *, seed: int) -> list[Struck]:
    """Make all acts, each followed by its rest; returns what they cost."""
    usual, struck = strikes.usual_seconds(steps.commits), []
    print(f"seed {seed}: {len(acts)} acts, {usual:.1f} s for an undisturbed step", flush=True)
    began = time.monotonic()
    for number, act in enumerate(acts):
        time.sleep(max(0.0, began + act.at - time.monotonic()))
        candidates = pods(lab, act.target)
        if not candidates:
            print(f"{act.name}: no such pod runs", flush=True)
            continue
        pod, start = candidates[number % len(candidates)], time.monotonic()
        strike(lab, act, pod)
        time.sleep(max(0.0, start + act.seconds + strikes.REST_SECONDS - time.monotonic()))
        lost = strikes.lost_seconds(
            list(steps.commits), start=start, end=time.monotonic(), usual=usual
        )
        struck.append(Struck(act, lost))
        print(f"{act.name} {pod.name}: {lost:.0f} s lost, step {steps.step}", flush=True)
    return struck


def rescored(stores: Stores, audited: RunAudit) -> tuple[dict[str, float], dict[str, float]]:
    """Stored rewards of the trained rollouts that are kept, and what scoring them again gives."""
    stored: dict[str, float] = {}
    again: dict[str, float] = {}
    for member in audited.facts.members:
        tasks = stores.tasks.get(list(member.tasks))
        for name, rollout in stores.rollouts.get(list(member.rollouts)).items():
            answer, task = tagged_answer(rollout.text), tasks.get(rollout.task)
            if task is None:
                continue
            stored[name] = rollout.reward
            again[name] = exact_match(
                Response(text=rollout.text, answer=answer, reference=task.answer)
            )
    return stored, again


def report(result: Result, audited: RunAudit, stores: Stores) -> None:
    """Put what the audit says into the result, with its bars."""
    run = audited.facts.run
    errors = [finding for finding in audited.findings if finding.level == "error"]
    twice = sum(finding.count for finding in errors if TWICE in finding.what)
    stored, again = rescored(stores, audited)
    false = strikes.false_rewards(stored, again)
    result.figures |= {
        "steps": run.step,
        "trainers": run.trainers,
        "rewards_scored_again": len(stored),
        "findings": [
            f"{finding.level}: {finding.what} ({finding.count})" for finding in audited.findings
        ],
    }
    result.at_most("lost", sum(finding.count for finding in errors) - twice, 0)
    result.at_most("trained twice", twice, 0)
    result.at_most("false rewards", len(false), 0)


def main() -> None:
    """Strike, audit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of all acts together")
    parser.add_argument("--seed", type=int, default=7, help="the same one gives the same acts")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("benchmarks.chaos signals the pods' processes: run it as root on the node")
    acts = strikes.schedule(seed=given.seed, seconds=60 * given.minutes)
    result, lab = Result("chaos"), connected()
    lab.delete("rljob", NAME)
    lab.apply(
        job(
            NAME,
            training__steps=STEPS,
            training__evaluation={"beforeTraining": False, "afterTraining": False},
            lifecycle__backoffLimit=100,
            lifecycle__restartBackoffSeconds=1,
            lifecycle__restartBackoffMaxSeconds=5,
            samplers__0__template__autoscaling={"minReplicas": 2},
        )
    )
    steps = Steps(RunReader(lab, lab.job(NAME).uid))
    with steps.watching():
        if not steps.await_steps(WARM_STEPS, seconds=RECOVERED_SECONDS):
            sys.exit(f"{NAME} made no {WARM_STEPS} steps in {RECOVERED_SECONDS:.0f} s")
        time.sleep(WARM_SECONDS)
        struck = run_acts(lab, acts, steps, seed=given.seed)
        recovered = steps.await_steps(RECOVERED_STEPS, seconds=RECOVERED_SECONDS)
    result.at_least("goes on in the end", float(recovered), 1.0)
    patch(lab, NAME, '{"suspend": true}')
    await_phase(lab, NAME, "Suspended")
    with lab.stores() as stores:
        report(result, audit(stores, lab.job(NAME).uid), stores)
    lab.delete("rljob", NAME)
    print(strikes.table(struck))
    result.print()


if __name__ == "__main__":
    main()
