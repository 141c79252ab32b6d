"""From a response to actions, and from an observation to text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rl_sampler.environments.protocol import EnvironmentDownError, storable
from rl_sampler.tools.strict_json import DECODER
from rl_sampler.tools.tool import Tool

FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
ACT = "act"
"""The tool that stands for the actions of an environment without tools of its own."""
DOWN = "transport_error"
"""The error of a tool's call by which the environment itself is down. A tool's time-out is none:
what the policy asks for may take too long, while the environment answers."""


class NotAnActionError(ValueError):
    """A response holds no action."""


def object_in(text: str) -> dict[str, Any]:
    """The action that a response holds: its last fenced block, or from its first ``{`` on.

    Raises:
        NotAnActionError: that is no JSON object.
    """
    blocks = FENCED.findall(text)
    written = blocks[-1] if blocks else text[max(text.find("{"), 0) :]
    return parsed(written)


def parsed(written: str) -> dict[str, Any]:
    """The JSON object that a text begins with; raises NotAnActionError where there is none."""
    try:
        value, _ = DECODER.raw_decode(written.strip())
    except (ValueError, RecursionError) as error:
        raise NotAnActionError("it holds no JSON object") from error
    if not isinstance(value, dict):
        raise NotAnActionError("its JSON is no object")
    return value


def tool_of_schema(schema: Mapping[str, Any]) -> Tool:
    """The tool whose arguments are an action, from the JSON schema of actions."""
    properties = schema.get("properties")
    left = properties if isinstance(properties, Mapping) else {}
    parameters = {
        key: value for key, value in schema.items() if key not in ("title", "description")
    }
    parameters["properties"] = {name: each for name, each in left.items() if name != "metadata"}
    described = str(schema.get("description", ""))
    return Tool(name=ACT, description=described or "Act.", parameters=parameters)


def tools_in(observation: Any) -> list[Tool]:
    """The tools that an environment with tools lists; empty where the observation lists none."""
    listed = observation.get("tools") if isinstance(observation, Mapping) else None
    if not isinstance(listed, list):
        return []
    return [
        Tool(
            name=str(each["name"]),
            description=str(each.get("description") or ""),
            parameters=dict(each.get("input_schema") or {}),
        )
        for each in listed
        if isinstance(each, Mapping) and each.get("name")
    ]


def shown(observation: Any, field: str | None) -> str:
    """An observation as the policy sees it.

    Args:
        observation: as JSON.
        field: its field that is shown; None: all of it but ``metadata`` and null. A single text is
            shown as it is, everything else as JSON.

    Raises:
        EnvironmentDownError: it has no such field.
    """
    value = "" if observation is None else observation
    if isinstance(observation, Mapping):
        if field is None:
            value = _whole(observation)
        elif field in observation:
            value = observation[field]
        else:
            raise EnvironmentDownError(
                f"the observation has no field {field}, which agent.environment.observationField "
                f"names: it has {', '.join(map(str, observation)) or 'none'}"
            )
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return storable(text)


def _whole(observation: Mapping[str, Any]) -> Any:
    left = {
        key: value for key, value in observation.items() if key != "metadata" and value is not None
    }
    if "tool_name" in observation and "result" in left:
        return _tool_result(left)
    if not left:
        return ""
    if len(left) == 1:
        (only,) = left.values()
        if isinstance(only, str):
            return only
    return left


def tool_error(observation: Any) -> str:
    """Why the environment could not call a tool; empty where it could.

    Raises:
        EnvironmentDownError: the environment's own connection to its tools failed.
    """
    error = observation.get("error") if isinstance(observation, Mapping) else None
    if not isinstance(error, Mapping):
        return ""
    message = storable(str(error.get("message", "it failed")))
    if error.get("error_type") == DOWN:
        raise EnvironmentDownError(f"the environment's tool failed: {message[:300]}")
    return message


def _tool_result(observation: Mapping[str, Any]) -> Any:
    """The text of a tool's result, as MCP writes it, else the result."""
    result = observation["result"]
    content = result.get("content") if isinstance(result, Mapping) else None
    if not isinstance(content, list):
        return result
    texts = [part.get("text") for part in content if isinstance(part, Mapping)]
    kept = [text if isinstance(text, str) else "[left out: no text]" for text in texts]
    return "\n".join(kept)
