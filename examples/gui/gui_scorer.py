"""A scorer that judges the state of the page: spec.reward.scorers[].entryPoint names it.

Only tools write messages of role `tool`, so a policy cannot claim a state.
"""

import json
from collections.abc import Mapping

from rl_sampler.extension import Response


def pressed(response: Response) -> float:
    """1 where the button of the record's answer was pressed last, else 0."""
    return float(
        bool(response.reference) and last_state(response).get("pressed") == response.reference
    )


def last_state(response: Response) -> Mapping[str, str]:
    """The state that the last answer of a tool named; empty where none did."""
    for message in reversed(response.messages):
        if message["role"] != "tool":
            continue
        try:
            state, _ = json.JSONDecoder().raw_decode(message["content"])
        except ValueError:
            continue
        if isinstance(state, dict):
            return state
    return {}
