from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.connect import Stores
from rl_trainer.context.job import Progress
from rl_trainer.rollouts import results
from tests.samples.documents import RUN, a_result, a_run
from tests.samples.manifests import a_job


def test_results_of_an_earlier_release_stay_when_others_follow(stores: Stores) -> None:
    """They are in the run document alone, which then keeps the newest of each source."""
    stores.runs.create(a_run(epoch=1, evaluations=[a_result(0), a_result(1)]))
    spec = RLJobSpec.model_validate(a_job()["spec"])
    job = cast(Any, SimpleNamespace(stores=stores, run=RUN, epoch=1, spec=spec))

    def resumed() -> Progress:
        run = stores.runs.require(RUN)
        known = results.of_run(job, run)
        return Progress(evaluations=known, last_evaluation=run.last_evaluation)

    for step in (2, 3):
        results.record(job, resumed(), [a_result(step)])
    assert stores.runs.require(RUN).evaluations == [a_result(3)]
    assert resumed().evaluations == [a_result(step) for step in range(4)]
