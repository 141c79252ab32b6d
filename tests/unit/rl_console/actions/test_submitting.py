"""The namespace in which the objects of manifests are created."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_console import app
from rl_console.actions.submitting import create
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.errors import USAGE
from rl_console.manifests.files import Document
from tests.samples.manifests import a_job
from tests.unit.rl_console.kubeconfig.recording_server import kubeconfig
from tests.unit.rl_console.queries.test_cluster_source import Answer, Server


@pytest.mark.parametrize(
    "arguments", [["submit"], ["submit", "--dry-run"], ["validate", "--server"]]
)
def test_a_manifest_of_another_namespace_than_is_named_is_refused(
    arguments: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(a_job("sums", namespace="prod")))
    config = kubeconfig(tmp_path, {"server": "http://127.0.0.1:9"}, {"token": "t"})
    command = ["--kubeconfig", str(config), *arguments, "-f", str(file), "-n", "lab"]
    assert app.run(command) == USAGE
    assert capsys.readouterr().err == (
        f"error: {file}: RLJob sums is of namespace prod, and -n is lab. Change "
        "metadata.namespace, or leave out -n\n"
    )


@pytest.mark.parametrize(
    ("own", "named", "created"),
    [("prod", "", "prod"), ("prod", "prod", "prod"), ("", "lab", "lab"), ("", "", "lab")],
)
def test_an_object_is_created_where_its_manifest_or_the_user_says(
    own: str, named: str, created: str
) -> None:
    server = Server(Answer(201, {}))
    cluster = Cluster(Api(server.library, namespace="lab"))
    document = Document(file="job.yaml", manifest=a_job("sums", namespace=own))
    (line,) = create(cluster, [document], namespace=named)
    assert line.endswith(f"/sums created in namespace {created}")
    assert f"/namespaces/{created}/rljobs" in server.asked[0][0]
