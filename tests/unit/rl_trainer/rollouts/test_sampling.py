"""Windows of a Sampling run that goes on."""

from __future__ import annotations

import pytest

from rl_contracts.documents.run import Sampled
from rl_contracts.errors import RefusedError
from rl_trainer.rollouts.sampling import check_size


@pytest.mark.parametrize(
    "known",
    [Sampled(), Sampled(windows=2, prompts=8), Sampled(windows=2, prompts=5, given_up=3)],
    ids=["none yet", "all sampled", "some given up"],
)
def test_windows_of_the_same_size_are_gone_on_with(known: Sampled) -> None:
    check_size(known, size=4)


@pytest.mark.parametrize("size", [2, 8])
def test_windows_of_another_size_are_refused(size: int) -> None:
    with pytest.raises(RefusedError, match="has sampled 2 windows of 4 prompts") as caught:
        check_size(Sampled(windows=2, prompts=7, given_up=1), size=size)
    assert caught.value.refusal.field == "spec.training.promptsPerStep"
    assert "Set it to 4" in caught.value.refusal.remedy
