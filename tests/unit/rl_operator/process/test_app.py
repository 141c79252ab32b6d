"""Which jobs and pools a watched object concerns, and the operator's settings."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.kube import settings
from rl_operator.kube.names import ENVIRONMENTS_LABEL, JOB_LABEL, POOL_LABEL, PROGRAMS_LABEL, beside
from rl_operator.watch.watches import keys_of


def an_object(kind: str, labels: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x", "namespace": "n", "labels": labels}, **fields}


KEYS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "job": (an_object("RLJob", {}), ["RLJob/n/x"]),
    "pool": (an_object("SamplerPool", {}, spec={"job": "j"}), ["RLJob/n/j", "SamplerPool/n/x"]),
    "a job that names a pool": (
        an_object("RLJob", {POOL_LABEL: "p"}),
        ["RLJob/n/x", "SamplerPool/n/p"],
    ),
    "shared pool": (
        an_object(
            "SamplerPool",
            {},
            spec={},
            status={
                "assignment": {"job": "has"},
                "beside": [{"job": "too"}],
                "waiting": [{"job": "waits"}],
            },
        ),
        ["RLJob/n/has", "RLJob/n/too", "RLJob/n/waits", "SamplerPool/n/x"],
    ),
    "trainer": (an_object("PyTorchJob", {JOB_LABEL: "j"}), ["RLJob/n/j"]),
    "sampler pod": (
        an_object("Pod", {JOB_LABEL: "j", POOL_LABEL: "p"}),
        ["RLJob/n/j", "SamplerPool/n/p"],
    ),
    "pod of programs": (
        an_object("Pod", {JOB_LABEL: "j", PROGRAMS_LABEL: "p"}),
        ["SamplerPool/n/p"],
    ),
    "a pool's Deployment": (
        an_object("Deployment", {JOB_LABEL: "j", POOL_LABEL: "p"}),
        ["SamplerPool/n/p"],
    ),
    "sampler pod of several runs": (
        an_object("Pod", {JOB_LABEL: "j", POOL_LABEL: "p", beside("u2"): "second"}),
        ["RLJob/n/j", "RLJob/n/second", "SamplerPool/n/p"],
    ),
    "pod of environments": (an_object("Pod", {JOB_LABEL: "j", ENVIRONMENTS_LABEL: "p"}), []),
    "somebody's pod": (an_object("Pod", {}), []),
}


@pytest.mark.parametrize(("body", "keys"), KEYS.values(), ids=KEYS.keys())
def test_a_watched_object_concerns_these_jobs_and_pools(
    body: dict[str, Any], keys: list[str]
) -> None:
    assert [str(key) for key in keys_of(body)] == keys


ARGUMENTS = [
    "--namespace",
    "n",
    "--identity",
    "i",
    "--operator-image",
    "o:1",
    "--trainer-image",
    "t",
    "--sampler-image",
    "s",
    "--engine-image",
    "e",
]


def test_settings_have_defaults() -> None:
    parsed = settings.parse(ARGUMENTS)
    assert (parsed.watch_namespaces, parsed.workers, parsed.progress_seconds) == ((), 8, 5.0)
    assert (parsed.watch_silence_seconds, parsed.images.pull_secrets) == (180, ())


@pytest.mark.parametrize(
    "extra", [["--progress-seconds", "0"], ["--workers", "0"], ["--image-pull-policy", "Maybe"]]
)
def test_settings_outside_their_range_are_refused(extra: list[str]) -> None:
    with pytest.raises(SystemExit):
        settings.parse([*ARGUMENTS, *extra])
