"""In which turn each image of a trajectory came. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.documents.rollout import ImageSpan, Turn
from rl_contracts.queries.answers import RolloutAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnImages:
    """A turn and the images that the policy was shown before it, besides those of tools."""

    turn: Turn
    """Its tool calls name the images of their results."""
    shown: list[ImageSpan]


def by_turn(given: RolloutAnswer) -> list[TurnImages]:
    """The turns of a trajectory, each with the images that came with its request.

    The results of a turn's calls are in the next request, and a new sequence shows again what the
    one before had: such images stand where they came first.
    """
    made: list[TurnImages] = []
    seen: set[str] = set()
    called: set[str] = set()
    for turn in given.turns:
        again = seen if turn.request.start in given.sequence_starts else called
        within = range(turn.request.start, turn.request.end)
        shown = [each for each in given.images if each.start in within and each.sha256 not in again]
        called = {image.sha256 for call in turn.calls for image in call.images}
        seen |= called | {each.sha256 for each in shown}
        made.append(TurnImages(turn=turn, shown=shown))
    return made
