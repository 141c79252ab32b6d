"""People who talk to a sampler's policy, as through ``kubectl port-forward``."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from rl_contracts import env
from tests.contract.rl_sampler.engine_server import ENGINE_START_SECONDS, EngineServer
from tests.contract.rl_sampler.pods import Pod

QUESTION = [{"role": "user", "content": "17+25="}]
TOKENS = 24


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: str
    version: str

    @property
    def text(self) -> str:
        """Of a chat's one choice."""
        assert self.status == 200, self.body
        content: str = json.loads(self.body)["choices"][0]["message"]["content"]
        return content


def ask(pod: Pod, path: str, data: bytes | None = None) -> Answer:
    """One request to the port for people."""
    url = f"http://127.0.0.1:{pod.environment[env.CHAT_PORT]}{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ENGINE_START_SECONDS) as answer:
            version = answer.headers.get("X-Policy-Version", "")
            return Answer(answer.status, answer.read().decode(), version)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode(), "")


def chat(pod: Pod, *, model: str = "policy", **fields: Any) -> Answer:
    """The most probable answer."""
    body = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": TOKENS, **fields}
    return ask(pod, "/v1/chat/completions", json.dumps(body).encode())


def directly(engine: EngineServer, **fields: Any) -> str:
    """The same of the engine itself; ``fields`` say by which weights."""
    body = {
        "model": "policy",
        "messages": QUESTION,
        "temperature": 0,
        "max_tokens": TOKENS,
        **fields,
    }
    request = urllib.request.Request(
        f"{engine.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=ENGINE_START_SECONDS) as answer:
        content: str = json.loads(answer.read())["choices"][0]["message"]["content"]
        return content
