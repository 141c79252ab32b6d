"""Chats and replays: what is asked, what is shown, and how a refusal reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from rl_console.actions.talking.chatting import AGAIN, ChatOptions, Hearing, conversation
from rl_console.actions.talking.episode_text import refuse_failed
from rl_console.actions.talking.replaying import compared
from rl_console.cluster.portforward import port_forward
from rl_console.errors import (
    ConsoleError,
    NotAllowedError,
    NotFoundError,
    RequestRefusedError,
    TimeOverError,
    UsageError,
)
from rl_console.output import Output, document
from rl_console.queries.episodes import Sampler
from rl_console.tools import Tools
from rl_contracts.documents.rollout import RolloutError, TokenRange, ToolCall, Turn
from rl_contracts.queries.answers import RolloutAnswer
from rl_contracts.requested import (
    STREAM,
    AgainEvent,
    ChatMessage,
    EndEvent,
    EpisodeAnswer,
    EpisodeRequest,
    Event,
    RefusedEvent,
    TextEvent,
    TurnEvent,
)
from tests.waiting import until

SECONDS = 1.0
HOSTILE = "\x1b[31mred\u202e"
CALL = ToolCall(
    tool="calculator", arguments='{"x": 1}', outcome="answered", result=HOSTILE, seconds=0.1
)
TURN = Turn(
    request=TokenRange(start=0, end=4),
    response=TokenRange(start=4, end=7),
    stop_reason="stop",
    text=f"42 {HOSTILE}",
    calls=[CALL],
)
ANSWER = EpisodeAnswer.model_validate(
    {
        "text": TURN.text,
        "turns": [TURN.model_dump()],
        "messages": [{"role": "assistant", "content": "42"}],
        "stop_reason": "stop",
        "spans": [{"version": 7, "epoch": 1, "step": 6, "start": 4, "end": 7}],
        "temperature": 1.0,
        "greedy": False,
    }
)
JUDGED = ANSWER.model_copy(update={"reward": 0.5})
THEN = RolloutAnswer.model_validate(
    {
        "row": {
            **{"id": "run1.train.00000012.1.0", "member": 0, "attempt": 1, "sampler": "s"},
            **{"reward": 0.0, "parts": [], "stop_reason": "length", "error": None, "text": "41"},
            **{"cut": False, "answer": None, "versions": [3], "turns": 0, "calls": 0, "seconds": 1},
        },
        "group": None,
        "run": "run1",
        "temperature": 1.0,
        "tokens": {
            **dict.fromkeys(("first", "total"), 0),
            **{name: [] for name in ("ids", "texts", "mask", "logprobs", "advantages")},
            **{name: [] for name in ("returns", "versions")},
        },
        **{"sequence_starts": [], "turns": [], "spans": [], "batch": None, "fate": "trained"},
    }
)


@dataclass
class Agent:
    """What a sampler's agent would answer, and what it was asked."""

    status: int = 200
    body: bytes = ANSWER.model_dump_json().encode()
    kind: str = "application/json"
    asked: list[dict[str, Any]] = field(default_factory=list)
    server: HTTPServer | None = None

    def __enter__(self) -> Sampler:
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                agent.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(agent.status)
                self.send_header("Content-Type", agent.kind)
                self.end_headers()
                self.wfile.write(agent.body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return Sampler(pod="pod-a", url=f"http://127.0.0.1:{self.server.server_address[1]}")

    def __exit__(self, *_: object) -> None:
        assert self.server is not None
        self.server.shutdown()
        self.server.server_close()


def test_each_message_goes_on_behind_the_last_answer() -> None:
    agent = Agent()
    options = ChatOptions(system="Be brief.", temperature=0.0, max_tokens=9)
    with agent as sampler:
        assert len(list(conversation(sampler, options, ["6*7=", "why?"]))) == 2
    roles = [[each["role"] for each in asked["messages"]] for asked in agent.asked]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
    assert {(asked["temperature"], asked["max_tokens"]) for asked in agent.asked} == {(0.0, 9)}


def streamed(*events: BaseModel) -> Agent:
    return Agent(
        body=b"".join(each.model_dump_json().encode() + b"\n" for each in events), kind=STREAM
    )


def heard(agent: Agent, output: Output = Output.TABLE) -> None:
    hearing = Hearing(output)
    with agent as sampler:
        for answer in conversation(sampler, ChatOptions(), ["6*7="], hear=hearing.hear):
            hearing.finish(answer)


FACTS = "[version 7, 3 tokens, stop]\n"
SHOWN_CALL = (
    '  call calculator: answered, 0.1 s\n    arguments: {"x": 1}\n    result: \\x1b[31mred\\u202e\n'
)
LAST = TURN.model_copy(update={"text": "So 42.", "calls": []})
TWO_TURNS = ANSWER.model_copy(update={"turns": [TURN, LAST], "text": LAST.text})
FACTS_OF_TWO = "[version 7, 6 tokens, stop]\n"
SHOWN_TEXT = "42 \\x1b[31mred\\u202e\n"
END = EndEvent(answer=TWO_TURNS)


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        (Agent(), f"{SHOWN_TEXT}{SHOWN_CALL}{FACTS}"),
        (
            streamed(
                TextEvent(text="42 \x1b"),
                TextEvent(text="[31mred"),
                TurnEvent(turn=TURN),
                TextEvent(text="So "),
                END,
            ),
            f"{SHOWN_TEXT}{SHOWN_CALL}So 42.\n{FACTS_OF_TWO}",
        ),
        (
            streamed(TurnEvent(turn=TURN), TextEvent(text="So 4"), AgainEvent(), END),
            f"{SHOWN_TEXT}{SHOWN_CALL}So 4\n{AGAIN}\nSo 42.\n{FACTS_OF_TWO}",
        ),
    ],
    ids=["a sampler of an earlier release", "streamed", "begun again"],
)
def test_an_answer_is_printed_while_it_is_sampled(
    agent: Agent, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    heard(agent)
    assert capsys.readouterr().out == shown


def test_json_is_printed_once_it_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    heard(streamed(TextEvent(text="So"), END), Output.JSON)
    assert json.loads(capsys.readouterr().out)["text"] == "So 42."


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((RefusedEvent(status=503, message="the engine has ended"),), "the engine has ended"),
        ((), "the pod ended its answer"),
    ],
)
def test_a_stream_without_an_answer_is_an_error(
    events: tuple[BaseModel, ...], message: str
) -> None:
    with pytest.raises(RequestRefusedError, match=message):
        heard(streamed(TextEvent(text="So"), *events))


def test_a_stream_that_goes_on_beyond_the_deadline_is_ended() -> None:
    def hear(_: Event) -> None:
        ends = time.monotonic() + SECONDS
        until(lambda: time.monotonic() > ends, what="the deadline")

    events = TextEvent(text="So"), TextEvent(text=" 42"), END
    with streamed(*events) as sampler, pytest.raises(TimeOverError, match="not ended after 1 s"):
        sampler.play(EpisodeRequest(task="t"), seconds=SECONDS, hear=hear)


REFUSALS: dict[str, tuple[int, str, type[ConsoleError], str]] = {
    "busy": (429, "plays 2 already", RequestRefusedError, "plays 2 already. Try again"),
    "deleted": (404, "task t is not in the store", NotFoundError, "task t is not in the store"),
    "prompt": (422, "only users here", RequestRefusedError, "only users here"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_what_the_agent_said(name: str) -> None:
    status, message, kind, expected = REFUSALS[name]
    body = json.dumps({"error": {"message": message, "code": status}}).encode()
    with Agent(status, body) as sampler, pytest.raises(kind, match=expected):
        sampler.play(EpisodeRequest(task="t"))


@pytest.mark.parametrize(
    ("status", "body"), [(405, b"405: Method Not Allowed"), (200, b"{}"), (200, b"<html>")]
)
def test_an_agent_of_another_release_is_named(status: int, body: bytes) -> None:
    with Agent(status, body) as sampler, pytest.raises(RequestRefusedError, match="other release"):
        sampler.play(EpisodeRequest(task="t"))


def test_a_pod_that_goes_away_is_named() -> None:
    with Agent() as sampler:
        gone = sampler
    with pytest.raises(RequestRefusedError, match="the connection to the pod ended"):
        gone.play(EpisodeRequest(task="t"))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (JUDGED, "reward now:   0.5"),
        (ANSWER.model_copy(update={"not_scored": "no scorer"}), "not scored: no scorer"),
    ],
)
def test_a_replay_shows_both_answers_as_text(now: EpisodeAnswer, expected: str) -> None:
    shown = compared(THEN, now, pod="pod-a")
    assert "version 3" in shown.text
    assert "version 7, 3 tokens, stop, by pod-a" in shown.text
    assert expected in shown.text
    assert "\\x1b[31mred\\u202e" in shown.text
    assert "\x1b" not in shown.text
    assert shown.names == ["rollout/train.00000012.1.0"]
    assert json.loads(document(shown.values, Output.JSON))["now"]["text"] == TURN.text


@pytest.mark.parametrize(("kind", "part"), [("infrastructure", "agent"), ("user", "code")])
def test_an_episode_that_failed_is_an_error(
    kind: Literal["infrastructure", "user"], part: str
) -> None:
    failed = ANSWER.model_copy(
        update={"error": RolloutError(kind=kind, message="the judge is down")}
    )
    says = rf"the judge is down\. .*`kubectl rl logs sums {part} -n lab --context c` says more"
    refuse = partial(refuse_failed, doing="chatting", job="sums", options="-n lab --context c")
    with pytest.raises(RequestRefusedError, match=says):
        refuse(failed)
    refuse(ANSWER)


@pytest.mark.parametrize(
    "values", [{}, {"task": "t", "messages": [ChatMessage(role="user", content="x")]}]
)
def test_a_request_names_one_prompt(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="name either a task or messages"):
        EpisodeRequest(**values)


def test_a_message_that_cannot_be_sent_is_a_usage_error() -> None:
    with Agent() as sampler, pytest.raises(UsageError, match="temperature"):
        list(conversation(sampler, ChatOptions(temperature=99.0), ["x"]))


# The port-forward.

Kubectl = Callable[[str], Tools]


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    def written(text: str) -> Tools:
        file = tmp_path / "kubectl"
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return Tools(kubectl=str(file))

    return written


def forward(tools: Tools) -> int:
    with port_forward(tools, namespace="lab", target="pod/a", port=8083) as port:
        return port


def test_a_forwarded_port_is_found(kubectl: Kubectl) -> None:
    assert forward(kubectl('echo "Forwarding from 127.0.0.1:4711 -> 8083"; exec sleep 60')) == 4711


def test_a_missing_right_to_forward_is_named(kubectl: Kubectl) -> None:
    text = 'echo \'error: pods "a" is forbidden: User "u" cannot create "pods/portforward"\' >&2'
    with pytest.raises(NotAllowedError, match="right to create pods/portforward"):
        forward(kubectl(f"{text}; exit 1"))


def test_a_missing_kubectl_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestRefusedError, match="Install kubectl, or name it with --kubectl"):
        forward(Tools(kubectl=str(tmp_path / "none")))
