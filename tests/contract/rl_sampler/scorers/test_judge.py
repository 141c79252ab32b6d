"""A language model judges: fail-over, outages, tokens, costs; never a reward from an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rl_contracts.documents.task import TaskState
from rl_contracts.errors import RefusedError
from rl_contracts.spec.reward import Reward
from rl_sampler.completions.errors import NoCompletionError
from rl_sampler.completions.failover import Failovers
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.scorers.judge import Judge, judges
from rl_sampler.scorers.response import Response
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scorers.judges import JudgeServer, judging
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.servers import deaf_port
from tests.waiting import HUNG_SECONDS, throughout, until

RIGHT = Response(
    text="<answer>4</answer>",
    answer="4",
    reference="4",
    messages=[{"role": "user", "content": "2+2="}, {"role": "assistant", "content": "4"}],
)


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with judging() as started:
        yield started


def nobody() -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{deaf_port()}/v1", "model": "gone"}


class Court:
    """Judges of one process, and what they told."""

    def __init__(self, session: aiohttp.ClientSession, secrets: Path) -> None:
        self.counters = Counters()
        self.outages = Outages(serving=Serving(), problems=Problems())
        self.failovers = Failovers(
            session=session, secrets=secrets, counters=self.counters, outages=self.outages
        )

    def judge(self, *endpoints: dict[str, Any], seconds: int = 30, **options: Any) -> Judge:
        scorer = {
            "kind": "Fair",
            "judge": {"endpoints": list(endpoints), **options},
            "timeoutSeconds": seconds,
        }
        reward = Reward.model_validate({"scorers": [scorer]})
        return judges(reward, self.failovers)["Fair"]

    async def wait(self, condition: Callable[[], bool], *, what: str = "the outage") -> None:
        await asyncio.to_thread(until, condition, what=what)


@pytest.fixture
async def court(tmp_path: Path) -> AsyncIterator[Court]:
    async with aiohttp.ClientSession() as session:
        opened = Court(session, tmp_path)
        yield opened
        await opened.failovers.close()


@pytest.mark.parametrize("first", ["broken", "busy", "strict", "chatty", "vague"])
async def test_next_endpoint_judges_where_the_first_does_not(
    court: Court, server: JudgeServer, first: str
) -> None:
    judge = court.judge(nobody(), server.endpoint(first), server.endpoint())
    for _ in range(2):
        assert await judge(RIGHT) == 0.75
    assert court.outages.known == {}
    assert court.counters.completions[("Fair", "steady", "answered")] == 2
    assert court.counters.completions[("Fair", "gone", "down")] >= 1


async def test_requests_and_tokens_are_counted(court: Court, server: JudgeServer) -> None:
    judge = court.judge(server.endpoint("echo"), prompt="${answer} <score>0.5</score>")
    assert await judge(RIGHT) == 0.5
    assert court.counters.completions == {("Fair", "echo", "answered"): 1}
    assert court.counters.completion_tokens == {
        ("Fair", "echo", "prompt"): 2,
        ("Fair", "echo", "completion"): 5,
    }


@pytest.mark.parametrize(
    ("prompt", "score"),
    [
        ("<score>0.${answer}</score>", 0.4),
        ("${question} ${reference} <score>1</score>", 1.0),
        ("${conversation} ${response} $$5 <score>0</score>", 0.0),
    ],
)
async def test_judge_prompt_of_the_manifest_is_filled_in(
    court: Court, server: JudgeServer, prompt: str, score: float
) -> None:
    assert await court.judge(server.endpoint("echo"), prompt=prompt)(RIGHT) == score


async def test_missing_answer_scores_0_without_a_request(court: Court, server: JudgeServer) -> None:
    empty = Response(text="4", answer=None, reference="4")
    assert await court.judge(server.endpoint())(empty) == 0.0
    assert court.counters.completions == {}
    assert await court.judge(server.endpoint(), prompt="${response}")(empty) == 0.75


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("vague", "no <score> in"),
        ("strict", "answers 400"),
        ("chatty", "other than a chat completion"),
        ("echo", "no <score> in"),
    ],
)
async def test_unusable_judge_reply_is_neither_an_outage_nor_a_reward(
    court: Court, server: JudgeServer, model: str, message: str
) -> None:
    judge = court.judge(server.endpoint(model), prompt="<score>2</score>")
    with pytest.raises(NoCompletionError, match=message):
        await judge(RIGHT)
    assert court.outages.known == {}


async def test_callers_wait_through_a_judges_outage(court: Court, server: JudgeServer) -> None:
    judge = court.judge(server.endpoint(), nobody())
    server.kill()
    asking = [asyncio.create_task(judge(RIGHT)) for _ in range(5)]
    await court.wait(lambda: bool(court.outages))
    (why,) = court.outages.known.values()
    assert f"steady at {server.url} cannot be reached" in why
    assert "gone at" in why
    down = court.counters.completions[("Fair", "steady", "down")]
    await court.wait(lambda: court.counters.completions[("Fair", "steady", "down")] > down)
    assert court.outages.known == {"Fair": why}, "the words change"
    assert not any(request.done() for request in asking)
    server.start()
    async with asyncio.timeout(HUNG_SECONDS):
        assert await asyncio.gather(*asking) == [0.75] * 5
    assert court.outages.known == {}


async def test_judge_that_never_answers_is_an_outage(court: Court, server: JudgeServer) -> None:
    judge = court.judge(server.endpoint("slow"), server.endpoint("slow"), seconds=1)
    asking = asyncio.create_task(judge(RIGHT))
    await court.wait(lambda: bool(court.outages))
    assert "did not answer within 1 s" in court.outages.known["Fair"]
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_request_that_alone_gets_no_answer_fails(court: Court, server: JudgeServer) -> None:
    with pytest.raises(NoCompletionError, match="answered this request, but they answer others"):
        await court.judge(server.endpoint("shy"), seconds=1)(RIGHT)


async def test_judge_token_is_read_for_each_request_and_never_shown(
    court: Court, tmp_path: Path
) -> None:
    folder = tmp_path / "scorer-0-0"
    folder.mkdir()
    with judging(token="hunter2") as guarded:
        judge = court.judge(guarded.endpoint(tokenSecretRef={"name": "judge"}))
        asking = asyncio.create_task(judge(RIGHT))
        await court.wait(lambda: "token" in court.outages.known.get("Fair", ""))
        (folder / "token").write_text("wrong-hunter")
        await court.wait(lambda: "token" in court.outages.known.get("Fair", ""))
        assert "hunter" not in court.outages.known["Fair"]
        (folder / "token").write_text("hunter2\n")
        async with asyncio.timeout(HUNG_SECONDS):
            assert await asking == 0.75


@pytest.mark.parametrize(
    ("prompt", "message"), [("${thread}", "placeholder ${thread}"), ("5 $ or more", "begins no")]
)
async def test_judge_prompt_with_unknown_placeholders_is_refused(
    court: Court, prompt: str, message: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        court.judge(nobody(), prompt=prompt)
    refusal = refused.value.refusal
    assert refusal.field == "spec.reward.scorers[0].judge.prompt"
    assert message in refusal.message
    assert "${reference}" in refusal.remedy


def test_judge_outage_pauses_the_sampler_and_is_never_a_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, server: JudgeServer
) -> None:
    prompt = "Is ${response} right?"
    scorer = {"kind": "Fair", "judge": {"endpoints": [server.endpoint()], "prompt": prompt}}
    pod = make_pod(reward={"scorers": [scorer]})
    assert pod.stage().returncode == 0
    trainer.publish()
    pod.serve()
    before = trainer.insert(2)
    until(lambda: trainer.all_done(before), what="groups that are judged")

    server.kill()
    held = trainer.insert(1)
    document = pod.wait_document(lambda document: bool(document.unavailable), what="the outage")
    assert document.unavailable == {"Fair": f"steady at {server.url} cannot be reached"}
    assert "Fair: steady" in document.last_error
    waiting = trainer.insert(3)
    stores = trainer.stores

    def complaint() -> str:
        if set(trainer.states(waiting).values()) != {TaskState.PENDING}:
            return "a task was claimed"
        return "something was scored" if stores.rollouts.of_task(held[0]) else ""

    throughout(complaint, seconds=5)
    assert trainer.states(held)[held[0]] is TaskState.CLAIMED
    assert pod.get("/ready")[0] == 200, "the engine serves on"
    assert 'rl_sampler_problem{topic="Fair"} 1.0' in pod.get("/metrics")[1]

    server.start()
    until(lambda: trainer.all_done([*held, *waiting]), what="the groups after the outage")
    for rollout in trainer.chosen([*before, *held, *waiting]):
        assert [(part.scorer, part.value) for part in rollout.parts] == [("Fair", 0.75)]
    tasks = stores.tasks.get([*before, *held, *waiting]).values()
    assert {task.attempt for task in tasks} == {1}
    pod.wait_document(lambda document: not document.unavailable, what="the end of the outage")
    metrics = pod.get("/metrics")[1]
    answered = 'rl_sampler_completions_total{caller="Fair",model="steady",outcome="answered"}'
    assert f"{answered} 2" in metrics
    assert 'rl_sampler_completion_tokens_total{caller="Fair",kind="completion"' in metrics
