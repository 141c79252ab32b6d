"""How far ahead prompts are handed out: the back-pressure that keeps samples fresh."""

from __future__ import annotations


def admissible(
    *, outstanding: int, prompts_per_step: int, max_staleness: int, steps_left: int
) -> int:
    """How many train tasks may be inserted now.

    A prompt that waits behind more than ``max_staleness`` steps' worth of others would be too old
    when its turn comes (AReaL, arXiv 2505.24298, equation 3); and none is needed beyond the last
    step.

    Args:
        outstanding: tasks inserted and neither trained nor dropped yet, those of the batch in
            training included.
        prompts_per_step: groups that one step trains.
        max_staleness: steps that the oldest trained token may lag.
        steps_left: steps that the run still needs, the one in training included.
    """
    bound = min(max_staleness + 1, steps_left) * prompts_per_step
    return max(0, bound - outstanding)
