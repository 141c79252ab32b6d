"""Which model and images are meant, and the job whose pod works with the model."""

from __future__ import annotations

from typing import Any

import pytest

from rl_console.actions.models.working import job_manifest
from rl_console.errors import NotFoundError, UsageError
from rl_contracts import env
from rl_contracts.env import SamplerEnv
from tests.unit.rl_console.models.builders import FINAL, choice


@pytest.mark.parametrize(
    ("version", "status", "arguments"),
    [
        (None, {}, ["--version", "9"]),
        (4, {"finalModel": FINAL}, ["--version", "4"]),
        (None, {"finalModel": FINAL}, ["--uri", FINAL]),
    ],
)
def test_the_final_model_comes_before_the_newest_version(
    version: int | None, status: dict[str, Any], arguments: list[str]
) -> None:
    assert choice(version, **status).arguments == arguments


def test_a_job_without_a_model_is_named() -> None:
    with pytest.raises(NotFoundError, match="has published no version yet"):
        choice(weights={"version": 0})


def test_images_come_from_the_user_the_manifest_or_the_installation() -> None:
    given = choice()
    assert given.images().sampler == "s:1"
    assert given.images(sampler="mine:2").sampler == "mine:2"
    with pytest.raises(UsageError, match=r"names no sampler image.*Name one with --image"):
        choice(images=None).images()
    with pytest.raises(UsageError, match=r"RLJob sums has no group 'judge'\. It has main"):
        given.images(group="judge")


def test_the_pod_has_the_stores_by_name_alone_and_the_job_as_its_owner() -> None:
    given = choice()
    manifest = job_manifest(
        given, given.images(), verb="promote", arguments=["promote"], seconds=60, retries=2
    )
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert manifest["spec"]["activeDeadlineSeconds"] == 60
    pod = manifest["spec"]["template"]["spec"]
    assert [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each] == [
        "rl-operator-stores"
    ]
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    (container,) = pod["containers"]
    assert container["args"] == ["promote", "--version", "9"]
    assert (container["image"], container["imagePullPolicy"]) == ("s:1", "Never")
    values = {each["name"]: each.get("value", "x") for each in container["env"]}
    assert SamplerEnv.parse(values).run == "run1"
    assert values[env.STORES_FOLDER] in {each["mountPath"] for each in container["volumeMounts"]}
