"""The chart's image references, as Helm renders them."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from tests.servers import ROOT, binary
from tests.waiting import HUNG_SECONDS

CHART = ROOT / "charts/rl-operator"
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
ENGINE = yaml.safe_load((CHART / "values.yaml").read_text())["images"]["engine"]
DIGEST = f"sha256:{'a1' * 32}"
STORES = ("stores.embedded.enabled=true", "stores.namespaces={research}")
REGISTRY = "image.registry=ghcr.io/you/rl-operator"


def helm(*values: str) -> subprocess.CompletedProcess[str]:
    options = [f"--set={value}" for value in values]
    command = [binary("helm"), "template", "release", str(CHART), "--kube-version=1.34.0", *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=HUNG_SECONDS, check=False
    )


def rendered(*values: str) -> dict[str, set[str]]:
    """References by component, wherever the chart writes them."""
    done = helm(*values)
    assert done.returncode == 0, done.stderr
    named: dict[str, set[str]] = {}
    for component, reference in re.findall(r"--(\w+)-image=(\S+)", done.stdout):
        named.setdefault(component, set()).add(reference)
    for reference in re.findall(r"^ *image: (\S+)$", done.stdout, re.MULTILINE):
        component = reference.rpartition("/")[2].partition(":")[0].partition("@")[0]
        named.setdefault(component, set()).add(reference)
    return named


def test_all_references_follow_from_one_registry_and_the_charts_version() -> None:
    ours = ("operator", "trainer", "sampler", "store", "minio")
    expected = {name: {f"ghcr.io/you/rl-operator/{name}:{VERSION}"} for name in ours}
    for registry in (REGISTRY, f"{REGISTRY}/"):
        assert rendered(registry, *STORES) == {**expected, "engine": {ENGINE}}


def test_a_tag_and_a_digest_are_added() -> None:
    made = rendered(REGISTRY, "image.tag=main", f"image.digests.trainer={DIGEST}")
    assert made["trainer"] == {f"ghcr.io/you/rl-operator/trainer:main@{DIGEST}"}
    assert made["sampler"] == {"ghcr.io/you/rl-operator/sampler:main"}


def test_a_full_reference_wins_for_its_image_alone() -> None:
    mine = f"example.org/mine@{DIGEST}"
    made = rendered(REGISTRY, f"images.trainer={mine}", "images.engine=example.org/engine:1")
    assert made["trainer"] == {mine}
    assert made["engine"] == {"example.org/engine:1"}
    assert made["sampler"] == {f"ghcr.io/you/rl-operator/sampler:{VERSION}"}


def test_the_engine_is_sglangs_own_image_of_the_version_that_is_tested() -> None:
    tested = (ROOT / "sampler_image/engine-cpu-requirements.txt").read_text()
    (version,) = re.findall(r"^sglang==(\S+)$", tested, re.MULTILINE)
    assert f"docker.io/lmsysorg/sglang:v{version}" == ENGINE


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([], "set image.registry to where the images are"),
        ([REGISTRY, "images.engine="], "set images.engine to a full image reference"),
        ([REGISTRY, "image.digests.trainer=sha256:1"], "/image/digests/trainer"),
        ([REGISTRY, f"image.digests.engine={DIGEST}"], "/image/digests"),
        (
            ["image.registry=https://ghcr.io"],
            "image.registry is https://ghcr.io: leave out https://",
        ),
        ([REGISTRY, "image.tag=a b"], "/image/tag"),
    ],
)
def test_what_names_no_image_is_refused_by_field(values: list[str], named: str) -> None:
    done = helm(*values)
    assert done.returncode != 0
    assert named in done.stderr


def test_a_required_digest_is_required_of_jobs_too() -> None:
    ours = ("operator", "trainer", "sampler")
    digests = [f"image.digests.{name}={DIGEST}" for name in ours]
    pinned = helm(
        REGISTRY, *digests, f"images.engine=e@{DIGEST}", "images.requireDigest=true"
    ).stdout
    assert "- --require-digests\n" in pinned
    assert "--require-digests" not in helm(REGISTRY).stdout
