"""Each way to pause the engine for an update: what becomes of the requests that run meanwhile.

Every token is scored again by transformers with the weights that its span names.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import TaskState
from rl_contracts.spec.storage import Pause
from tests.contract.rl_sampler.chatting import ask, chat, directly
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.rescoring import CLOSE, distances
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

AGENT = {"sampling": {"maxTokensPerTurn": 150, "maxContextTokens": 1000}}
ANY_AGE = {"offPolicy": {"maxStaleness": 64}}
ATTEMPTS = 10


@pytest.mark.soak
def test_retract_mode_recomputes_running_requests(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, engine_server: EngineServer
) -> None:
    rollouts, seeds, _ = updated_in_mid_flight(trainer, make_pod, "Retract")
    assert any(len(rollout.spans) > 1 for rollout in rollouts)
    for rollout in rollouts:
        assert max(distances(rollout, folder=tiny_model, seeds=seeds)) < CLOSE


def test_in_place_mode_never_reuses_prefixes_of_older_weights(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, engine_server: EngineServer
) -> None:
    rollouts, seeds, _ = updated_in_mid_flight(trainer, make_pod, "InPlace")
    crossing = [rollout for rollout in rollouts if len(rollout.spans) > 1]
    assert crossing
    for rollout in rollouts:
        first, *later = distances(rollout, folder=tiny_model, seeds=seeds)
        # Prompts are all the same: a later group that shared the first one's would be far off.
        assert first < CLOSE, rollout.spans
        # Those that ran attend to what the weights before computed: that is this mode's price.
        assert all(far > CLOSE for far in later)


def test_in_place_mode_answers_people_with_the_new_weights_only(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    pod = make_pod(weightSync={"pause": "InPlace"})
    pod.serve_first_of(trainer)
    before = chat(pod)
    assert chat(pod).text == before.text
    trainer.publish(seed=2)
    pod.wait_version(2)
    after = chat(pod)
    assert (before.version, after.version) == ("1", "2")
    assert after.text == directly(engine_server, extra_key="nobody else's")
    assert after.text != before.text
    streamed = chat(pod, stream=True).body
    assert streamed.count("data: {") > 2
    assert streamed.rstrip().endswith("data: [DONE]")
    for path, data, status in (
        ("/pause_generation", b"{}", 404),
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", b"[]", 400),
    ):
        assert ask(pod, path, data).status == status
    assert json.loads(ask(pod, "/v1/models").body)["data"][0]["id"] == "policy"


def test_abort_mode_repeats_requests_and_mixes_no_versions(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, engine_server: EngineServer
) -> None:
    rollouts, seeds, pod = updated_in_mid_flight(trainer, make_pod, "Abort")
    assert "rl_sampler_requests_repeated_total 0.0" not in pod.get("/metrics")[1]
    for rollout in rollouts:
        assert len(rollout.spans) == 1
        assert max(distances(rollout, folder=tiny_model, seeds=seeds)) < CLOSE


def updated_in_mid_flight(
    trainer: ScriptedTrainer, make_pod: MakePod, pause: Pause
) -> tuple[list[Rollout], dict[int, int], Pod]:
    """Publish while groups are sampled until an update has hit some.

    Returns:
        All rollouts, the seed of each version, and the pod.
    """
    pod = make_pod(agent=AGENT, algorithm=ANY_AGE, weightSync={"pause": pause})
    assert pod.stage().returncode == 0
    seeds = {trainer.publish(seed=1).version: 1}
    pod.serve()
    pod.wait_version(1)
    rollouts: list[Rollout] = []
    for _ in range(ATTEMPTS):
        rollouts += update_while_sampling(trainer, pod, seeds)
        if was_hit(pause, rollouts, pod):
            return rollouts, seeds, pod
    return pytest.fail(f"none of {ATTEMPTS} updates hit a running request")


def update_while_sampling(
    trainer: ScriptedTrainer, pod: Pod, seeds: dict[int, int]
) -> list[Rollout]:
    """One update while groups are claimed, and a group after it with the same prompt."""
    tasks = trainer.insert(6, group_size=8, content="17+25=")
    until(lambda: TaskState.CLAIMED in trainer.states(tasks).values(), what="a claim")
    trainer.advance()
    version = trainer.publish(seed=len(seeds) + 1).version
    seeds[version] = version
    pod.wait_version(version)
    tasks += trainer.insert(1, group_size=8, content="17+25=")
    until(lambda: trainer.all_done(tasks), what="all groups")
    assert {task.attempt for task in trainer.stores.tasks.get(tasks).values()} == {1}
    return trainer.chosen(tasks)


def was_hit(pause: Pause, rollouts: list[Rollout], pod: Pod) -> bool:
    """Whether an update came while requests ran."""
    if pause == "Abort":
        return "rl_sampler_requests_repeated_total 0.0" not in pod.get("/metrics")[1]
    return any(len(rollout.spans) > 1 for rollout in rollouts)
