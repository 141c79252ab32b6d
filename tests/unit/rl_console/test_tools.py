"""Command lines of kubectl and helm."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_console.tools import Tools, cluster_options


def test_a_home_in_the_kubeconfig_s_path_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``connect(kubeconfig="~/.kube/lab")`` names it, without a shell."""
    monkeypatch.setenv("HOME", "/home/user")
    file = Path("~/.kube/lab")
    options = ["--kubeconfig", "/home/user/.kube/lab"]
    assert cluster_options(file, "c") == [*options, "--context", "c"]
    assert Tools(kubeconfig=file).kubectl_command("get") == ["kubectl", *options, "get"]
    assert Tools(kubeconfig=file).helm_command("list") == ["helm", *options, "list"]
