"""Every command of `kubectl rl` that needs a run, typed against one that trains and has ended.

The run is of an adapter, whose versions are merged where they are promoted or served.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from rl_console.cluster.portforward import open_forwarded, port_forward
from tests.chaos.operator_cluster.jobs import COMPLETE_SECONDS, await_phase, await_step
from tests.chaos.rl_operator_cluster.dashboards import walk
from tests.cluster.lab import Lab, command_line
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

JOB, STEPS = "typed", 100_000
ENDPOINT, PROMOTED = "typed-serve", "typed-model"
KEY, SECRET = "a-key-of-the-test", "typed-key"

pytestmark = pytest.mark.timeout(3 * COMPLETE_SECONDS)


@dataclass(frozen=True)
class Typed:
    """What a command printed."""

    out: str
    err: str
    code: int

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def typed(lab: Lab, *arguments: str, stdin: str = "") -> Typed:
    """Run a command as a person does, in the namespace of the tests."""
    command = command_line(lab.tools, "-n", lab.namespace, *arguments)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMPLETE_SECONDS, input=stdin
    )
    return Typed(done.stdout, done.stderr, done.returncode)


def shown(lab: Lab, *arguments: str, stdin: str = "") -> Typed:
    """The same of a command that must succeed."""
    done = typed(lab, *arguments, stdin=stdin)
    assert done.code == 0, (arguments, done.out, done.err)
    return done


@pytest.fixture(scope="module")
def live(lab: Lab) -> Iterator[str]:
    """A job that trains an adapter until it is stopped."""
    # A version is published each second; those that the tests name must still be there.
    kept = {"weightSync__keepLast": 10_000}
    lab.apply(short_job(JOB, training__steps=STEPS, training__lora__rank=4, **kept))
    await_step(lab, JOB, 3)
    yield JOB
    lab.delete("deployment,service,networkpolicy", ENDPOINT)
    lab.delete("rljob", JOB)


def test_a_run_that_trains_is_shown(lab: Lab, live: str, tmp_path: Path) -> None:
    assert live in shown(lab, "list").out
    assert shown(lab, "status", live, "-o", "json").json["status"]["phase"] == "Running"
    assert live in shown(lab, "watch", live, "--timeout", "1").out
    assert "trainer" in shown(lab, "top", live).out
    for part in ("trainer", "agent", "engine"):
        assert shown(lab, "logs", live, part, "--tail", "5").out
    assert "train.0" in shown(lab, "batch", live, "2").out
    assert shown(lab, "policies", live, "-o", "json").json
    assert shown(lab, "report", live, "-o", "json", "--out", str(tmp_path / "curve.png")).json
    assert typed(lab, "diff", live, live, "--curve", "reward_mean").code == 0
    assert shown(lab, "doctor").out


def test_every_page_of_the_dashboard_shows_a_run_that_trains(
    lab: Lab, live: str, tmp_path: Path
) -> None:
    walk(lab.tools, lab.namespace, live, lab.job(live).status.progress.step, tmp_path)


def test_a_stored_prompt_is_replayed_by_the_policy_that_is_served(lab: Lab, live: str) -> None:
    rollout = shown(lab, "trajectories", live, "--limit", "1", "-o", "name").out.split()[0]
    name = rollout.removeprefix("rollout/")
    assert name in shown(lab, "trajectories", live, name, "--tokens").out
    again = shown(lab, "replay", live, name, "-o", "json").json
    assert again["now"]["reward"] is not None
    assert again["now"]["spans"]


def test_a_person_chats_with_the_policy(lab: Lab, live: str) -> None:
    answered = shown(lab, "chat", live, "--temperature", "0", stdin="17+25=\n1+1=\n")
    assert len(re.findall(r"^\[versions? [0-9]", answered.out, re.MULTILINE)) == 2
    asked = shown(lab, "chat", live, "-m", "2+2=", "-o", "json").json
    assert asked["turns"]
    assert asked["spans"]


def test_a_version_is_downloaded_as_an_adapter_and_as_a_whole_model(
    lab: Lab, live: str, tmp_path: Path
) -> None:
    version = str(lab.job(live).status.weights.version)
    shown(lab, "download", live, version, "--to", str(tmp_path / "adapter"))
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    shown(lab, "download", live, version, "--merged", "--to", str(tmp_path / "whole"))
    weights = load_file(next((tmp_path / "whole").glob("*.safetensors")))
    assert not any("lora" in name for name in weights)
    assert (tmp_path / "whole" / "config.json").is_file()


def test_an_adapter_is_promoted_to_a_model_folder(lab: Lab, live: str) -> None:
    version = str(lab.job(live).status.weights.version)
    uri = shown(lab, "promote", live, PROMOTED, version).out.strip()
    assert uri.startswith("s3://")
    assert shown(lab, "promote", live, PROMOTED, version).out.strip() == uri
    prefix = uri.split("/", 3)[3]
    with lab.stores() as stores:
        names = {each.key.removeprefix(prefix) for each in stores.objects.list(prefix)}
        stores.objects.delete_prefix(prefix)
    assert {"config.json", "manifest.json"} <= names


def ask(lab: Lab, key: str) -> tuple[int, str]:
    """The endpoint's answer through a port-forward: status, and who answered."""
    body = {"model": "policy", "messages": [{"role": "user", "content": "1+1="}], "max_tokens": 4}
    with port_forward(
        lab.tools, namespace=lab.namespace, target=f"service/{ENDPOINT}", port=80
    ) as port:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        try:
            with open_forwarded(request, seconds=HUNG_SECONDS) as answer:
                return answer.status, answer.headers["X-Policy-Version"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""


def test_an_adapter_is_served_with_a_key_that_a_second_command_keeps(lab: Lab, live: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    lab.apply({**secret, "stringData": {"api-key": KEY}})
    first = str(lab.job(live).status.weights.version)
    shown(lab, "serve", live, first, "--api-key-secret", SECRET)
    assert ask(lab, KEY) == (200, first)
    assert ask(lab, "another") == (401, "")
    until(lambda: lab.job(live).status.weights.version > int(first), what="the next version")
    second = str(lab.job(live).status.weights.version)
    shown(lab, "serve", live, second)
    assert ask(lab, KEY) == (200, second)
    assert ask(lab, "another") == (401, "")
    shown(lab, "serve", live, "--stop")
    lab.delete("secret", SECRET)
    assert typed(lab, "serve", live, "--stop").code == 3


def samplers(lab: Lab, job: str) -> set[str]:
    """Names of the sampler pods that are ready."""
    return {pod.name for pod in lab.pods(job) if pod.role == "sampler" and pod.ready}


def test_samplers_are_scaled_and_drained(lab: Lab, live: str) -> None:
    shown(lab, "scale", live, "2")
    until(lambda: len(samplers(lab, live)) == 2, what="two samplers", seconds=COMPLETE_SECONDS)
    first = min(samplers(lab, live))
    shown(lab, "drain", live, "--pod", first)
    until(lambda: first not in samplers(lab, live), what="the drained pod to go")
    shown(lab, "scale", live, "1")


def test_a_run_is_suspended_resumed_and_stopped(lab: Lab, live: str, tmp_path: Path) -> None:
    wait = ("--wait", str(int(COMPLETE_SECONDS)))
    shown(lab, "suspend", live, *wait)
    refused = typed(lab, "chat", live, "-m", "1+1=")
    assert (refused.code, "kubectl rl resume" in refused.err) == (3, True)
    shown(lab, "resume", live, *wait)
    shown(lab, "stop", live, "--yes", *wait)
    await_phase(lab, live, "Stopped")
    assert typed(lab, "chat", live, "-m", "1+1=").code == 3
    assert shown(lab, "trajectories", live, "--limit", "2").out
    step = lab.job(live).status.progress.step
    walk(lab.tools, lab.namespace, live, step, tmp_path / "pages")
    picture = tmp_path / "curve.png"
    assert shown(lab, "report", live, "--out", str(picture)).out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_stopped_run_is_continued_by_a_new_job(lab: Lab, live: str, tmp_path: Path) -> None:
    old = lab.job(live)
    step = old.status.progress.step
    saved = tmp_path / "retry.yaml"
    shown(lab, "retry", live, "--yes", "--save", str(saved))
    assert f"runId: {old.run}" in saved.read_text()
    await_step(lab, live, step + 2)
    new = lab.job(live)
    assert (new.run, new.uid != old.uid, new.status.phase) == (old.run, True, "Running")
    assert shown(lab, "batch", live, str(step + 1)).out
