"""Options that every command has, before or after its name, and what they lead to."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from rl_console.errors import UsageError
from rl_console.names import require_name
from rl_console.output import Output
from rl_console.tools import Tools

if TYPE_CHECKING:
    from rl_console.cluster.kube import Cluster

Command = TypeVar("Command", bound=Callable[..., None])
REQUEST_SECONDS = 20.0
MOST = 5_000_000_000
"""Of a number of an option: above Unix times, and below waits that overflow the system's clock."""
PANEL = "Cluster and output"
Kubeconfig = Annotated[
    Path | None, typer.Option(help="Kubeconfig file. Default: $KUBECONFIG or ~/.kube/config.")
]
Context = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig. Default: the current.")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace. Default: the context's.")
]
RequestTimeout = Annotated[
    float | None,
    typer.Option(
        min=1,
        help="Seconds to connect, and between two parts of an answer. "
        f"Default: {REQUEST_SECONDS:.0f}.",
    ),
]
Form = Annotated[
    Output | None, typer.Option("--output", "-o", help="Form of the output. Default: table.")
]
OperatorNamespace = Annotated[
    str, typer.Option(help="Namespace of the operator, which answers for data of runs.")
]
OF_CLUSTER: dict[str, Any] = {
    "kubeconfig": Kubeconfig,
    "kube_context": Context,
    "namespace": Namespace,
    "request_timeout": RequestTimeout,
}
OF_OUTPUT: dict[str, Any] = {"output": Form}


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Cluster, namespace and form of the output of one command."""

    tools: Tools = field(default_factory=Tools)
    namespace: str = ""
    """Empty: the context's."""
    output: Output = Output.TABLE
    request_seconds: float = REQUEST_SECONDS

    def cluster(self) -> Cluster:
        """Connect to the cluster, without a request; raises UsageError."""
        from rl_console.cluster.kube import Cluster  # half a second, which `--help` must not take

        cluster = Cluster.connect(
            self.tools.kubeconfig,
            context=self.tools.context,
            request_seconds=self.request_seconds,
        )
        if self.namespace:
            cluster.default_namespace = require_name("namespace", self.namespace)
        return cluster

    def changed(
        self,
        *,
        kubeconfig: Path | None = None,
        kube_context: str | None = None,
        namespace: str | None = None,
        request_timeout: float | None = None,
        output: Output | None = None,
    ) -> Invocation:
        """The same with the options that are set, which win over earlier ones."""
        tools = replace(
            self.tools,
            # An empty path is the folder `.` in Python, and no file for kubectl.
            kubeconfig=self.tools.kubeconfig if kubeconfig in (None, Path()) else kubeconfig,
            context=kube_context or self.tools.context,
        )
        return replace(
            self,
            tools=tools,
            namespace=namespace or self.namespace,
            request_seconds=request_timeout or self.request_seconds,
            output=output or self.output,
        )


def require_finite(options: Mapping[str, Any]) -> None:
    """Raise UsageError for nan, inf and beyond MOST: a wait of so many seconds would not end."""
    for name, value in options.items():
        if isinstance(value, float) and not (math.isfinite(value) and abs(value) <= MOST):
            raise UsageError(
                f"--{name.replace('_', '-')} is {value}",
                remedy=f"Give a number up to {MOST}, e.g. 60",
            )


def add(
    app: typer.Typer,
    function: Command,
    *,
    name: str | None = None,
    examples: Sequence[str] = (),
    cluster: bool = True,
    output: bool = False,
) -> Command:
    """Add a command to the command line; returns the function as it is.

    Args:
        app: of the command line.
        function: the command. Its first parameter is the Invocation; the others are its own
            options, as typer reads them. Its docstring is the help.
        name: of the command; by default the function's.
        examples: command lines shown in its help, without ``kubectl rl``.
        cluster: the command takes the options that name cluster and namespace.
        output: the command takes ``-o``.
    """
    shared = {**(OF_CLUSTER if cluster else {}), **(OF_OUTPUT if output else {})}

    def command(context: typer.Context, **options: Any) -> None:
        require_finite(options)
        chosen = {option: options.pop(option) for option in shared}
        base: Invocation = context.obj
        function(base.changed(**chosen), **options)

    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    parameters = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(
            each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for each in own
        ),
        *(
            inspect.Parameter(
                each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
            for each, annotation in shared.items()
        ),
    ]
    # Typer reads a function's parameters from here (PEP 362); mypy knows no such attribute.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = function.__doc__
    shown = "\n".join(f"  kubectl rl {line}" for line in examples)
    app.command(
        name or function.__name__.replace("_", "-"),
        epilog=f"\b\nExamples:\n{shown}" if examples else None,
    )(command)
    return function
