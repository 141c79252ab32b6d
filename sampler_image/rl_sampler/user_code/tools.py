"""Tools that are Python functions of the user; the policy chooses their arguments."""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from rl_contracts.spec.agent.user_code import PythonTool
from rl_sampler.tools.tool import Tool, ToolError, ToolResult
from rl_sampler.user_code.call import (
    UserCallable,
    UserCodeError,
    UserCodeTimeoutError,
    UserThreads,
)
from rl_sampler.user_code.entry_point import imported, refuse, refusing_failures

RESULT_CHARACTERS = 1_000_001
"""Of a result; the rest is cut off. One more than the largest maxToolResultCharacters, after which
the agent cuts it again, so that it sees that there was more."""
PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """A function that the policy can call."""

    tool: Tool
    arguments: type[BaseModel]
    code: UserCallable


class OwnTools:
    """All functions of a manifest."""

    def __init__(self, tools: Sequence[OwnTool]) -> None:
        self._tools = {tool.tool.name: tool for tool in tools}

    def described(self) -> list[dict[str, Any]]:
        """The tools and their time limits, for the agent."""
        return [asdict(tool.tool) | {"seconds": tool.code.seconds} for tool in self._tools.values()]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the policy's arguments and call a function with them; a long result is cut.

        Invalid arguments, a ToolError and a time-out become a failed result for the policy.

        Raises:
            ToolDownError: the function raised it.
            NoThreadError: there was no thread for the function within its time limit.
            UserCodeError: the function raised another exception, or its result is neither text
                nor anything that JSON can write.
        """
        result = await self._called(self._tools[tool], arguments)
        return replace(result, text=result.text[:RESULT_CHARACTERS])

    async def _called(self, wanted: OwnTool, arguments: Mapping[str, Any]) -> ToolResult:
        try:
            parsed = wanted.arguments.model_validate(arguments)
        except ValidationError as error:
            return ToolResult(text=_unfit(error), failed=True)
        named = {name: getattr(parsed, name) for name in wanted.arguments.model_fields}
        try:
            result = await wanted.code(**named)
        except ToolError as error:
            return ToolResult(text=str(error), failed=True)
        except UserCodeTimeoutError:
            return ToolResult(text=f"{wanted.tool.name} took too long", failed=True)
        return ToolResult(text=_written(result, wanted.code.name))


def _written(result: object, name: str) -> str:
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserCodeError(
            f"{name} returned {type(result).__name__}, which JSON cannot write ({error}): return "
            "text, or numbers, lists and dicts"
        ) from error


def load_tool(wanted: PythonTool, *, field: str, threads: UserThreads) -> OwnTool:
    """Import a function and read its parameters.

    Raises:
        RefusedError: the object is not a function, or its parameters have no JSON schema.
    """
    where, entry_point = f"{field}.entryPoint", wanted.entry_point
    options = dict(wanted.options or {})
    function = imported(entry_point, field=where)
    if not inspect.isfunction(function):
        message = f"It is of type {type(function).__name__}, not a function."
        refuse(where, entry_point, message, "Name a function.")
    what = "The function's parameters cannot be described to the policy"
    remedy = "Give each parameter a name and a type that JSON has, and each option a parameter."
    with refusing_failures(where, entry_point, what, remedy):
        arguments = _arguments(function, options)
        schema = arguments.model_json_schema()
    schema.pop("title", None)
    name = function.__name__
    return OwnTool(
        tool=Tool(name=name, description=inspect.getdoc(function) or "", parameters=schema),
        arguments=arguments,
        code=UserCallable(
            name=f"tool {name} ({entry_point})",
            call=functools.partial(function, **options),
            seconds=wanted.timeout_seconds,
            threads=threads,
        ),
    )


def _arguments(function: Callable[..., Any], options: Mapping[str, Any]) -> type[BaseModel]:
    """A model of the parameters that are not options; raises TypeError for unusable parameters."""
    parameters = inspect.signature(function).parameters
    unknown = sorted(options.keys() - parameters.keys())
    if unknown:
        raise TypeError(f"the function has no parameter for option {unknown[0]}")
    types = typing.get_type_hints(function)
    fields: dict[str, Any] = {}
    for parameter in parameters.values():
        if parameter.kind not in PLAIN:
            raise TypeError(f"{parameter} cannot be named")
        if parameter.name in options:
            continue
        if parameter.name not in types:
            raise TypeError(f"{parameter.name} has no type")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (types[parameter.name], default)
    model: type[BaseModel] = create_model(
        function.__name__, __config__=ConfigDict(extra="forbid"), **fields
    )
    return model


def _unfit(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'arguments'}: {first['msg']}"
