"""A real engine and a real trainer take turns: the smallest run that shows the protocol."""

from __future__ import annotations

from pathlib import Path

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.turns import Turn
from tests.contract.rl_trainer.world import RUN
from tests.contract.turns.pod import turns_pod
from tests.waiting import HUNG_SECONDS


def test_trainer_and_engine_take_turns_and_weights_never_pass_the_bucket(
    tmp_path: Path, stores: Stores, store_settings: StoreSettings
) -> None:
    """Two steps and an evaluation: versions, spans and lineage are as with pods of their own."""
    evaluation = {"beforeTraining": False, "afterTraining": True, "temperatures": [1.0]}
    with turns_pod(
        tmp_path, stores, store_settings, steps=2, evaluation=evaluation, promptsPerStep=2
    ) as pod:
        pod.wait_trained(pod.train(), seconds=HUNG_SECONDS)
        assert pod.turn() == Turn.TRAIN
        assert not pod.gate_is_open
        assert not list((pod.weights / "handover").iterdir())

    world = pod.world
    assert world.outcome.kind == "Succeeded"
    world.check_lineage()
    versions = [{span.version for span in each.spans} for step in world.trained() for each in step]
    assert set().union(*versions) <= {1, 2}
    (result,) = world.evaluations
    assert result.version == 3
    assert result.logprob_gap_max < 1e-4
    assert stores.objects.list(f"{stores.run_prefix(RUN)}policies/") == []
    assert [record.version for record in stores.policies.of_run(RUN)] == [1, 2, 3]
