"""The command lines that build images, for each builder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_local.build.builders import Build, Step, choose, steps
from rl_local.errors import LocalError

REFERENCE = "ghcr.io/you/rl-operator/trainer:1.0"
BOTH = ("linux/amd64", "linux/arm64")


def build(
    reference: str = REFERENCE, *, platforms: tuple[str, ...] = (), push: bool = True
) -> Build:
    return Build(
        reference=reference,
        dockerfile=Path("/src/trainer_image/Dockerfile"),
        context=Path("/src"),
        platforms=platforms,
        push=push,
    )


def lines(builder: str, wanted: Build) -> list[str]:
    return [" ".join(step.argv) for step in steps(builder, wanted)]


FILE = "--file /src/trainer_image/Dockerfile"
PLATFORM = "--platform linux/amd64,linux/arm64"


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        ("docker", [f"docker build {FILE} --tag {REFERENCE} /src", f"docker push {REFERENCE}"]),
        ("nerdctl", [f"nerdctl build {FILE} --tag {REFERENCE} /src", f"nerdctl push {REFERENCE}"]),
        (
            "podman",
            [
                f"podman build {FILE} --tag {REFERENCE} /src",
                f"podman push {REFERENCE} docker://{REFERENCE}",
            ],
        ),
        (
            "buildah",
            [
                f"buildah build --layers {FILE} --tag {REFERENCE} /src",
                f"buildah push {REFERENCE} docker://{REFERENCE}",
            ],
        ),
    ],
)
def test_an_image_for_this_machine_is_built_and_pushed(builder: str, expected: list[str]) -> None:
    assert lines(builder, build()) == expected
    assert lines(builder, build(push=False)) == expected[:1]


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        (
            "docker",
            [f"docker buildx build {PLATFORM} {FILE} --tag {REFERENCE} --push /src"],
        ),
        (
            "nerdctl",
            [
                f"nerdctl build {PLATFORM} {FILE} --tag {REFERENCE} /src",
                f"nerdctl push --all-platforms {REFERENCE}",
            ],
        ),
        (
            "podman",
            [
                f"podman manifest rm {REFERENCE}",
                f"podman build {PLATFORM} {FILE} --manifest {REFERENCE} /src",
                f"podman manifest push --all {REFERENCE} docker://{REFERENCE}",
            ],
        ),
        (
            "buildah",
            [
                f"buildah manifest rm {REFERENCE}",
                f"buildah build --layers {PLATFORM} {FILE} --manifest {REFERENCE} /src",
                f"buildah manifest push --all {REFERENCE} docker://{REFERENCE}",
            ],
        ),
    ],
)
def test_an_image_for_several_platforms_is_one_reference(builder: str, expected: list[str]) -> None:
    assert lines(builder, build(platforms=BOTH)) == expected


def test_only_the_removal_of_an_earlier_index_may_fail() -> None:
    made = steps("buildah", build(platforms=BOTH))
    assert [step.may_fail for step in made] == [True, False, False]
    assert not any(step.may_fail for step in steps("docker", build()))


@pytest.mark.parametrize("builder", ["docker", "nerdctl"])
def test_several_platforms_without_a_push_are_refused(builder: str) -> None:
    with pytest.raises(LocalError, match="name one platform in PLATFORMS"):
        steps(builder, build(platforms=BOTH, push=False))


@pytest.mark.parametrize(
    ("reference", "plain"),
    [
        ("localhost:5000/x/trainer:1", True),
        ("localhost/trainer:1", True),
        ("127.0.0.1:5000/trainer:1", True),
        ("[::1]:5000/trainer:1", True),
        ("[::1]/trainer:1", True),
        ("localhost.example.org/trainer:1", False),
        ("registry:5000/trainer:1", False),
    ],
)
def test_only_a_registry_on_this_machine_is_asked_without_tls(reference: str, plain: bool) -> None:
    (_, pushed) = lines("podman", build(reference))
    assert ("--tls-verify=false" in pushed) is plain


def test_the_first_builder_that_works_is_used() -> None:
    assert choose("", lambda argv: argv[0] in ("podman", "buildah")) == "podman"
    assert choose("buildah", lambda argv: True) == "buildah"


def test_a_builder_that_cannot_be_used_is_refused_with_the_remedy() -> None:
    with pytest.raises(LocalError, match=r"`docker info` failed\. Start Docker, or install podman"):
        choose("docker", lambda argv: False)
    with pytest.raises(LocalError, match=r"PUSHED=1` builds none"):
        choose("", lambda argv: False)
    with pytest.raises(LocalError, match="BUILDER is one of docker, podman, nerdctl, buildah"):
        choose("kaniko", lambda argv: True)


def test_options_of_the_caller_reach_the_build_alone() -> None:
    wanted = Build(
        reference=REFERENCE,
        dockerfile=Path("Dockerfile"),
        context=Path(),
        options=("--build-arg", "BASE_IMAGE=mine"),
    )
    made: list[Step] = steps("podman", wanted)
    assert "BASE_IMAGE=mine" in made[0].argv
    assert "BASE_IMAGE=mine" not in made[1].argv
