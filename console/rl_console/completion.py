"""What kubectl completes after `kubectl rl`: commands, options, names of jobs, parts.

kubectl runs `kubectl_complete-rl` with the words so far, and reads a candidate from each line; the
last line is a colon and a number: 4 to complete nothing else, 0 to complete files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer.main

from rl_console.app import build
from rl_console.output import Output
from rl_contracts.errors import RLError

NOTHING_ELSE, FILES = 4, 0
SECONDS = 3.0
"""A key press waits no longer for the API server."""
PARTS = ("trainer", "agent", "engine", "code", "sandbox", "stage")
FILE_OPTIONS = ("-f", "--filename", "--kubeconfig", "--out", "--config", "--save")


@dataclass(slots=True)
class _Line:
    """What the words so far mean."""

    group: Any
    command: Any
    arguments: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    """By the name of the option, e.g. ``kube_context``."""
    awaited: Any = None
    """Option whose value is the next word."""

    def take(self, word: str) -> None:
        """Read one more word."""
        if self.awaited is not None:
            self.values[self.awaited.name], self.awaited = word, None
        elif word.startswith("-"):
            name, _, value = word.partition("=")
            option = self.option(name)
            if option is None or option.is_flag:
                return
            if value:
                self.values[option.name] = value
            else:
                self.awaited = option
        elif self.command is self.group and word in self.group.commands:
            self.command = self.group.commands[word]
        else:
            self.arguments.append(word)

    def option(self, name: str) -> Any:
        """The option of this name, of the command before those of every command."""
        options = [*self.command.params, *self.group.params]
        return next((each for each in options if name in each.opts), None)


def candidates(words: Sequence[str]) -> tuple[list[str], int]:
    """Completions of the last word, and what kubectl may complete besides.

    Args:
        words: after `kubectl rl`; the last one is incomplete, and may be empty.
    """
    group: Any = typer.main.get_command(build())
    *before, last = list(words) or [""]
    line = _Line(group, group)
    for word in before:
        line.take(word)
    if line.awaited is not None:
        if any(name in FILE_OPTIONS for name in line.awaited.opts):
            return [], FILES
        return _fitting(Output if line.awaited.name == "output" else (), last), NOTHING_ELSE
    if last.startswith("-"):
        options = [option for each in line.command.params for option in each.opts]
        return _fitting((each for each in options if each.startswith("--")), last), NOTHING_ELSE
    if line.command is group:
        return _fitting(group.commands, last), NOTHING_ELSE
    return _arguments(line, last)


def _arguments(line: _Line, last: str) -> tuple[list[str], int]:
    names = [each.name for each in line.command.params if each.param_type_name == "argument"]
    place = len(line.arguments)
    wanted = names[place] if place < len(names) else ""
    if wanted in ("job", "first", "second"):
        return _fitting(_jobs(line.values), last), FILES if wanted != "job" else NOTHING_ELSE
    if wanted == "part":
        return _fitting(PARTS, last), NOTHING_ELSE
    return [], FILES if wanted == "file" else NOTHING_ELSE


def _jobs(options: Mapping[str, str]) -> list[str]:
    """Names of the jobs of the namespace; none if the cluster does not answer at once."""
    from rl_console.invocation import Invocation
    from rl_console.tools import Tools

    kubeconfig = options.get("kubeconfig")
    tools = Tools(
        kubeconfig=Path(kubeconfig) if kubeconfig else None,
        context=options.get("kube_context") or None,
    )
    invocation = Invocation(
        tools=tools, namespace=options.get("namespace", ""), request_seconds=SECONDS
    )
    try:
        cluster = invocation.cluster()
        jobs = cluster.raw_jobs(cluster.default_namespace)
    except RLError:
        return []
    return [each["metadata"]["name"] for each in jobs]


def _fitting(words: Iterable[str], beginning: str) -> list[str]:
    return [str(word) for word in words if word.startswith(beginning)]


def main() -> None:
    """Print the completions of this process's arguments."""
    suggestions, directive = candidates(sys.argv[1:])
    print("".join(f"{each}\n" for each in suggestions), end="")
    print(f":{directive}")


if __name__ == "__main__":
    main()
