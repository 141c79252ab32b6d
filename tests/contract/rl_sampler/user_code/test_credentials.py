"""Code of others looks for the credentials of a real agent, beside a real engine.

It runs by the command, the variables and the user of the container ``code`` as rendered. Here it
sees more than in a pod, where it has processes and files of its own: other users' rights alone
keep it out.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.documents.task import TaskState
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.render.samplers import user_code
from rl_sampler.code.client import CodeContainer
from rl_sampler.code.replies import Compared
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.scorers.response import Response
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.toolbox import Toolbox
from rl_sampler.user_code.call import UserCodeError
from rl_sampler.user_code.remote import user_code_of
from tests.code_container import SOURCES, process
from tests.contract.rl_sampler.episodes.several_turns import short_spoken, with_tools
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.servers import ROOT
from tests.unit.rl_operator.rendered import a_deployment, environment_of, pod_of
from tests.unit.rl_sampler.agents.scripted import play
from tests.waiting import until

THIEF = Path(__file__).with_name("thief.py")
SECONDS = 300.0
VIEW = """
set -e
keep=$1 user=$2 groups=$3 folders=$4
shift 4
mount --make-rprivate /
mount --rbind /root "$keep"
mount -t tmpfs -o mode=755 none /root
for folder in $folders; do
  kept=$keep${folder#/root}
  if [ -L "$kept" ]; then
    mkdir -p "$(dirname "$folder")" && ln -s "$(readlink "$kept")" "$folder"
  else
    mkdir -p "$folder" && mount --rbind "$kept" "$folder"
  fi
done
umount -l "$keep"
exec setpriv --reuid "$user" --regid "$user" --groups "$groups" \
  --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""
"""Runs a command as another user, who can read the interpreter although it is in root's home."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start other users")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can enter, as those of a test's are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def sections_of(shared: Path) -> dict[str, Any]:
    return {
        "agent": {
            "kind": "Custom",
            "entryPoint": "thief:act",
            "tools": [{"entryPoint": "thief:rummage", "timeoutSeconds": 300}],
            "mcpServers": [
                {
                    "name": "local",
                    "command": [sys.executable, str(shared / "thief.py")],
                    "timeoutSeconds": 300,
                }
            ],
            "sampling": {"maxTokensPerTurn": 64, "maxContextTokens": 800},
        },
        "reward": {"scorers": [{"kind": "Thief", "entryPoint": "thief:score"}]},
        "code": {"configMapRef": {"name": "thief"}},
    }


def plant(pod: Pod, shared: Path, secrets: Mapping[str, str]) -> None:
    """Put credentials where agents have them, and the thief where user code is."""
    for folder in ("tools/web", "endpoints/scorer-0-0"):
        (pod.folder / folder).mkdir(parents=True)
        (pod.folder / folder / "token").write_text(secrets["token"])
    pod.environment["PROXY"] = secrets["variable"]
    shutil.copy(THIEF, shared)
    shutil.copy(pod.environment[env.SPEC_FILE], shared / "rljob.json")
    (shared / "socket").mkdir()
    pod.environment[env.CODE_SOCKET] = str(shared / "socket" / "calls")


def place(pod: Pod, shared: Path, secrets: Mapping[str, str]) -> None:
    """Tell the thief where to look."""
    assert pod.process is not None
    ports = [pod.port, int(pod.environment[env.CHAT_PORT])]
    config = {
        "secrets": list(secrets.values()),
        "folders": [str(pod.folder), "/etc/rl", "/run/secrets", "/var/run/secrets"],
        "processes": [pod.process.pid],
        "sockets": [pod.environment[env.CODE_SOCKET]],
        "urls": [
            pod.environment[env.ENGINE_URL],
            *(f"http://127.0.0.1:{port}" for port in ports),
        ],
    }
    (shared / "config.json").write_text(json.dumps(config))


def another_user(shared: Path, rendered: Mapping[str, Any], group: int) -> list[str]:
    security = rendered["securityContext"]
    assert security["runAsUser"] == security["runAsGroup"]
    os.chown(shared / "socket", 0, group)
    (shared / "socket").chmod(0o2777)  # as a pod's fsGroup does
    keep = shared / "keep"
    keep.mkdir()
    inside = [Path(path) for path in (sys.prefix, sys.base_prefix, *SOURCES)]
    inside += [path.resolve() for path in inside if path != path.resolve()]
    folders = " ".join(str(path) for path in inside if path.is_relative_to("/root"))
    user = str(security["runAsUser"])
    view = ["bash", "-c", VIEW, "view", str(keep), user, str(group), folders]
    return ["unshare", "--mount", *view]


async def reports(pod: Pod, spec: RLJobSpec) -> dict[str, str]:
    """What the thief says that it stole, in each part that users can bring."""
    code = CodeContainer(Path(pod.environment[env.CODE_SOCKET]), counters=Counters())
    own = await user_code_of(spec, code, Problems())
    assert own.tools is not None
    assert own.agent is not None
    reported = {"tool": (await own.tools.call("rummage", {})).text}
    try:
        await own.scorers["Thief"](Response(text="", answer=None, reference=""))
    except UserCodeError as error:
        reported["scorer"] = str(error).partition("ValueError: ")[2]
    played = await play(["one"], act=own.agent)
    blamed = played.member.turns[-1].error
    reported["agent"] = blamed.message if blamed is not None else ""
    toolbox = Toolbox(
        spec.agent.mcp_servers,
        secrets=pod.folder / "tools",
        longest=1000,
        counters=Counters(),
        code=code,
    )
    tools = await toolbox.open()
    reported["MCP server"] = (await tools.call(WantedCall(tool="rummage", arguments="{}"))).result
    await toolbox.close()
    for answer in ("open('/etc/passwd').read()", "__import__('os').environ", r"\input{/etc/rl}"):
        compared = await code.ask(
            {"call": "compare", "reference": "1", "answer": answer, "seconds": SECONDS},
            Compared,
            seconds=SECONDS,
        )
        assert compared.same is False
    return reported


def test_code_of_others_finds_no_credential_of_the_agent(
    trainer: ScriptedTrainer, make_pod: MakePod, shared: Path, tiny_model: Path
) -> None:
    secrets = {"token": "canary-of-a-judge-4f1c", "variable": "canary-of-a-variable-77aa"}
    sections = sections_of(shared)
    pod = make_pod(**sections, model=with_tools(trainer, tiny_model)["model"])
    for path in (pod.folder / "stores").iterdir():
        if "key" in path.name.lower() or "uri" in path.name.lower():
            secrets[path.name] = path.read_text()
    assert len(secrets) >= 4
    plant(pod, shared, secrets)
    template = pod_of(a_deployment(**sections))
    (rendered,) = [each for each in template["initContainers"] if each["name"] == user_code.NAME]
    here = {user_code.FOLDER: str(shared)}
    variables = {name: here.get(value, value) for name, value in environment_of(rendered).items()}
    user = another_user(shared, rendered, template["securityContext"]["fsGroup"])
    pod.code = subprocess.Popen(["true"])  # it is started below, once the places are known
    assert pod.stage().returncode == 0
    trainer.publish(weights=short_spoken())
    pod.serve()
    place(pod, shared, secrets)
    with process(
        Path(pod.environment[env.CODE_SOCKET]),
        shared / "rljob.json",
        prefix=user,
        environment={**variables, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
    ):
        pod.wait_version(1)
        spec = RLJobSpec.model_validate_json((shared / "rljob.json").read_bytes())
        reported = asyncio.run(reports(pod, spec))
        (task,) = trainer.insert(1, group_size=2, max_attempts=1)
        until(lambda: trainer.states([task])[task] is TaskState.DEAD, what="the thief's reward")
    assert reported == dict.fromkeys(
        ("tool", "scorer", "agent", "MCP server"), "user 65531 stole []"
    )
    reason = trainer.stores.tasks.get([task])[task].reason
    assert "raised ValueError: user 65531 stole []" in reason
    # Its search is a good one: with the agent's own rights it finds all of them.
    code = f"import sys; sys.path.append({str(shared)!r}); import thief; print(thief.loot())"
    paths = os.pathsep.join([*SOURCES, str(ROOT)])
    robbed = subprocess.check_output(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths}, text=True
    )
    assert robbed.strip() == f"user 0 stole {list(range(len(secrets)))}"
