"""The reference page of all commands, made from the command line itself.

``python -m rl_console.reference FILE`` writes it; with ``--check`` it compares it with the file.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer.main

from rl_console.app import build
from rl_console.invocation import OF_CLUSTER, OF_OUTPUT

HEADER = """# kubectl rl

<!-- Generated from console/rl_console/commands by `make generate`; do not edit. -->

[Install](../getting-started/install.md#kubectl-rl) it as a kubectl plugin. An error is one line
with its remedy, and [exit codes](exit-codes.md#console) say of which kind it is. A table is
shortened only on a terminal, and only where it holds sentences; in a pipe nothing is cut, and there
are no colours. Text of the cluster is shown as text: control characters are written out.

"""
SHARED = """## Options of all commands
They stand before or after the name of a command; those after it win. Commands that ask no cluster
take none of them, and `-o` is for commands that show something.

"""
SHARED_NAMES = {*OF_CLUSTER, *OF_OUTPUT}
HIDDEN = {"help"}


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(build())
    commands: Mapping[str, Any] = group.commands
    rows = [f"| [`{name}`](#{name}) | {_first(command)} |" for name, command in commands.items()]
    parts = [HEADER, "| command | what it does |\n|---|---|\n", "\n".join(rows), "\n\n"]
    shared = [each for each in group.params if each.name not in HIDDEN]
    parts += [SHARED, _options(shared), "\n"]
    for name, command in commands.items():
        parts.append("\n".join(_command(name, command)) + "\n")
    return "".join(parts).rstrip() + "\n"


def _first(command: Any) -> str:
    return inspect.cleandoc(command.help).partition("\n\n")[0].replace("\n", " ")


def _command(name: str, command: Any) -> Iterator[str]:
    own = [each for each in command.params if each.name not in SHARED_NAMES | HIDDEN]
    arguments = [each for each in own if each.param_type_name == "argument"]
    options = [each for each in own if each.param_type_name == "option"]
    shown = " ".join(_argument(each) for each in arguments)
    yield f"## {name}"
    yield f"`{' '.join(filter(None, ('kubectl rl', name, shown)))}`\n"
    for paragraph in inspect.cleandoc(command.help).split("\n\n"):
        yield paragraph.replace("\n", " ") + "\n"
    if described := [each for each in (*arguments, *options) if each.help]:
        yield _options(described)
    if command.epilog:
        lines = [line.strip() for line in command.epilog.splitlines() if "kubectl" in line]
        yield "```sh\n" + "\n".join(lines) + "\n```\n"


def _argument(argument: Any) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _options(options: list[Any]) -> str:
    rows = [f"| {_names(each)} | {_meaning(each)} |" for each in options]
    return "| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def _names(option: Any) -> str:
    if option.param_type_name == "argument":
        return f"`{option.name.upper()}`"
    names = [*option.opts, *option.secondary_opts]
    return ", ".join(f"`{each}`" for each in sorted(names, key=lambda each: -len(each)))


def _meaning(option: Any) -> str:
    text = (option.help or "").replace("|", "\\|")
    default = option.default
    if option.required and option.param_type_name == "option":
        return f"{text} Required."
    omit_default = "Default" in text or default in (None, "", False, ()) or callable(default)
    return text if omit_default else f"{text} Default: {default}."


def main() -> None:
    """Write the page, or compare it with the file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    arguments = parser.parse_args()
    if not arguments.check:
        arguments.file.write_text(page())
    elif arguments.file.read_text() != page():
        raise SystemExit(f"{arguments.file} differs from the commands: run `make generate`")


if __name__ == "__main__":
    main()
