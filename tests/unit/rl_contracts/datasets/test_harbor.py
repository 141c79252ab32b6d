"""Harbor tasks as they are written, and what of them is refused."""

from __future__ import annotations

import pytest

from rl_contracts.documents.datasets.harbor import instruction_of, name_of, parse_task
from rl_contracts.documents.datasets.records import BadRecordError
from rl_contracts.documents.harbor import HarborTask

FILES = ("task.toml", "instruction.md", "environment/Dockerfile", "tests/test.sh", "tests/a.py")
WHOLE = b"""
schema_version = "1.4"
[task]
name = "team/sum"
[metadata]
difficulty = "easy"
[agent]
timeout_sec = 120.0
[verifier]
timeout_sec = 60
env = {TOLERANCE = "1e-3"}
[environment]
build_timeout_sec = 600.0
docker_image = "registry.example/sum:1"
os = "Linux"
cpus = 2
memory_mb = 2048
storage = "10G"
workdir = "/app"
env = {MODE = "fast"}
network_mode = "no-network"
gpus = 0
mcp_servers = []
[solution]
env = {}
"""


def test_a_whole_task() -> None:
    assert parse_task(WHOLE, files=FILES) == HarborTask(
        image="registry.example/sum:1",
        folder="/app",
        agent_seconds=120.0,
        tests_seconds=60.0,
        cpus=2.0,
        memory_mb=2048,
        storage_mb=10240,
        environment={"MODE": "fast"},
        tests_environment={"TOLERANCE": "1e-3"},
        public_network=False,
    )
    assert name_of(WHOLE, "folder") == "team/sum"
    assert name_of(b"", "folder") == "folder"


def test_a_task_without_settings() -> None:
    assert parse_task(b"", files=FILES) == HarborTask()


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("[agent", "is no TOML"),
        ("[[steps]]\nname = 'a'", "field 'steps' has several steps"),
        ("[environment]\nos = 'windows'", "field 'environment.os' is no Linux"),
        ("[environment]\ngpus = 1", "field 'environment.gpus' asks for GPUs"),
        ("[environment]\ncpus = 0", "field 'environment.cpus'"),
        ("[environment]\ncpus = 'two'", "field 'environment.cpus'"),
        ("[environment]\nmemory = 'much'", "field 'environment.memory'"),
        ("[environment]\nworkdir = 'app'", "field 'environment.workdir'"),
        ("[environment]\ncolour = 'red'", "field 'environment.colour'"),
        ("[environment]\nskills_dir = '/s'", "field 'environment.skills_dir' names skills"),
        ("[environment.env]\nKEY = '${KEY}'", "field 'environment.env.KEY' takes a value of"),
        ("[environment.healthcheck]\ncommand = 'x'", "field 'environment.healthcheck'"),
        ("[[environment.mcp_servers]]\nname = 'x'", "field 'environment.mcp_servers'"),
        ("[agent]\nuser = 'root'", "field 'agent.user' names a user"),
        ("[agent]\ntimeout_sec = -1", "field 'agent.timeout_sec'"),
        ("[verifier]\nenvironment_mode = 'separate'", "field 'verifier.environment_mode'"),
        ("[verifier.environment]\ncpus = 1", "field 'verifier.environment' has an environment"),
        ("[[verifier.collect]]\ncommand = 'x'", "field 'verifier.collect'"),
        ("environment = 3", "field 'environment'"),
        ("colour = 3", "field 'colour'"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_field(config: str, problem: str) -> None:
    with pytest.raises(BadRecordError) as refused:
        parse_task(config.encode(), files=FILES)
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("missing", ["instruction.md", "tests/test.sh"])
def test_a_missing_file_is_named(missing: str) -> None:
    with pytest.raises(BadRecordError, match=f"has no {missing}"):
        parse_task(WHOLE, files=[path for path in FILES if path != missing])


def test_several_containers_are_refused() -> None:
    with pytest.raises(BadRecordError, match=r"docker-compose\.yaml: an episode has one"):
        parse_task(WHOLE, files=[*FILES, "environment/docker-compose.yaml"])


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Do it.\n", "Do it."),
        ("<!-- canary GUID 1 -->\n# canary\n\nDo it.\nNow.", "Do it.\nNow."),
        ("# Title\nDo it.", "# Title\nDo it."),
    ],
)
def test_an_instruction_is_shown_without_marks_of_benchmarks(written: str, shown: str) -> None:
    assert instruction_of(written.encode()) == shown


@pytest.mark.parametrize("written", [b"", b"\n \n", b"<!-- canary -->\n", b"\xff"])
def test_no_instruction_is_refused(written: bytes) -> None:
    with pytest.raises(BadRecordError, match=r"instruction\.md"):
        instruction_of(written)
