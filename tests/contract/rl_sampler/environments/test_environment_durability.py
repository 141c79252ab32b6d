"""Turns in an environment that outlive their sampler; the soak kills in more phases."""

from __future__ import annotations

from tests.contract.rl_sampler.episodes.killed import GROUP, PlayKilled
from tests.network.openenv import MOST_STEPS, SmallServer, served_in_a_thread


def test_the_next_holder_makes_the_saved_actions_again_and_goes_on(
    play_killed: PlayKilled,
) -> None:
    server = SmallServer()
    with served_in_a_thread(server) as url:
        killed = play_killed(
            {"kind": "Environment", "environment": {"url": url, "replayable": True}}
        )
    killed.check(turns=MOST_STEPS)
    for rollout in killed.rollouts:
        assert rollout.environment is not None
        assert (rollout.environment.steps, rollout.environment.truncated) == (MOST_STEPS, True)
    ids = [reset["episode_id"] for reset in server.resets]
    assert (len(ids), len(set(ids))) == (2 * GROUP, GROUP), "the same in both attempts"
