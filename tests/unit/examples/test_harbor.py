"""The example of Harbor tasks: its task fits its manifest, and its agent works with a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_contracts.documents.datasets.harbor import instruction_of, parse_task
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.data.harbor import check_fits
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS

EXAMPLES = ROOT / "examples"
TASK = EXAMPLES / "harbor/tasks/product"


def call(identifier: str, arguments: str) -> dict[str, Any]:
    function = {"name": "shell", "arguments": arguments}
    calls = [{"id": identifier, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


class Policy(ThreadingHTTPServer):
    """Answers requests with the messages of a script, and keeps what it was asked."""

    def __init__(self, script: list[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.asked = list(script), list[dict[str, Any]]()


class Handler(BaseHTTPRequestHandler):
    """A request to the policy."""

    server: Policy

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps({"choices": [{"message": self.server.script.pop(0)}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@pytest.fixture
def policy() -> Iterator[Policy]:
    script = [
        call("a", json.dumps({"command": "echo $((17 * 23)) > product.txt; cat product.txt"})),
        call("b", "not JSON"),
        {"role": "assistant", "content": "Done."},
    ]
    with Policy(script) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=HUNG_SECONDS)


def test_the_agent_runs_what_the_policy_calls(policy: Policy, tmp_path: Path) -> None:
    instruction = instruction_of((TASK / "instruction.md").read_bytes())
    task = tmp_path / "task.json"
    task.write_text(json.dumps({"messages": [{"role": "user", "content": instruction}]}))
    subprocess.run(
        [sys.executable, "-S", str(EXAMPLES / "harbor/shell_agent.py")],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "RL_TASK_FILE": str(task),
            "OPENAI_BASE_URL": f"http://127.0.0.1:{policy.server_port}",
            "OPENAI_API_KEY": "key",
        },
        check=True,
        timeout=HUNG_SECONDS,
    )
    assert (tmp_path / "product.txt").read_text() == "391\n"
    shown = [each for each in policy.asked[-1]["messages"] if each["role"] == "tool"]
    assert [each["tool_call_id"] for each in shown] == ["a", "b"]
    assert shown[0]["content"] == "391\n\n(exit code 0)"
    assert shown[1]["content"].startswith("The call cannot be read")


def test_the_task_fits_the_manifest() -> None:
    spec = RLJobSpec.model_validate(yaml.safe_load((EXAMPLES / "harbor.yaml").read_text())["spec"])
    files = [path.relative_to(TASK).as_posix() for path in TASK.rglob("*") if path.is_file()]
    assert spec.agent.program is not None
    check_fits(parse_task((TASK / "task.toml").read_bytes(), files=files), spec.agent.program)
