from __future__ import annotations

import pytest

from rl_contracts.documents.run import Outcome, Run
from rl_sampler.reaper import is_needed
from tests.samples.documents import a_run

ENDED = Outcome(kind="Succeeded", reason="Done", message="")


@pytest.mark.parametrize(
    ("run", "needed"),
    [
        (None, False),
        (a_run(heartbeat_at=995.0), False),
        (a_run(heartbeat_at=970.0), True),
        (a_run(), True),
        (a_run(heartbeat_at=970.0, outcome=ENDED), False),
        # Beaten before the store's clock was set back: whoever beats now would say a later time.
        (a_run(heartbeat_at=5000.0), True),
    ],
)
def test_agents_reap_only_while_no_trainer_does(run: Run | None, needed: bool) -> None:
    assert is_needed(run, now=1000.0) == needed
