"""A scorer that asks reasoning-gym whether an answer is right; see docs/guides/environments.md."""

import reasoning_gym

from rl_sampler.extension import Response


def verified(response: Response) -> float:
    """The package's value for the answer, in [0, 1]; 0 without an answer."""
    if response.answer is None:
        return 0.0
    score = reasoning_gym.get_score_answer_fn(response.fields["task"])
    return min(1.0, max(0.0, float(score(response.answer, response.fields["entry"]))))
