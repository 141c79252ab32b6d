"""The greedy member of a group, by the real engine, beside members that are sampled."""

from __future__ import annotations

from pathlib import Path

import torch

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout
from tests.contract.rl_sampler.episodes.several_turns import (
    END_ID,
    check_turns,
    short_spoken,
    with_tools,
)
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.rescoring import CLOSE, model
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

TEMPERATURE = 0.5


def logits(rollout: Rollout, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each generated token's place, by transformers, and the tokens themselves."""
    tokens = torch.tensor([unpack_int32(rollout.tokens)])
    with torch.no_grad():
        all_logits = model(folder, 1)(tokens).logits[0, :-1]
    generated = torch.tensor(list(rollout.mask[1:])).bool()
    return all_logits[generated], tokens[0, 1:][generated]


def gap(rollout: Rollout, folder: Path) -> float:
    """How far its log-probabilities are from those of the whole distribution, at most."""
    scores, tokens = logits(rollout, folder)
    wanted = (scores / rollout.temperature).log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    engine_logprobs = [
        logprob
        for logprob, bit in zip(unpack_float32(rollout.logprobs), rollout.mask, strict=True)
        if bit
    ]
    return float((torch.tensor(engine_logprobs) - wanted).abs().max())


def test_baseline_member_is_greedy_and_the_same_each_time(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    pod = make_pod(algorithm={"estimator": {"kind": "ReMax"}, "groupSize": 1})
    pod.serve_first_of(trainer)
    # One alone in the engine, where all that is decoded together is greedy, and many at once.
    asked = [trainer.insert(1, group_size=1, temperature=TEMPERATURE, baseline=True)]
    until(lambda: trainer.all_done(asked[0]), what="the first group")
    asked += [
        trainer.insert(4, group_size=size, temperature=TEMPERATURE, baseline=True)
        for size in (1, 3)
    ]
    until(
        lambda: all(trainer.all_done(tasks_of_call) for tasks_of_call in asked),
        what="the other groups",
    )
    tasks = [task for some in asked for task in some]
    greedy = [rollout for rollout in trainer.chosen(tasks) if rollout.greedy]
    sampled = [rollout for rollout in trainer.chosen(tasks) if not rollout.greedy]
    assert (len(greedy), len(sampled)) == (9, 1 + 4 + 12)
    for rollout in greedy:
        assert (rollout.temperature, rollout.tokens) == (1.0, greedy[0].tokens)
        scores, tokens = logits(rollout, tiny_model)
        taken = scores.gather(1, tokens[:, None])[:, 0]
        assert bool((taken >= scores.max(-1).values - CLOSE).all())
    assert {rollout.temperature for rollout in sampled} == {TEMPERATURE}
    assert any(rollout.tokens != greedy[0].tokens for rollout in sampled)
    assert max(gap(rollout, tiny_model) for rollout in [*greedy, *sampled]) < CLOSE
    stored = trainer.stores.tasks.get(tasks).values()
    rollouts = trainer.stores.rollouts
    for task in stored:
        last = rollouts.get(task.rollouts)[task.rollouts[-1]]
        assert (last.greedy, last.member) == (True, task.group_size)


def test_every_member_is_greedy_at_temperature_0(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    pod = make_pod()
    pod.serve_first_of(trainer)
    tasks = trainer.insert(2, group_size=2, temperature=0.0)
    until(lambda: trainer.all_done(tasks), what="the groups")
    rollouts = trainer.chosen(tasks)
    assert len(rollouts) == 4
    for rollout in rollouts:
        assert (rollout.greedy, rollout.temperature) == (True, 1.0)
        assert rollout.tokens == rollouts[0].tokens
        assert gap(rollout, tiny_model) < CLOSE


def test_baseline_member_is_greedy_in_every_turn(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    algorithm = {"estimator": {"kind": "ReMax"}, "groupSize": 4}
    sections = with_tools(
        trainer, tiny_model, kind="Conversation", mcpServers=[], repetitionLimit=1000
    )
    pod = make_pod(**sections, algorithm=algorithm)
    assert pod.stage().returncode == 0
    trainer.publish(weights=short_spoken())  # the end of the turn is the most probable token
    pod.serve()
    tasks = trainer.insert(3, group_size=4, baseline=True, scenario=["and then", "thanks"])
    until(lambda: trainer.all_done(tasks), what="the groups")
    greedy = [rollout for rollout in trainer.chosen(tasks) if rollout.greedy]
    assert len(greedy) == 3
    for rollout in greedy:
        check_turns(rollout)
        tokens = unpack_int32(rollout.tokens)
        responses = [tokens[turn.response.start : turn.response.end] for turn in rollout.turns]
        assert responses == [[END_ID]] * 3
    sampled = [rollout for rollout in trainer.chosen(tasks) if not rollout.greedy]
    assert any(rollout.mask.count(1) > 3 for rollout in sampled)
