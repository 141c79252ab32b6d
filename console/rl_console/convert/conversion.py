"""Converts options of a framework into a manifest, with a line about each option."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rl_console.convert.given import Given, parse
from rl_console.convert.rules import BUCKET, Draft, Line, Rules
from rl_console.manifests.checks import problems
from rl_console.manifests.structure import shown
from rl_contracts.spec.agent.agents import Sampling
from rl_contracts.spec.resources import API_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The options of a framework."""

    rules: Rules
    name_of: Callable[[str], str] = str
    """The name of an option in the table, from the name that is written."""
    is_option: Callable[[str], bool] = bool
    """Whether a name is an option at all, and not part of the shell around it."""
    finish: Callable[[Draft], None] = lambda draft: None
    """What depends on several options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A manifest, and what became of each option."""

    manifest: Mapping[str, Any]
    lines: Sequence[Line]
    problems: Sequence[str]
    """What is still wrong with the manifest."""


def convert(framework: Framework, text: str, *, name: str = "") -> Converted:
    """Convert options.

    Args:
        framework: where they are from.
        text: a command line, a script, a YAML file or Python code.
        name: of the job; empty: from the options, else ``converted``.
    """
    given = [each for each in parse(text) if framework.is_option(each.name)]
    draft = Draft(
        given={framework.name_of(each.name): each.value for each in given if not each.is_variable}
    )
    for each in given:
        draft.lines.append(_line(framework, draft, each))
    framework.finish(draft)
    _complete(draft)
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "RLJob",
        "metadata": {"name": name or draft.name},
        "spec": {key: draft.spec[key] for key in ORDER if key in draft.spec},
    }
    refusals = [str(problem) for problem in problems(manifest)]
    return Converted(manifest=manifest, lines=draft.lines, problems=refusals)


SECRET = re.compile(r"key|token$|password|secret", re.IGNORECASE)
CREDENTIALS = re.compile(r"//[^/\s]*@")
CONTEXT, TURN = "agent.sampling.maxContextTokens", "agent.sampling.maxTokensPerTurn"
DEFAULT_CONTEXT = Sampling().max_context_tokens
PROMPT_TOKENS = 2048
"""Room for the prompt where the options do not say how long one may be."""
ONE_GPU = {"nvidia.com/gpu": 1}
"""Of the trainer and of each sampler where the options do not say how many."""
ORDER = (
    "model",
    "data",
    "agent",
    "reward",
    "code",
    "algorithm",
    "training",
    "trainer",
    "samplers",
    "storage",
    "lifecycle",
    "scheduling",
)


def _line(framework: Framework, draft: Draft, given: Given) -> Line:
    rule = framework.rules.get(framework.name_of(given.name))
    value = "" if given.value is None else _hidden(given.name, shown(given.value).strip('"'))
    if rule is None:
        note = "the guide does not name it; look for it in `kubectl explain rljob.spec`"
        return Line(option=given.name, value=value, state="unknown", note=note)
    if given.is_variable and rule.fields:
        note = "the script takes it from a variable: put the value into this field"
        return Line(
            option=given.name, value=value, state="by hand", field=rule.fields[0], note=note
        )
    state, field, note = rule.apply(draft, given.value)
    return Line(option=given.name, value=value, state=state, field=field, note=note)


def _hidden(name: str, value: str) -> str:
    """The value without what looks like a secret."""
    if SECRET.search(name):
        return "…"
    return CREDENTIALS.sub("//…@", value)


def _fill(draft: Draft, path: str, value: Any, what_to_do: str) -> None:
    """Set a field that a person has to replace, and say so once: where an option was named."""
    draft.put(path, value)
    named = [place for place, line in enumerate(draft.lines) if line.field == path]
    for place in named:
        note = f"the script takes it from a variable: {what_to_do}"
        draft.lines[place] = replace(draft.lines[place], note=note)
    if not named:
        note = f"the options do not say it: {what_to_do}"
        draft.lines.append(Line(option="", value="", state="by hand", field=path, note=note))


def _complete(draft: Draft) -> None:
    """Fields that every job needs, with values to replace where the options say nothing."""
    for path, value in (
        ("model.uri", f"{BUCKET}/models/model"),
        ("data.train[0].uri", f"{BUCKET}/datasets/train.jsonl"),
        ("training.steps", 100),
    ):
        epochs = path == "training.steps" and draft.get("training.epochs") is not None
        if draft.get(path) is None and not epochs:
            _fill(draft, path, value, f"replace {value}")
    for path in ("trainer.resources", "samplers[0].template.resources"):
        if draft.get(f"{path}.limits") is None:
            _fill(draft, path, {"limits": ONE_GPU}, "1 GPU for each pod; set what the model needs")
    turn = draft.get(TURN) or 0
    if draft.get(CONTEXT) is None and turn >= DEFAULT_CONTEXT:
        room = draft.get("agent.sampling.maxPromptTokens") or PROMPT_TOKENS
        draft.put(CONTEXT, turn + room)
        note = f"{turn} of a turn + {room} for the prompt"
        draft.lines.append(Line(option="", value="", state="mapped", field=CONTEXT, note=note))
    for split in ("train", "validation"):
        for source in draft.spec["data"].get(split, []):
            source.setdefault("name", split)
    draft.spec.setdefault("reward", {}).setdefault("scorers", [{"kind": "Math"}])
    draft.put("samplers[0].name", "main")
