"""What ends an attempt of whose members too few can be used."""

from __future__ import annotations

import pytest

from rl_sampler.agents.prompt import PromptError
from rl_sampler.episodes.episode import _failure
from rl_sampler.tasks.claims import Claim, UnusableMemberError
from tests.samples.documents import a_task


@pytest.mark.parametrize(
    ("too_long", "failed", "good", "attempt", "ends"),
    [
        ({0, 1}, 2, 0, 1, True),
        ({1}, 1, 1, 1, False),
        ({1}, 1, 1, 5, True),
        ({1}, 2, 0, 5, False),
        (set(), 0, 0, 5, False),
    ],
    ids=["all", "one", "one again and again", "one beside another failure", "none"],
)
def test_a_prompt_is_of_no_use_where_it_is_too_long_for_all_or_to_the_last(
    too_long: set[int], failed: int, good: int, attempt: int, ends: bool
) -> None:
    task = a_task(group_size=2, max_attempts=5, attempt=attempt)
    claim = Claim(task=task, renewed=0.0, too_long=too_long)
    error = _failure(claim, "why", failed=failed, good=good)
    assert type(error) is (PromptError if ends else UnusableMemberError)
