"""The operator's process loads no model of the Kubernetes client, and works without them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from rl_operator.kube import unread_models
unread_models.leave_out()
from rl_operator import app
from kubernetes import client

loaded = {name for name in sys.modules if name.startswith(unread_models.PACKAGES)}
files = {name for name in loaded if getattr(sys.modules[name], "__file__", None)}
assert loaded, "the client has its models elsewhere now"
assert not files, files
assert client.ApiClient(client.Configuration()).default_headers
print("left out", len(loaded))
"""


def test_models_are_left_out_and_nothing_needs_them() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("left out")


def test_the_process_begins_with_it() -> None:
    found = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rl_operator", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    named = [line.rpartition("|")[2].strip() for line in found.stderr.splitlines()]
    assert "rl_operator.kube.unread_models" in named
    assert named.index("rl_operator.kube.unread_models") < named.index("kopf")
