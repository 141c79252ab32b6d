"""A group whose sampler, program or environment is killed, and how it goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.saved_turn import SavedTurn, unfinished
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.episodes.calling_engine import CallingEngine
from tests.contract.rl_sampler.episodes.several_turns import with_tools
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import Pod, new_pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

KILLED_TURN, GROUP = 3, 2
DONE_TURNS = KILLED_TURN - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """What became of the group."""

    before: list[Rollout]
    """What was saved of the members."""
    rollouts: list[Rollout]
    living: CallingEngine
    """The second sampler's engine."""
    done: int = DONE_TURNS
    """Turns that were saved of each member."""

    def check(self, *, turns: int) -> None:
        """Each member goes on behind its last saved turn, with the tokens that it had."""
        asked = sorted(self.living.asked)
        assert asked == [turn for turn in range(self.done + 1, turns + 1) for _ in range(GROUP)]
        saves = {each.member: each for each in self.before}
        assert len(self.rollouts) == GROUP
        for rollout in self.rollouts:
            save = saves[rollout.member] if self.done else None
            assert rollout.continues == (save.id if save else "")
            assert rollout.replayed_turns == self.done
            for name in ("tokens", "mask", "logprobs") if save else ():
                assert getattr(rollout, name).startswith(getattr(save, name)), name
            assert len(rollout.turns) == turns
            assert (rollout.unfinished, rollout.error) == (None, None)


PlayKilled = Callable[..., Killed]
"""``play_with_a_kill``, which knows the run."""


def sections_of(agent: dict[str, Any], trainer: ScriptedTrainer, model: Path) -> dict[str, Any]:
    """Of a job that saves the turns of an agent.

    The scorer of a program or an environment has the name of its kind.
    """
    sampling = {"maxTokensPerTurn": 100, "maxContextTokens": 2000}
    sections = with_tools(trainer, model) | {
        "agent": {"durability": "Turns", "sampling": sampling, **agent}
    }
    if agent["kind"] in ("Program", "Environment"):
        sections["reward"] = {"scorers": [{"kind": agent["kind"]}]}
    return sections


def saved_turns(stores: Stores, task: str, *, done: int = DONE_TURNS) -> list[Rollout]:
    """What is saved of the members, once each has as many turns as it finished."""
    of_member: dict[int, list[SavedTurn]] = {}
    for turn in stores.turns.of_task(task):
        of_member.setdefault(turn.member, []).append(turn)
    saved = [each for each in map(unfinished, of_member.values()) if each is not None]
    return saved if [len(each.turns) for each in saved] == [done] * GROUP else []


def all_in_the_third_turn(engine: CallingEngine) -> bool:
    """Whether the third response of each member was asked for."""
    return engine.asked.count(KILLED_TURN) == GROUP


def kill_and_go_on(
    trainer: ScriptedTrainer,
    task: str,
    *,
    first: Pod,
    second: Pod,
    then: Callable[[Pod], None] = lambda _: None,
    again_when: Callable[[], bool] | None = None,
) -> None:
    """Kill the sampler that holds a task, and wait until the second one has completed it.

    Args:
        trainer: of the run; it has trained a step meanwhile.
        task: of the group.
        first: is killed.
        second: begins once its pod is staged.
        then: called with the second sampler's pod before it begins.
        again_when: the moment at which the second sampler is killed and started again; None: never.
    """
    tasks = trainer.stores.tasks
    first.signal(signal.SIGKILL)
    then(second)
    assert second.stage().returncode == 0
    trainer.advance()
    trainer.publish(seed=2)
    tasks.renew(tasks.get([task])[task], lease_seconds=-1)
    second.serve()
    if again_when is not None:
        until(again_when, what="the moment of the second kill")
        second.signal(signal.SIGKILL)
        tasks.renew(tasks.get([task])[task], lease_seconds=-1)
        second.serve()
    until(lambda: trainer.all_done([task]), what="the group")


def play_with_a_kill(
    agent: dict[str, Any],
    *,
    calls: int = 0,
    held: bool = True,
    killed_when: Callable[[CallingEngine], bool] = all_in_the_third_turn,
    then: Callable[[Pod], None] = lambda _: None,
    again_when: Callable[[], bool] | None = None,
    done: int = DONE_TURNS,
    folder: Path,
    trainer: ScriptedTrainer,
    model: Path,
    settings: StoreSettings,
    fork_server: ForkServer,
) -> Killed:
    """Play one group with two samplers, the first of which is killed.

    Args:
        agent: of the manifest; durable unless it says otherwise.
        calls: the turns in which the policy calls a tool, or answers in the last; 0: it never
            calls one.
        held: the first engine never answers in the third turn.
        killed_when: the moment of the kill.
        then: called with the second sampler's pod before it begins.
        again_when: as ``kill_and_go_on``.
        done: turns of each member that are saved before the kill.
        folder: for the pods.
        trainer: of the run.
        model: whose tokenizer the engines have.
        settings: of the stores.
        fork_server: starts the samplers.
    """
    stores = trainer.stores
    dying = CallingEngine(model, calls, held_turn=KILLED_TURN if held else 0)
    living = CallingEngine(model, calls)
    sections = sections_of(agent, trainer, model)
    with dying.listening(), living.listening():

        def a_pod(name: str, engine: CallingEngine) -> Pod:
            return new_pod(
                folder / name,
                engine_url=engine.url,
                settings=settings,
                stores=stores,
                sections=sections,
                launch=fork_server.launch,
            )

        first, second = a_pod("pod-a", dying), a_pod("pod-b", living)
        try:
            first.serve_first_of(trainer)
            (task,) = trainer.insert(1, group_size=GROUP)
            until(lambda: killed_when(dying), what="the third turns", seen=lambda: dying.asked)
            before = (
                until(lambda: saved_turns(stores, task, done=done), what="the saves")
                if done and sections["agent"]["durability"] == "Turns"
                else []
            )
            kill_and_go_on(
                trainer, task, first=first, second=second, then=then, again_when=again_when
            )
            until(lambda: not stores.turns.of_task(task), what="the end of the saved turns")
        finally:
            first.end()
            second.end()
    return Killed(before=before, rollouts=trainer.chosen([task]), living=living, done=done)


PlayOn = Callable[..., list[Rollout]]
"""``play_on``, which knows the run."""


def play_on(
    agent: dict[str, Any],
    engine: CallingEngine,
    *,
    meanwhile: Callable[[], None] = lambda: None,
    folder: Path,
    trainer: ScriptedTrainer,
    model: Path,
    settings: StoreSettings,
    fork_server: ForkServer,
) -> list[Rollout]:
    """Play one group with a sampler that lives, whatever is killed beside it.

    Args:
        agent: of the manifest; durable.
        engine: of the sampler.
        meanwhile: called once the group is handed out.
        folder: for the pod.
        trainer: of the run.
        model: whose tokenizer the engine has.
        settings: of the stores.
        fork_server: starts the sampler.
    """
    with engine.listening():
        pod = new_pod(
            folder / "pod",
            engine_url=engine.url,
            settings=settings,
            stores=trainer.stores,
            sections=sections_of(agent, trainer, model),
            launch=fork_server.launch,
        )
        try:
            pod.serve_first_of(trainer)
            tasks = trainer.insert(1, group_size=GROUP)
            meanwhile()
            until(lambda: trainer.all_done(tasks), what="the group")
        finally:
            pod.end()
    rollouts = trainer.chosen(tasks)
    assert len(rollouts) == GROUP
    assert {(each.unfinished, each.error) for each in rollouts} == {(None, None)}
    return rollouts
