"""What the policy does with answers that an update of the weights made useless."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.agent.agents import Sampling
from rl_sampler.agents.policy import Policy, is_invalidated
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.errors import EngineUnavailableError
from rl_sampler.engine.protocol import GenerateRequest, Generation, ServerInfo
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.slots import Slots
from rl_sampler.tasks.claims import Claim
from tests.samples.documents import a_task

ENGINE = ServerInfo(version="0.5.23", max_running_requests=64, max_req_input_len=512)


def a_generation(kind: str = "stop", version: str = "1") -> Generation:
    return Generation.model_validate(
        {
            "output_ids": [7],
            "meta_info": {
                "finish_reason": {"type": kind},
                "output_token_logprobs": [[-0.5, 7, None]],
                "weight_versions": [{"version": version, "start": 0, "end": 1}],
            },
        }
    )


def pointer(version: int, step: int) -> PolicyPointer:
    return PolicyPointer(version=version, epoch=1, step=step, prefix="p/", manifest_sha256="0")


@pytest.mark.parametrize(
    ("kinds", "versions", "keyed", "updated", "invalidated"),
    [
        (("stop", "stop"), ("1", "1"), False, True, False),
        (("stop", "abort"), ("1", "1"), False, True, True),
        (("stop", "abort"), ("1", "1"), False, False, False),
        (("stop", "stop"), ("1", "2"), False, True, False),
        (("stop", "stop"), ("1", "2"), True, True, True),
        (("stop", "length"), ("1", "1"), True, True, False),
    ],
)
def test_answer_is_invalidated_only_by_an_update(
    kinds: tuple[str, ...], versions: tuple[str, ...], keyed: bool, updated: bool, invalidated: bool
) -> None:
    answer = [a_generation(kind, version) for kind, version in zip(kinds, versions, strict=True)]
    assert is_invalidated(answer, label="1", keyed=keyed, updated=updated) is invalidated


class UpdatedEngine:
    """Takes version 2 over while it answers the first request."""

    def __init__(self, serving: Serving, first: Callable[[], Generation]) -> None:
        self.serving, self.first = serving, first
        self.keys: list[str] = []

    async def generate(self, request: GenerateRequest) -> list[Generation]:
        self.keys.append(request.cache_key)
        if len(self.keys) > 1:
            return [a_generation(version="2")]
        self.serving.commits += 1
        self.serving.policy, self.serving.cache_key = pointer(2, 6), self.serving.cache_key and "2"
        return [self.first()]


@pytest.mark.parametrize(
    ("key", "first", "keys"),
    [
        ("", lambda: a_generation("abort"), ["", ""]),
        ("1", lambda: a_generation(version="2"), ["1", "2"]),
    ],
)
async def test_invalidated_answer_is_discarded_and_sampled_again(
    key: str, first: Callable[[], Generation], keys: list[str]
) -> None:
    serving = Serving(engine=ENGINE, policy=pointer(1, 5), cache_key=key)
    engine, counters, claim = (
        UpdatedEngine(serving, first),
        Counters(),
        Claim(a_task(), renewed=0.0),
    )
    policy = a_policy(claim, serving=serving, engine=engine, counters=counters)
    sampled = await policy.sample([1, 2])
    assert sampled.generations == [a_generation(version="2")]
    assert (engine.keys, counters.requests_repeated) == (keys, 1)
    assert claim.sampling_step == 6, "its oldest tokens are of the second answer"


class HeldEngine:
    """Answers each request when it is told how."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[asyncio.Future[list[Generation]]] = asyncio.Queue()

    async def generate(self, request: GenerateRequest) -> list[Generation]:
        answer: asyncio.Future[list[Generation]] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait(answer)
        return await answer


DROPPED, FAILED, KEPT = "dropped", "failed", "kept"


@pytest.mark.parametrize(
    ("ends", "steps"),
    [
        ([(0, DROPPED)], [None]),
        ([(0, FAILED)], [None]),
        ([(0, DROPPED), (1, KEPT)], [6, 6]),
        ([(1, DROPPED), (0, DROPPED)], [5, None]),
        ([(1, KEPT), (0, DROPPED)], [5, 6]),
        ([(0, KEPT), (1, DROPPED)], [5, 5]),
    ],
)
async def test_a_request_without_an_answer_does_not_make_its_member_older(
    ends: list[tuple[int, str]], steps: list[int | None]
) -> None:
    engine, claim = HeldEngine(), Claim(a_task(), renewed=0.0)
    serving = Serving(engine=ENGINE)
    policy = a_policy(claim, serving=serving, engine=engine, counters=Counters())
    requests, answers = [], []
    for number in range(len(ends)):
        serving.policy = pointer(number + 1, 5 + number)
        requests.append(asyncio.create_task(policy.sample([1, 2])))
        answers.append(await engine.asked.get())
    seen = []
    for number, end in ends:
        if end == DROPPED:
            requests[number].cancel()
        elif end == FAILED:
            answers[number].set_exception(EngineUnavailableError("it died"))
        else:
            answers[number].set_result([a_generation(version=str(number + 1))])
        await asyncio.wait([requests[number]])
        seen.append(claim.sampling_step)
    assert seen == steps


@pytest.mark.parametrize(("keep", "step"), [(True, 5), (False, None)])
async def test_tokens_count_once_they_are_kept(keep: bool, step: int | None) -> None:
    engine, claim = HeldEngine(), Claim(a_task(), renewed=0.0)
    serving = Serving(engine=ENGINE, policy=pointer(1, 5))
    policy = a_policy(claim, serving=serving, engine=engine, counters=Counters())
    request = asyncio.create_task(policy.sample([1, 2], keep=keep))
    (await engine.asked.get()).set_result([a_generation()])
    assert (await request).step == 5
    assert claim.sampling_step == step


def test_earlier_tokens_keep_a_claims_sampling_step() -> None:
    claim = Claim(a_task(), renewed=0.0)
    claim.keep_tokens(5, member=0)
    with claim.sampling(6, member=0):
        assert claim.sampling_step == 5
    assert claim.sampling_step == 5


def a_policy(claim: Claim, *, serving: Serving, engine: Any, counters: Counters) -> Policy:
    watch: Any = SimpleNamespace(check_soon=lambda: None)
    return Policy(
        claim=claim,
        sampling=Sampling(),
        stop_tokens=(257,),
        engine=engine,
        watch=watch,
        serving=serving,
        slots=Slots(),
        counters=counters,
    )
