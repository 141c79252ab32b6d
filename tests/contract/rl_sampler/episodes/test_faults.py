"""What breaks is survived: nothing is lost and nothing false becomes data."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from rl_contracts.documents.rollout import VersionSpan
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import tensors
from tests.samples.documents import a_rollout, a_task
from tests.waiting import until

LONG = {"sampling": {"maxTokensPerTurn": 100, "maxContextTokens": 1000}}
VERY_LONG = {"sampling": {"maxTokensPerTurn": 900, "maxContextTokens": 1000}}
LOST = ("after its claim was lost", "the lease was lost")
ANY_AGE = {"offPolicy": {"maxStaleness": 64}}


def test_damaged_policy_never_reaches_the_engine(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    pod = make_pod(algorithm=ANY_AGE)
    pod.serve_first_of(trainer)
    trainer.advance()
    trainer.publish(seed=2, damage=lambda data: data[:-1000])

    pod.wait_document(lambda document: "version 2" in document.last_error, what="the failure")
    tasks = trainer.insert(4)
    until(lambda: trainer.all_done(tasks), what="groups of the old version")
    assert {span.version for rollout in trainer.chosen(tasks) for span in rollout.spans} == {1}
    assert engine_server.weight_version() == "1"
    policies = pod.folder / "weights" / "policies"

    def staged() -> list[str]:
        return [path.name for path in policies.iterdir()]

    # It is tried again and again: while it is downloaded there is a folder for it.
    until(
        lambda: staged() == [f"00000001-{trainer.epoch}-abcd"],
        what="no trace of version 2",
        seen=staged,
    )

    third = trainer.publish(seed=3)
    pod.wait_version(third.version)
    document = pod.wait_document(
        lambda document: document.updates == 2 and "version 2" not in document.last_error,
        what="the second update",
    )
    assert document.update_failures > 0


def test_policy_with_other_tensor_shapes_never_reaches_the_engine(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    pod = make_pod(algorithm=ANY_AGE)
    pod.serve_first_of(trainer)
    name = "model.layers.0.mlp.up_proj.weight"
    trainer.publish(weights=tensors(2) | {name: np.ones((3, 64), dtype=np.float32)})
    pod.wait_document(lambda document: name in document.last_error, what="the refusal")
    tasks = trainer.insert(1)
    until(lambda: trainer.all_done(tasks), what="a group")
    assert trainer.states(tasks)[tasks[0]] is TaskState.DONE
    assert engine_server.weight_version() == "1"


def test_work_of_a_dead_agent_is_continued_by_another(
    trainer: ScriptedTrainer, make_pod: MakePod, stores: Stores
) -> None:
    first, second = make_pod("pod-a", agent=LONG), make_pod("pod-b", agent=LONG)
    assert first.stage().returncode == 0
    assert second.stage().returncode == 0
    policy = trainer.publish(seed=1)
    # An attempt that died between writing two members and completing.
    half_done = trainer.insert(1)
    ghost = stores.tasks.claim(trainer.run, queue=Queue.TRAIN, owner="ghost", lease_seconds=-1)
    assert ghost is not None
    span = VersionSpan(version=policy.version, step=0, start=2, end=4)
    stores.rollouts.put([a_rollout(ghost, member, spans=[span]) for member in (0, 2)])

    first.serve()
    first.wait_version(1)
    until(lambda: trainer.all_done(half_done), what="the half-done group")
    tasks = trainer.insert(18, group_size=8)
    until(lambda: TaskState.CLAIMED in trainer.states(tasks).values(), what="claims")
    first.signal(signal.SIGKILL)
    orphans = [task for task in stores.tasks.get(tasks).values() if task.state is TaskState.CLAIMED]
    assert orphans
    for task in orphans:
        stores.tasks.renew(task, lease_seconds=-1)  # as if half a minute had passed
    second.serve()
    until(lambda: trainer.all_done(tasks), what="all groups")
    adopted = stores.tasks.get(half_done)[half_done[0]]
    assert [name.rsplit(".", 2)[1:] for name in adopted.rollouts] == [
        ["1", "0"],
        ["2", "1"],
        ["1", "2"],
        ["2", "3"],
    ]
    assert {stores.tasks.get([orphan.id])[orphan.id].attempt for orphan in orphans} == {2}


@pytest.mark.soak
def test_stale_groups_are_ended_and_sampled_again(
    trainer: ScriptedTrainer, make_pod: MakePod, stores: Stores
) -> None:
    pod = make_pod(agent=VERY_LONG, algorithm={"offPolicy": {"maxStaleness": 0}})
    pod.serve_first_of(trainer)
    tasks = trainer.insert(3, group_size=8)
    until(lambda: TaskState.CLAIMED in trainer.states(tasks).values(), what="a claim")
    trainer.advance()
    stale = "only tokens of step 1 and later can be trained"
    until(lambda: stale in pod.log(), what="the end of old episodes")

    def causes() -> set[Cause | None]:
        return {task.cause for task in stores.tasks.get(tasks).values() if task.reason}

    until(causes, what="the claims to be handed back")  # it is logged first
    assert causes() == {Cause.EXPIRED}
    assert "rl_sampler_groups_expired_total 0.0" not in pod.get("/metrics")[1]
    trainer.publish(seed=2)
    until(lambda: trainer.all_done(tasks), what="all groups")
    again = [task for task in stores.tasks.get(tasks).values() if task.attempt > 1]
    assert again
    rollouts = trainer.chosen([task.id for task in again])
    assert {rollout.oldest_step for rollout in rollouts} == {1}


def test_old_members_are_kept_for_their_rewards_where_members_are_withheld(
    trainer: ScriptedTrainer, make_pod: MakePod, stores: Stores
) -> None:
    pod = make_pod(algorithm={"offPolicy": {"maxStaleness": 1, "onStale": "Withhold"}})
    assert pod.stage().returncode == 0
    old = trainer.publish(seed=1)
    tasks = trainer.insert(1)
    ghost = stores.tasks.claim(
        trainer.run, queue=Queue.TRAIN, owner="ghost", lease_seconds=-1, policy_step=old.step
    )
    assert ghost is not None
    span = VersionSpan(version=old.version, step=old.step, start=2, end=4)
    stores.rollouts.put([a_rollout(ghost, member, spans=[span]) for member in (0, 2)])
    for _ in range(3):
        trainer.advance()
    trainer.publish(seed=2)
    pod.serve()
    until(lambda: trainer.all_done(tasks), what="the group")
    (done,) = stores.tasks.get(tasks).values()
    assert [name.rsplit(".", 2)[1:] for name in done.rollouts] == [
        ["1", "0"],
        ["2", "1"],
        ["1", "2"],
        ["2", "3"],
    ]
    assert [rollout.oldest_step for rollout in trainer.chosen(tasks)] == [0, 3, 0, 3]
    assert done.policy_step == 3, "the claim says how old its tokens may be"


def test_agent_reaps_expired_claims_while_no_trainer_runs(
    trainer: ScriptedTrainer, make_pod: MakePod, stores: Stores
) -> None:
    pod = make_pod()
    assert pod.stage().returncode == 0
    trainer.publish(seed=1)
    tasks = trainer.insert(1)
    assert stores.tasks.claim(trainer.run, queue=Queue.TRAIN, owner="ghost", lease_seconds=-1)
    pod.serve()
    until(
        lambda: trainer.states(tasks)[tasks[0]] is TaskState.DONE, what="the group"
    )  # nobody in this test reaps
    assert stores.tasks.get(tasks)[tasks[0]].attempt == 2


def test_minimum_of_members_completes_a_group_after_its_deadline(
    trainer: ScriptedTrainer, make_pod: MakePod, stores: Stores
) -> None:
    pod = make_pod(agent=VERY_LONG, algorithm=ANY_AGE)
    assert pod.stage().returncode == 0
    trainer.publish(seed=1)
    task = a_task(group_size=16, minimum=2, deadline_seconds=0.001)
    stores.tasks.insert([task])
    pod.serve()
    until(lambda: trainer.all_done([task.id]), what="the group")
    done = stores.tasks.get([task.id])[task.id]
    assert 2 <= len(done.rollouts) < 16
    assert len(stores.rollouts.get(done.rollouts)) == len(done.rollouts)


@pytest.mark.soak
def test_claim_that_was_handed_back_elsewhere_does_not_count(
    trainer: ScriptedTrainer, make_pod: MakePod, stores: Stores
) -> None:
    pod = make_pod(agent=VERY_LONG)
    pod.serve_first_of(trainer)
    tasks = trainer.insert(1, group_size=8)
    until(lambda: TaskState.CLAIMED in trainer.states(tasks).values(), what="a claim")
    assert stores.tasks.hand_back(stores.tasks.get(tasks)[tasks[0]], reason="taken away")
    trainer.announce()
    until(lambda: trainer.all_done(tasks), what="the second attempt")
    # It learns of it at its end or, where that takes longer, when it renews its lease.
    until(lambda: any(message in pod.log() for message in LOST), what="the first attempt's end")
    assert stores.tasks.get(tasks)[tasks[0]].attempt == 2
    assert len(trainer.chosen(tasks)) == 8


@pytest.mark.soak
def test_restarted_agent_hands_back_its_own_claims(
    trainer: ScriptedTrainer, make_pod: MakePod
) -> None:
    pod = make_pod(agent=LONG)
    pod.serve_first_of(trainer)
    tasks = trainer.insert(12, group_size=8)
    until(lambda: TaskState.CLAIMED in trainer.states(tasks).values(), what="claims")
    pod.signal(signal.SIGKILL)
    pod.serve()
    # Not left to the lease, which would run out later.
    until(lambda: "claims of an earlier process" in pod.log(), what="the claims' return")
    until(lambda: trainer.all_done(tasks), what="all groups")


def test_missing_model_is_refused_with_a_remedy(
    make_pod: MakePod, trainer: ScriptedTrainer
) -> None:
    pod = make_pod(model={"uri": "s3://rl-data/models/nowhere"})
    ended = pod.stage()
    assert ended.returncode == 2
    assert b"spec.model.uri" in ended.stderr
    assert b"Put a model" in ended.stderr
