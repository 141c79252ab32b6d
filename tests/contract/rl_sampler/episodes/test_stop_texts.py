"""``agent.sampling.stop`` with the real engine: where responses end, and what is stored."""

from __future__ import annotations

from rl_contracts.documents.arrays import unpack_int32
from rl_contracts.documents.rollout import StopReason
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

STOPS = ["1", "7", "b", "Q"]
"""The engine looks for texts outside of special tokens: none of these is in the name of any."""
LONGEST = 60


def test_responses_end_with_the_first_stop_text_which_is_part_of_them(
    trainer: ScriptedTrainer, make_pod: MakePod
) -> None:
    sampling = {"maxTokensPerTurn": LONGEST, "maxContextTokens": 200, "stop": STOPS}
    pod = make_pod(agent={"sampling": sampling})
    pod.serve_first_of(trainer)
    tasks = trainer.insert(4, group_size=8)
    until(lambda: trainer.all_done(tasks), what="the groups")
    stopped = 0
    for rollout in trainer.chosen(tasks):
        count = len(unpack_int32(rollout.tokens)) - rollout.mask.index(1)
        appear = [text for text in STOPS if text in rollout.text]
        if appear:
            stopped += 1
            assert rollout.stop_reason is StopReason.STOP
            assert rollout.text.endswith(tuple(STOPS))
            assert not any(text in rollout.text[:-1] for text in STOPS)
        elif rollout.stop_reason is StopReason.LENGTH:
            assert count == LONGEST
    assert stopped >= 4
