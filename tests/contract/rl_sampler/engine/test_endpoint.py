"""The endpoint of a finished model, in front of a real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl_contracts import env
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_sampler import TERMINATED
from rl_sampler.engine.passthrough import BODY_BYTES
from tests.contract.rl_sampler.engine_server import ENGINE_START_SECONDS, EngineServer
from tests.contract.rl_sampler.pods import new_pod
from tests.waiting import HUNG_SECONDS, until

KEY = "an-api-key"
BODY = {
    "model": "whatever",
    "messages": [{"role": "user", "content": "17+25="}],
    "temperature": 0,
    "max_tokens": 4,
}


@contextmanager
def serving(environment: dict[str, str], key_file: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "rl_sampler.models", "endpoint"]
    options = ["--name", "final", "--key-file", str(key_file)]
    with subprocess.Popen([*command, *options], env=environment) as process:
        yield f"http://127.0.0.1:{environment[env.LISTEN_PORT]}"
        process.terminate()
        assert process.wait(timeout=HUNG_SECONDS) == TERMINATED


def ask(url: str, *, key: str = KEY, body: object = None) -> tuple[int, str, str]:
    """Status, body, and the model that answered."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=ENGINE_START_SECONDS) as answer:
            named = answer.headers.get("X-Policy-Version", "")
            return answer.status, answer.read().decode(), named
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), ""
    except OSError:
        return 0, "", ""


def test_an_endpoint_asks_for_its_key_and_has_no_call_that_changes_the_engine(
    tmp_path: Path, engine_server: EngineServer, store_settings: StoreSettings, stores: Stores
) -> None:
    pod = new_pod(
        tmp_path / "pod",
        engine_url=engine_server.url,
        settings=store_settings,
        stores=stores,
        sections={},
    )
    key_file = tmp_path / "api-key"
    key_file.write_text(f"{KEY}\n")
    with serving({**os.environ, **pod.environment}, key_file) as url:
        until(lambda: ask(f"{url}/ready", key="")[0] == 200, what="the endpoint")
        chat = f"{url}/v1/chat/completions"
        status, body, named = ask(chat, body=BODY)
        assert (status, named) == (200, "final")
        assert json.loads(body)["choices"][0]["message"]["content"] is not None
        assert ask(chat, body={**BODY, "stream": True})[1].rstrip().endswith("[DONE]")
        assert json.loads(ask(f"{url}/v1/models")[1])["data"][0]["id"] == "policy"
        for wrong in ("", "another"):
            status, body, _ = ask(chat, key=wrong, body=BODY)
            assert (status, "API key is missing or wrong" in body) == (401, True)
        for path in ("/pause_generation", "/update_weights_from_disk", "/generate"):
            status, body, _ = ask(f"{url}{path}", body={})
            assert (status, json.loads(body)["error"]["code"]) == (404, 404)
        status, body, _ = ask(chat, body={**BODY, "user": "x" * BODY_BYTES})
        assert (status, json.loads(body)["error"]["message"]) == (
            413,
            "the body has more than 16 MiB",
        )
