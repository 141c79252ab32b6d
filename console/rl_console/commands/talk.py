"""``chat`` and ``replay``: what the policy says now."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.invocation import Invocation, OperatorNamespace, add
from rl_console.tools import OPERATOR_NAMESPACE

Temperature = Annotated[
    float | None,
    typer.Option(min=0, max=10, help="0: the most probable tokens. Default: the job's."),
]
Pod = Annotated[str, typer.Option(help="Ask this sampler pod. Default: the first ready one.")]


def chat(
    invocation: Invocation,
    job: str,
    *,
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--message", "-m", help="Send this message and exit after the answer; may be repeated."
        ),
    ] = None,
    system: Annotated[str, typer.Option(help="System message before the first message.")] = "",
    temperature: Temperature = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of a response. Default: the job's.")
    ] = None,
    pod: Pod = "",
) -> None:
    """Talk to the policy that a job serves now.

    It may call the job's tools. Without --message each line of standard input is a message. Each
    answer names the policy version that gave it. Nothing is stored or trained. Needs the right to
    create pods/portforward.
    """
    from rl_console.actions.talking.chatting import ChatOptions, chat_with

    options = ChatOptions(system=system, temperature=temperature, max_tokens=max_tokens, pod=pod)
    chat_with(invocation, job, options, message or [])


def replay(
    invocation: Invocation,
    job: str,
    trajectory: Annotated[str, typer.Argument(help="A stored one, e.g. train.00000012.1.0.")],
    *,
    step: Annotated[
        int | None, typer.Option(min=1, help="Training step that trained it, if you know it.")
    ] = None,
    temperature: Temperature = None,
    pod: Pod = "",
    operator_namespace: OperatorNamespace = OPERATOR_NAMESPACE,
) -> None:
    """Sample a stored prompt again, by the present policy.

    Prints both answers with their versions and rewards: the job's scorers judge the new one, too,
    which is not stored or trained. Needs the right to create pods/portforward.
    """
    from rl_console.actions.talking.replaying import replay_trajectory

    replay_trajectory(
        invocation,
        job,
        trajectory,
        step=step,
        temperature=temperature,
        pod=pod,
        operator_namespace=operator_namespace,
    )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(
        app,
        chat,
        output=True,
        examples=["chat gsm8k", 'chat gsm8k -m "What is 6 times 7?" --temperature 0'],
    )
    add(app, replay, output=True, examples=["replay gsm8k train.00000012.1.0 --temperature 0"])
