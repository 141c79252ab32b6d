"""The tiny model learns from records in the form in which GSM8K is published: answerSchema Auto.

The trainer is the real one; the sampler is that of the tests, with the agent's own scorers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from statistics import fmean

from rl_contracts.documents.task import Task
from rl_contracts.spec.reward import Reward
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_sampler.scorers import Scorers, total
from rl_sampler.scorers.response import Response
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import tiny_tokenizer

log = logging.getLogger(__name__)

STEPS = 24
REWARD = Reward.model_validate({"scorers": [{"kind": "ExactMatch"}]})
TOKENIZER = tiny_tokenizer()


def record(digit: int) -> dict[str, str]:
    """Two fields, a solution with a calculator's annotation, and the answer behind ``####``."""
    solution = (
        f"{digit} of them are red, and 7-{digit}=<<7-{digit}={7 - digit}>>{7 - digit} blue.\n"
    )
    return {"question": str(digit), "answer": f"{solution}Together they are 7.\n#### 7"}


def scored(task: Task, tokens: list[int]) -> float:
    """The reward as an agent computes it."""
    text = TOKENIZER.decode(tokens).split("<")[0]  # the tokens that end a turn are no text
    response = Response(text=text, answer=None, reference=task.answer)
    return total(asyncio.run(Scorers().score(response, reward=REWARD)))


def test_the_tiny_model_learns_from_records_in_gsm8ks_own_form(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    world = World.make(tmp_path, stores, store_settings, steps=STEPS)
    lines = "".join(json.dumps(record(digit)) + "\n" for digit in range(10))
    world.stores.objects.put(f"{world.stores.objects.prefix}train.jsonl", lines.encode())
    given = world.spec.model_dump(by_alias=True)
    given["reward"] = {"scorers": [{"kind": "ExactMatch"}]}
    given["data"]["validation"] = []
    given["data"]["train"][0]["columns"] = {"query": "question"}
    given["algorithm"] = {"groupSize": 8, "offPolicy": {"maxStaleness": 0}}
    given["training"]["evaluation"] = {"beforeTraining": False, "afterTraining": False}
    world.spec = world.spec.model_validate(given)
    assert world.spec.reward.answer_schema == "Auto"
    world.write_mounts()
    with sampling(TestSampler(world.stores, RUN, reward=scored)):
        assert world.attempt() == 0
    means = [fmean(rollout.reward for rollout in step) for step in world.trained()]
    log.info("mean rewards: %s", [round(mean, 2) for mean in means])
    assert fmean(means[-4:]) >= fmean(means[:4]) + 0.3, means
