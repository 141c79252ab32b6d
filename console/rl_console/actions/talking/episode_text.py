"""An episode on request, as text for a person."""

from __future__ import annotations

from collections.abc import Iterator

from rl_console.actions.run_data.trajectory_text import turn_lines
from rl_console.errors import RequestRefusedError
from rl_console.figures import number
from rl_contracts.documents.rollout import RewardPart
from rl_contracts.requested import EpisodeAnswer


def versions_text(versions: list[int]) -> str:
    """Policy versions by number."""
    word = "version" if len(versions) == 1 else "versions"
    return f"{word} {', '.join(map(str, versions))}" if versions else "no version"


def reward_text(reward: float, parts: list[RewardPart]) -> str:
    """A reward, and of which scorers it is the sum."""
    by_scorer = ", ".join(f"{each.scorer} {number(each.value)}" for each in parts)
    return number(reward) + (f" ({by_scorer})" if by_scorer else "")


def turns_text(answer: EpisodeAnswer) -> str:
    """All turns with their tool calls."""
    return "\n\n".join(
        "\n".join(turn_lines(place, turn)) for place, turn in enumerate(answer.turns, start=1)
    )


def facts_of(answer: EpisodeAnswer) -> Iterator[str]:
    """By which policy it was sampled, how long it is, and why it ended."""
    yield versions_text(answer.versions)
    yield f"{answer.tokens} token{'' if answer.tokens == 1 else 's'}"
    yield str(answer.stop_reason)
    if answer.greedy:
        yield "greedy"


def refuse_failed(answer: EpisodeAnswer, *, doing: str, job: str, options: str) -> None:
    """Raise RequestRefusedError where an episode could not go on.

    Args:
        answer: the episode.
        doing: for the message.
        job: whose policy was asked.
        options: of a command in the message, as ``Cluster.options`` gives them.
    """
    if answer.error is None:
        return
    remedies = {
        "infrastructure": f"Try again; `kubectl rl logs {job} agent {options}` says more",
        "user": f"The job's own code failed: `kubectl rl logs {job} code {options}` says more",
        "model": "",
    }
    raise RequestRefusedError(
        doing=doing, cause=answer.error.message, remedy=remedies[answer.error.kind]
    )
