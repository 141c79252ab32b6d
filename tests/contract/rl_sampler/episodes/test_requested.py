"""Episodes that people request: with the job's tools and scorers, and without a trace in stores."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rl_console.errors import NotFoundError, RequestRefusedError, TimeOverError
from rl_console.queries.episodes import Sampler
from rl_contracts import env
from rl_contracts.requested import (
    AT_ONCE,
    ChatMessage,
    EpisodeRequest,
    Event,
    TextEvent,
    TurnEvent,
)
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.episodes.several_turns import short_spoken, with_tools
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.samples.documents import RUN
from tests.waiting import HUNG_SECONDS, until

QUESTION = (ChatMessage(role="user", content="17+25="),)


def sampler_of(pod: Pod) -> Sampler:
    """As behind a port-forward."""
    return Sampler(pod=pod.folder.name, url=f"http://127.0.0.1:{pod.environment[env.CHAT_PORT]}")


def stored(stores: Stores) -> dict[str, int]:
    return {
        name: stores.mongo.collection(name).count_documents({"run": RUN})
        for name in ("tasks", "rollouts")
    }


def test_a_chat_and_a_replay_name_their_version_and_are_not_stored(
    trainer: ScriptedTrainer, make_pod: MakePod, stores: Stores
) -> None:
    pod = make_pod()
    pod.serve_first_of(trainer)
    (task,) = trainer.insert(1, group_size=2, content="1+1=")
    until(lambda: trainer.all_done([task]), what="the group")
    before = stored(stores)
    sampler = sampler_of(pod)
    first = sampler.play(EpisodeRequest(messages=QUESTION, temperature=0))
    assert (first.versions, first.greedy, first.reward) == ([1], True, None)
    assert first.not_scored == "a chat has no reference answer"
    assert [each.role for each in first.messages] == ["assistant"]
    assert 0 < first.tokens <= 8
    assert sampler.play(EpisodeRequest(messages=QUESTION, temperature=0)).text == first.text
    events: list[Event] = []
    request = EpisodeRequest(messages=QUESTION, temperature=0)
    assert sampler.play(request, hear=events.append).text == first.text
    texts = [each.text for each in events if isinstance(each, TextEvent)]
    assert len(texts) == len(events) > 1
    assert first.text.startswith("".join(texts))
    short = sampler.play(EpisodeRequest(messages=QUESTION, temperature=0, max_tokens=2))
    assert (short.tokens, short.stop_reason) == (2, "length")
    again = sampler.play(EpisodeRequest(task=task))
    assert again.error is None
    assert again.reward == sum(part.value * part.weight for part in again.parts)
    assert [part.scorer for part in again.parts] == ["ExactMatch"]
    trainer.publish(seed=2)
    pod.wait_version(2)
    assert sampler.play(EpisodeRequest(task=task, temperature=0)).versions == [2]
    assert stored(stores) == before
    with pytest.raises(NotFoundError, match=r"task job\.train\.9 is not in the store of this run"):
        sampler.play(EpisodeRequest(task="job.train.9"), hear=events.append)
    messages = (ChatMessage(role="tool", content="x"),)
    with pytest.raises(RequestRefusedError, match="only users here"):
        sampler.play(EpisodeRequest(messages=messages))
    many = (ChatMessage(role="user", content="1" * 200),)
    with pytest.raises(RequestRefusedError, match="maxContextTokens"):
        sampler.play(EpisodeRequest(messages=many))


def test_a_chat_uses_the_jobs_tools_and_few_talk_at_once(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    sections = with_tools(trainer, tiny_model, minTurns=3, maxTurns=40, repetitionLimit=1000)
    sections["agent"]["sampling"] = {"maxTokensPerTurn": 64, "maxContextTokens": 1600}
    pod = make_pod(**sections)
    assert pod.stage().returncode == 0
    trainer.publish(weights=short_spoken())
    pod.serve()
    pod.wait_version(1)
    sampler = sampler_of(pod)
    events: list[Event] = []
    answer = sampler.play(EpisodeRequest(messages=QUESTION), hear=events.append)
    assert len(answer.turns) >= 2
    ended = [each.turn for each in events if isinstance(each, TurnEvent)]
    assert ended == answer.turns[: len(ended)]
    assert len(ended) >= 1
    assert [each.role for each in answer.messages[:3]] == ["assistant", "user", "assistant"]
    on = (*QUESTION, *answer.messages, *QUESTION)
    assert sampler.play(EpisodeRequest(messages=on, max_tokens=4)).versions == [1]

    refused: list[str] = []

    def talk() -> None:
        try:
            sampler.play(EpisodeRequest(messages=QUESTION), seconds=HUNG_SECONDS)
        except RequestRefusedError as error:
            refused.append(str(error))

    talking = [threading.Thread(target=talk) for _ in range(4 * AT_ONCE)]
    for each in talking:
        each.start()
    for each in talking:
        each.join()
    assert refused
    assert all(f"plays {AT_ONCE} episodes for people already" in each for each in refused)
    with pytest.raises(TimeOverError, match=r"has not ended after 0 s"):
        sampler.play(EpisodeRequest(messages=QUESTION), seconds=0.01)
    until(lambda: _plays(sampler), what="the episode that was given up to end")


def _plays(sampler: Sampler) -> bool:
    try:
        return sampler.play(EpisodeRequest(messages=QUESTION, max_tokens=1)).error is None
    except RequestRefusedError:
        return False
