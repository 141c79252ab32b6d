"""Tasks become rollouts: real engine, real stores, the agent as a process."""

from __future__ import annotations

import math
import signal
from functools import partial

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import TaskState
from rl_sampler.scorers import SCORERS
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

LEAST_UPDATES, MOST_UPDATES = 3, 30


def check_trace(rollout: Rollout, *, steps: dict[int, int]) -> None:
    """Every generated token has a log-probability and exactly one published version."""
    tokens = unpack_int32(rollout.tokens)
    logprobs = unpack_float32(rollout.logprobs)
    assert len(tokens) == len(rollout.mask) == len(logprobs)
    generated = [at for at, bit in enumerate(rollout.mask) if bit]
    assert generated == list(range(generated[0], len(tokens)))
    covered = [at for span in rollout.spans for at in range(span.start, span.end)]
    assert covered == generated
    assert all(steps[span.version] == span.step for span in rollout.spans)
    assert all(math.isfinite(logprobs[at]) and logprobs[at] <= 0 for at in generated)
    assert all(logprobs[at] == 0 for at in range(generated[0]))


def taken_up(trainer: ScriptedTrainer, tasks: list[str]) -> bool:
    return TaskState.PENDING not in trainer.states(tasks).values()


def update_under_load(trainer: ScriptedTrainer, pod: Pod, steps: dict[int, int]) -> list[str]:
    """Publish three versions, and more until one has come while a request ran; the tasks."""
    tasks: list[str] = []
    for seed in range(1, MOST_UPDATES):
        fresh = trainer.insert(3, group_size=8, content="17+25=")
        tasks += fresh
        until(partial(taken_up, trainer, fresh), what="claims")
        trainer.advance()
        steps[trainer.publish(seed=seed).version] = trainer.step
        pod.wait_version(trainer.step + 1)
        if seed < LEAST_UPDATES:
            continue
        until(partial(trainer.all_done, tasks), what="all groups")
        if any(len(rollout.spans) > 1 for rollout in trainer.chosen(tasks)):
            break
    return tasks


def test_groups_are_sampled_updated_under_load_and_drained(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    pod = make_pod(
        agent={"sampling": {"maxTokensPerTurn": 200, "maxContextTokens": 1000}},
        algorithm={"offPolicy": {"maxStaleness": 64}},
    )
    assert pod.stage().returncode == 0
    pod.serve()
    registered = pod.wait_document(lambda document: True, what="the registration")
    assert registered.state in {SamplerState.STARTING, SamplerState.LOADING}
    assert registered.scorers == sorted(SCORERS)
    assert pod.get("/ready")[0] == 503

    steps = {trainer.publish(seed=0).version: 0}
    pod.wait_version(1)
    assert pod.get("/ready")[0] == pod.get("/engine-live")[0] == pod.get("/live")[0] == 200

    tasks = update_under_load(trainer, pod, steps)
    rollouts = trainer.chosen(tasks)
    assert len(rollouts) == len(tasks) * 8
    for rollout in rollouts:
        check_trace(rollout, steps=steps)
        assert (
            unpack_int32(rollout.tokens)[: rollout.mask.index(1)]
            == unpack_int32(rollouts[0].tokens)[: rollouts[0].mask.index(1)]
        )
    assert any(len(rollout.spans) > 1 for rollout in rollouts), "no update hit a running request"
    # On a busy machine the first policy may be superseded before the engine has begun.
    assert len({span.version for rollout in rollouts for span in rollout.spans}) > 1
    assert all(task.attempt == 1 for task in trainer.stores.tasks.get(tasks).values())
    done = f"rl_sampler_groups_done_total {len(tasks)}.0"
    until(lambda: done in pod.get("/metrics")[1], what="the count")
    document = pod.wait_document(
        lambda document: document.updates == len(steps), what="all updates"
    )
    assert document.pause_seconds_last > 0

    more = trainer.insert(20, group_size=8)
    until(lambda: TaskState.CLAIMED in trainer.states(more).values(), what="claims")
    assert pod.signal(signal.SIGTERM) == 0
    assert TaskState.CLAIMED not in trainer.states(more).values()
    left = pod.document()
    assert left is not None
    assert (left.state, left.drained) == (SamplerState.GONE, True)


def test_evaluation_uses_exactly_its_version_and_comes_first(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    first = trainer.publish(seed=5)
    pod = make_pod()
    assert pod.stage().returncode == 0
    assert (pod.folder / "weights" / "current" / "tokenizer.json").is_file()
    pod.serve()
    pod.wait_version(first.version)
    superseded = trainer.insert_evaluation(1, version=99)
    trainer.advance()
    second = trainer.publish(seed=6)
    # Inserted at once: the agent may not have seen the version yet, and waits for it.
    tasks = trainer.insert_evaluation(30, version=second.version)
    until(lambda: trainer.all_done(tasks), what="the evaluation")
    for rollout in trainer.chosen(tasks):
        assert rollout.temperature == 0.7
        assert [span.version for span in rollout.spans] == [second.version]
        check_trace(rollout, steps={second.version: 1})
    assert all(task.attempt == 1 for task in trainer.stores.tasks.get(tasks).values())
    assert TaskState.DONE not in trainer.states(superseded).values()


def test_tasks_that_cannot_be_sampled_die_with_a_reason(
    trainer: ScriptedTrainer, make_pod: MakePod
) -> None:
    pod = make_pod()
    assert pod.stage().returncode == 0
    trainer.publish()
    pod.serve()
    too_long = trainer.insert(1, content="9" * 64)
    tight = trainer.insert(1, content="9" * 59)
    unjudged = trainer.insert(1, scorer="Poetry")
    own = trainer.insert(1, scorer="Format", answer_schema="Raw")
    until(lambda: trainer.all_done(tight), what="the group that just fits")
    until(lambda: trainer.states(too_long)[too_long[0]] is TaskState.DEAD, what="its end")
    reason = trainer.stores.tasks.get(too_long)[too_long[0]].reason
    assert "spec.agent.sampling.maxContextTokens = 64" in reason
    assert all(rollout.num_tokens <= 64 for rollout in trainer.chosen(tight))
    # A record's own scorer judges alone; one that nobody knows is never a reward of 0.
    until(lambda: trainer.all_done(own), what="the group with its own scorer")
    assert {part.scorer for rollout in trainer.chosen(own) for part in rollout.parts} == {"Format"}
    assert {part.scorer for rollout in trainer.chosen(tight) for part in rollout.parts} == {
        "ExactMatch"
    }
    until(lambda: trainer.states(unjudged)[unjudged[0]] is TaskState.DEAD, what="its end")
    reason = trainer.stores.tasks.get(unjudged)[unjudged[0]].reason
    assert (
        "names scorer Poetry, which this sampler does not have: use one of Environment, ExactMatch"
        in reason
    )


def test_unknown_scorer_keeps_the_sampler_registered_and_idle(
    trainer: ScriptedTrainer, make_pod: MakePod
) -> None:
    pod = make_pod(reward={"scorers": [{"kind": "Poetry"}]})
    assert pod.stage().returncode == 0
    trainer.publish()
    tasks = trainer.insert(1)
    pod.serve()
    pod.wait_version(1)
    document = pod.wait_document(
        lambda document: "Poetry" in document.last_error, what="the complaint"
    )
    assert document.scorers == sorted(SCORERS)
    assert set(trainer.states(tasks).values()) == {TaskState.PENDING}
    assert pod.signal(signal.SIGTERM) == 0
