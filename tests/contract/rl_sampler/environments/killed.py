"""A group in an environment whose sampler is killed in its third turn, and how it goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from rl_contracts.documents.rollout import Rollout
from rl_contracts.stores.clients.settings import StoreSettings
from tests.contract.rl_sampler.episodes.calling_engine import CallingEngine
from tests.contract.rl_sampler.episodes.several_turns import with_tools
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import Pod, new_pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.openenv import MOST_STEPS, SmallServer, served_in_a_thread
from tests.waiting import until

KILLED_TURN, GROUP = 3, 2
DONE_TURNS = KILLED_TURN - 1


def play_with_a_kill(
    server: SmallServer,
    *,
    held: bool,
    killed_when: Callable[[CallingEngine], bool],
    then: Callable[[], None] = lambda: None,
    folder: Path,
    trainer: ScriptedTrainer,
    model: Path,
    settings: StoreSettings,
    fork_server: ForkServer,
) -> tuple[list[Rollout], list[Rollout], CallingEngine]:
    """Play one group with two samplers, the first of which is killed.

    Args:
        server: the environment.
        held: the first engine never answers in the third turn.
        killed_when: the moment of the kill.
        then: what happens before the second sampler begins.
        folder: for the pods.
        trainer: of the run.
        model: whose tokenizer the engines have.
        settings: of the stores.
        fork_server: starts the samplers.

    Returns:
        What was saved, the group's rollouts, and the second sampler's engine.
    """
    stores = trainer.stores
    dying = CallingEngine(model, 0, held_turn=KILLED_TURN if held else 0)
    living = CallingEngine(model, 0)
    with served_in_a_thread(server) as url, dying.listening(), living.listening():
        sections = with_tools(trainer, model) | {
            "agent": {
                "kind": "Environment",
                "durability": "Turns",
                "environment": {"url": url, "replayable": True},
                "sampling": {"maxTokensPerTurn": 100, "maxContextTokens": 2000},
            },
            "reward": {"scorers": [{"kind": "Environment"}]},
        }

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

            def saved() -> list[Rollout]:
                listed = [each for each in stores.rollouts.of_task(task) if each.unfinished]
                turns = [len(each.turns) for each in listed]
                return listed if turns == [DONE_TURNS] * GROUP else []

            before = until(saved, what="the saves")
            first.signal(signal.SIGKILL)
            then()
            assert second.stage().returncode == 0
            trainer.advance()
            trainer.publish(seed=2)
            stores.tasks.renew(stores.tasks.get([task])[task], lease_seconds=-1)
            second.serve()
            until(lambda: trainer.all_done([task]), what="the group")
        finally:
            first.end()
            second.end()
    return before, trainer.chosen([task]), living


def check_continued(before: list[Rollout], rollouts: list[Rollout], living: CallingEngine) -> None:
    """Each member goes on behind its second turn, with the tokens that it had."""
    asked = sorted(living.asked)
    assert asked == [turn for turn in range(KILLED_TURN, MOST_STEPS + 1) for _ in range(GROUP)]
    saves = {each.member: each for each in before}
    for rollout in rollouts:
        save = saves[rollout.member]
        assert (rollout.continues, rollout.replayed_turns) == (save.id, DONE_TURNS)
        for name in ("tokens", "mask", "logprobs"):
            assert getattr(rollout, name).startswith(getattr(save, name)), name
        assert rollout.environment is not None
        assert rollout.environment.steps == len(rollout.turns) == MOST_STEPS
        assert rollout.environment.truncated
        assert (rollout.unfinished, rollout.error) == (None, None)
