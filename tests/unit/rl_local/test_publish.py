"""Images that anyone can build: what is named, and that every Dockerfile has a public base."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import yaml

from rl_console.demo import settings
from rl_local import publish, versions
from rl_local.build import images
from rl_local.errors import LocalError
from rl_local.layout import ROOT

CHART = yaml.safe_load((ROOT / "charts/rl-operator/Chart.yaml").read_text())


def test_references_are_the_registrys_with_the_charts_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert publish.main(["--registry", "ghcr.io/you/", "--pushed"]) == 0
    version = CHART["appVersion"]
    assert json.loads(capsys.readouterr().out) == {
        component: f"ghcr.io/you/{repository}:{version}"
        for component, repository in zip(
            ("operator", "sampler", "trainer", "engine", "store", "minio"),
            ("operator", "sampler", "trainer", "engine-cpu", "store", "minio"),
            strict=True,
        )
    }


def test_every_version_of_the_project_is_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = {CHART["version"], CHART["appVersion"], publish.version(), project["version"]}
    stated |= {dependency["version"] for dependency in CHART["dependencies"]}
    assert len(stated) == 1


def test_pages_name_images_of_this_version() -> None:
    named = [
        tag
        for page in ("install", "quickstart")
        for tag in re.findall(
            r"rl-operator/[$a-z-]+:(\S+)",
            (ROOT / f"docs/getting-started/{page}.md").read_text(),
        )
    ]
    assert {tag.strip("`;") for tag in named} == {publish.version()}


def test_the_demo_needs_the_images_that_are_built() -> None:
    assert {image.component for image in publish.IMAGES.values()} == set(settings.IMAGES)


@pytest.mark.parametrize("registry", ["", "/", "https://ghcr.io/you"])
def test_a_registry_that_names_no_place_is_refused(
    registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish.main(["--registry", registry, "--pushed"]) == 1
    assert "it must say where images go" in capsys.readouterr().err


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LocalError, match="IMAGES are operator, sampler"):
        publish.select(["engine"])


@pytest.mark.parametrize("image", publish.IMAGES.values(), ids=publish.IMAGES)
def test_every_image_has_a_public_base_and_an_unprivileged_user(image: publish.PublicImage) -> None:
    text = (ROOT / image.dockerfile).read_text()
    bases = re.findall(r"^ARG \w+_IMAGE=(\S+)$", text, re.MULTILINE)
    assert bases in (["docker.io/library/python:3.11-slim"], ["docker.io/library/golang:1.26"])
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["65532:65532"]
    for source in images.sources(text, where=image.dockerfile):
        assert (ROOT / source).exists(), source


def test_versions_that_are_compiled_in_a_build_are_the_local_clusters() -> None:
    sources = ROOT / "local/images/from-source"
    assert f"ARG MINIO={versions.MINIO}\n" in (sources / "minio.Dockerfile").read_text()
    assert f"ARG FERRETDB={versions.FERRETDB}\n" in (sources / "store.Dockerfile").read_text()
    minimum = ".".join(map(str, versions.GO_MINIMUM))
    for path in sources.iterdir():
        assert f"golang:{minimum}\n" in path.read_text()


def test_the_demo_installs_the_training_operator_of_the_local_cluster() -> None:
    (version,) = re.findall(r"training-operator\S*\?ref=(\S+)", (ROOT / "Makefile").read_text())
    assert version == versions.TRAINING_OPERATOR


def test_no_image_copies_what_builders_ignore() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    for image in publish.IMAGES.values():
        text = (ROOT / image.dockerfile).read_text()
        for source in images.sources(text, where=image.dockerfile):
            assert source.partition("/")[0] not in ignored
