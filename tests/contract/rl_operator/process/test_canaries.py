"""No value of a Secret is shown: a canary in each of them, then a search of all that is visible."""

from __future__ import annotations

import base64
import json
import logging
import secrets
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rl_contracts.errors import Refusal
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.render import reader as rendered
from tests.contract.rl_operator.processes import Process, Starter
from tests.contract.rl_operator.world import World
from tests.unit.rl_operator.kube import texts
from tests.waiting import HUNG_SECONDS, until

SHOWN = (
    kinds.RLJOB,
    kinds.SAMPLER_POOL,
    kinds.CONFIG_MAP,
    kinds.EVENT,
    kinds.DEPLOYMENT,
    kinds.PYTORCH_JOB,
    kinds.NETWORK_POLICY,
    kinds.DISRUPTION_BUDGET,
    kinds.LEASE,
)
REFERENCES = ("hub", "judge", "tools", "tracking", "keys")
"""Secrets that a job names, each with the key ``token``."""
FORMATTER = logging.Formatter()
NOWHERE = "http://127.0.0.1:1/v1"


class Canaries:
    """Values that must not be shown."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """The canary of a name, created when first asked for."""
        return self.values.setdefault(name, f"canary{secrets.token_hex(12)}")

    def shown_by(self, text: str) -> set[str]:
        """Names of those that a text shows, as they are or encoded."""
        return {
            name
            for name, value in self.values.items()
            if value in text or base64.b64encode(value.encode()).decode().rstrip("=") in text
        }


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


def make_secrets(world: World, canaries: Canaries, **stores: dict[str, str]) -> None:
    """Secrets that jobs name, and by name Secrets of stores with values other than the world's."""
    values: dict[str, dict[str, str]] = {
        name: dict.fromkeys(("token", "WANDB_API_KEY"), canaries(name)) for name in REFERENCES
    }
    values |= {name: world.settings.to_mapping() | changes for name, changes in stores.items()}
    secrets_of_jobs = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": world.namespace},
            "stringData": data,
        }
        for name, data in values.items()
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": secrets_of_jobs}
    world.apiserver.kubectl("create", "-f", "-", stdin=json.dumps(listed))


def make_job(world: World, name: str, *, stores: str) -> Key:
    """A job that names all of ``REFERENCES``, and a Secret of stores."""

    def token(name: str) -> dict[str, Any]:
        return {"tokenSecretRef": {"name": name, "key": "token"}}

    judge = {"endpoints": [{"url": NOWHERE, "model": "m", **token("judge")}], "prompt": "{answer}"}
    server = {"name": "search", "url": NOWHERE, **token("tools")}
    variables = {
        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}],
        "envFrom": [{"secretRef": {"name": "keys"}}],
    }
    root = f"s3://{world.settings.s3_bucket}/{world.settings.s3_prefix}"
    return world.make_job(
        name,
        storage={"secretName": stores},
        agent={"kind": "ToolLoop", "mcpServers": [server]},
        data={
            "train": [{"name": "train", "uri": f"{root}train.jsonl"}],
            "validation": [{"name": "test", "uri": f"{root}test.jsonl"}],
            "hub": token("hub"),
        },
        reward={"scorers": [{"kind": "ExactMatch"}, {"kind": "Judge", "judge": judge}]},
        trainer=variables,
        samplers=[
            {
                "name": "main",
                "template": {"autoscaling": {"minReplicas": 2}, **variables, "engine": variables},
            }
        ],
        training={
            "steps": 60,
            "precision": "FP32",
            "checkpoint": {"hubRepo": "team/model"},
            "tracking": {"wandb": "Online", "secretName": "tracking"},
        },
    )


def visible(
    world: World, operator: Process, readers: pytest.LogCaptureFixture
) -> Iterator[tuple[str, str]]:
    """All texts that somebody without a right to Secrets may see, and what each is."""
    for kind in SHOWN:
        for manifest in world.objects(kind):
            if kind == kinds.PYTORCH_JOB:
                del manifest["status"]  # the test has written it
            yield f"{kind.name} {manifest['metadata']['name']}", json.dumps(manifest)
    for pod in world.cluster.select(kinds.POD, world.namespace, labels=rendered.selector()):
        yield f"Pod {pod['metadata']['name']}", json.dumps(pod)
    yield "the operator's log", operator.server.log.read_text()
    for path in ("/metrics", "/healthz", "/readyz"):
        with urllib.request.urlopen(operator.url + path, timeout=HUNG_SECONDS) as answer:
            yield f"the operator's {path}", answer.read().decode()
    for record in readers.records:  # the readers run in this process
        if record.name.startswith("rl_") or record.levelno >= logging.WARNING:
            yield f"the log of {record.name}", FORMATTER.format(record)


def assert_hidden(texts: Iterator[tuple[str, str]], canaries: Canaries) -> None:
    assert len(canaries.values) > len(REFERENCES)
    assert {what: shown for what, text in texts if (shown := canaries.shown_by(text))} == {}


def stalled_because(world: World, job: Key) -> Callable[[], str]:
    def reason() -> str:
        stalled = world.condition_now(job, "Stalled")
        return world.condition(job, "Stalled")["reason"] if stalled else ""

    return reason


def test_no_secret_of_a_job_whose_stores_refuse_it_is_shown(
    world: World,
    start: Starter,
    canaries: Canaries,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    operator = start("canaries", "--log-level", "DEBUG")
    user = f"mongodb://{canaries('user')}:{canaries('password')}@"
    _, _, host = world.settings.mongo_uri.get_secret_value().partition("://")
    make_secrets(
        world,
        canaries,
        database={
            "mongoUri": user + host,
            "s3AccessKey": canaries("access"),
            "s3SecretKey": canaries("secret"),
        },
        bucket={"s3AccessKey": canaries("access"), "s3SecretKey": canaries("secret")},
        malformed={"mongoUri": f"mongodb://u:{canaries('uri')}@127.0.0.1:notaport/?a=b"},
    )
    reasons = {
        name: stalled_because(world, make_job(world, name, stores=name))
        for name in ("database", "bucket", "malformed")
    }

    def current_reasons() -> dict[str, str]:
        return {name: reason() for name, reason in reasons.items()}

    until(
        lambda: all(current_reasons().values()),
        what="all jobs to stall",
        seconds=60,
        seen=current_reasons,
    )
    assert current_reasons()["malformed"] == "StoresSecretMalformed"
    assert len(set(current_reasons().values())) == len(reasons), current_reasons()
    assert_hidden(visible(world, operator, caplog), canaries)


@pytest.mark.soak
def test_no_secret_in_texts_of_pods_and_samplers_is_shown(
    world: World, start: Starter, canaries: Canaries, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    operator = start("texts", "--log-level", "DEBUG")
    make_secrets(world, canaries, stores={"note": canaries("another key")})
    world.upload_inputs()
    job = make_job(world, "job", stores="stores")
    until(lambda: bool(world.objects(kinds.DEPLOYMENT)), what="the pool's Deployment")
    run = str(world.status(job)["runId"])
    world.start_samplers(run)
    pods = ("job-main-x-1", "job-main-x-2")

    def begun() -> bool:
        for pod in pods:
            world.register(run, pod, scorers=["ExactMatch", "Judge"])
        return bool(world.objects(kinds.PYTORCH_JOB))

    until(begun, what="the trainer", seconds=60, seen=lambda: world.status(job))
    text = "\n".join(
        text.replace("<secret>", canaries(name))
        for name, text in list((texts.NOTATIONS | texts.TOKENS).items())[::6]
    )
    refusal = Refusal(field="f", value="v", reason="R", message=text[:400], remedy="Fix it.")
    for pod in pods:
        world.register(run, pod, refusals=[refusal], last_error=text[:400])
    (trainer,) = world.objects(kinds.PYTORCH_JOB)
    name = trainer["metadata"]["name"]
    world.start_pod(f"{name}-worker-0", of=trainer)
    ended = {"terminated": {"exitCode": 1, "message": text}}
    world.set_pod(f"{name}-worker-0", "Failed", container={"name": "pytorch", "state": ended})
    conditions = [{"type": "Failed", "status": "True", "reason": "R", "message": text}]
    world.set_status("pytorchjob", name, {"conditions": conditions})
    until(lambda: world.status(job).get("lastFailure"), what="the failure", seconds=60)
    assert "[hidden]" in json.dumps(world.status(job)["lastFailure"])
    assert_hidden(visible(world, operator, caplog), canaries)
