"""Who may talk to a job's policy: the API server decides by the right to forward ports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.rl_console.conftest import Run
from tests.contract.rl_console.world import NAMESPACE, World
from tests.kube.apiserver import kubeconfig

READS = ("get,list", "rljobs.rl-operator.io,samplerpools.rl-operator.io,pods")
FORWARDS = ("create", "pods/portforward")


def user(world: World, folder: Path, name: str, *rights: tuple[str, str]) -> Path:
    """The kubeconfig of a service account with these rights in the namespace."""
    server = world.apiserver
    server.kubectl("-n", NAMESPACE, "create", "serviceaccount", name)
    for number, (verbs, resources) in enumerate(rights):
        role = f"{name}-{number}"
        given = (f"--verb={verbs}", f"--resource={resources}")
        server.kubectl("-n", NAMESPACE, "create", "role", role, *given)
        bound = (f"--role={role}", f"--serviceaccount={NAMESPACE}:{name}")
        server.kubectl("-n", NAMESPACE, "create", "rolebinding", role, *bound)
    token = server.kubectl("-n", NAMESPACE, "create", "token", name, "--duration=1h").stdout.strip()
    config = kubeconfig(server, token)
    config["contexts"][0]["context"]["namespace"] = NAMESPACE
    file = folder / name
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize(
    ("name", "rights", "code", "message"),
    [
        ("viewer", (READS,), 4, "Ask for the right to create pods/portforward"),
        ("editor", (READS, FORWARDS), 6, "does not have a host assigned"),
    ],
)
def test_a_chat_takes_the_right_to_forward_ports(
    world: World,
    run: Run,
    tmp_path: Path,
    name: str,
    rights: tuple[tuple[str, str], ...],
    code: int,
    message: str,
) -> None:
    config = user(world, tmp_path, name, *rights)
    done = run("chat", "live", "-m", "hi", kubeconfig=config)
    assert message in done.err
    assert (done.code, done.out) == (code, "")
