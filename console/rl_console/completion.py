"""What kubectl completes after `kubectl rl`: commands, options, names of jobs, parts.

kubectl runs `kubectl_complete-rl` with the words so far, and reads a candidate from each line; the
last line is a colon and a number: 4 to complete nothing else, 0 to complete files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer.main

from rl_console.app import build
from rl_console.output import Output
from rl_contracts.errors import RLError

NOTHING_ELSE, FILES = 4, 0
SECONDS = 3.0
"""A key press waits no longer for the API server."""
PARTS = ("trainer", "agent", "engine", "code", "sandbox", "stage")
OUTPUT = ("-o", "--output")
FILE_OPTIONS = ("-f", "--filename", "--kubeconfig", "--out", "--config", "--save")


def candidates(words: Sequence[str]) -> tuple[list[str], int]:
    """Completions of the last word, and what kubectl may complete besides.

    Args:
        words: after `kubectl rl`; the last one is incomplete, and may be empty.
    """
    group: Any = typer.main.get_command(build())
    *before, last = list(words) or [""]
    previous = before[-1] if before else ""
    if previous in FILE_OPTIONS:
        return [], FILES
    if previous in OUTPUT:
        return _fitting(Output, last), NOTHING_ELSE
    name = next((word for word in before if word in group.commands), "")
    command = group.commands.get(name, group)
    if last.startswith("-"):
        options = [option for each in command.params for option in each.opts]
        return _fitting((each for each in options if each.startswith("--")), last), NOTHING_ELSE
    if not name:
        return _fitting(group.commands, last), NOTHING_ELSE
    return _arguments(command, before[before.index(name) + 1 :], before, last)


def _arguments(
    command: Any, given: Sequence[str], before: Sequence[str], last: str
) -> tuple[list[str], int]:
    names = [each.name for each in command.params if each.param_type_name == "argument"]
    place = len([word for word in given if not word.startswith("-")])
    wanted = names[place] if place < len(names) else ""
    if wanted in ("job", "first", "second"):
        return _fitting(_jobs(before), last), FILES if wanted != "job" else NOTHING_ELSE
    if wanted == "part":
        return _fitting(PARTS, last), NOTHING_ELSE
    return [], FILES if wanted == "file" else NOTHING_ELSE


def _jobs(words: Sequence[str]) -> list[str]:
    """Names of the jobs of the namespace; none if the cluster does not answer at once."""
    from rl_console.invocation import Invocation
    from rl_console.tools import Tools

    def after(*options: str) -> str:
        values = [words[index + 1] for index, word in enumerate(words[:-1]) if word in options]
        return values[-1] if values else ""

    tools = Tools(kubeconfig=None, context=after("--context") or None)
    invocation = Invocation(
        tools=tools, namespace=after("-n", "--namespace"), request_seconds=SECONDS
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
