"""Finds what an entry point names, and refuses what has not the wanted shape."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from rl_contracts.errors import Refusal, RefusedError

REASON = "EntryPointUnusable"
SHOWN_CHARACTERS = 300


def load(
    entry_point: str, *, field: str, options: Mapping[str, Any], positional: int
) -> Callable[..., Any]:
    """The callable that an entry point names, with its options; a class is made an object first.

    Args:
        entry_point: ``module:attribute``.
        field: where the manifest names it.
        options: keyword arguments of the class, or else of each call.
        positional: how many arguments each call has beside them.

    Raises:
        RefusedError: it cannot be imported, or cannot be called like that.
    """
    found = imported(entry_point, field=field)
    if not callable(found):
        refuse(field, entry_point, f"It is a {type(found).__name__}.", "Name a function or class.")
    if inspect.isclass(found):
        _check_call(found, 0, options, entry_point, field)
        with _told(field, entry_point, "Making one failed", "Mend it."):
            made = found(**options)
        if not callable(made):
            refuse(field, entry_point, "Its objects cannot be called.", "Give it __call__.")
        _check_call(made, positional, {}, entry_point, field)
        return made
    _check_call(found, positional, options, entry_point, field)
    return functools.partial(found, **options)


def imported(entry_point: str, *, field: str) -> Any:
    """What an entry point names, whatever it is; raises RefusedError."""
    name, _, attribute = entry_point.partition(":")
    remedy = (
        "Put the module into the ConfigMap of spec.code, or on the PYTHONPATH of "
        "spec.samplers[].template.image, and mend it."
    )
    with _told(field, entry_point, "It cannot be imported", remedy):
        module = importlib.import_module(name)
    if not hasattr(module, attribute):
        names = ", ".join(sorted(var for var in vars(module) if not var.startswith("_")))
        refuse(field, entry_point, f"{name} has no {attribute}.", f"It has: {names[:200]}.")
    return getattr(module, attribute)


def is_async(found: Callable[..., Any]) -> bool:
    """Whether a call of it gives a coroutine."""
    return inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(
        getattr(found, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )


def refuse(field: str, value: str, message: str, remedy: str) -> NoReturn:
    """Raise the RefusedError of user code that cannot be used."""
    raise RefusedError(
        Refusal(field=field, value=value[:200], reason=REASON, message=message, remedy=remedy)
    )


def words(error: BaseException) -> str:
    """An exception in one short line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


@contextmanager
def _told(field: str, value: str, what: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code raises what it likes
        refuse(field, value, f"{what}: {words(error)}.", remedy)


def _check_call(
    found: Callable[..., Any],
    positional: int,
    options: Mapping[str, Any],
    entry_point: str,
    field: str,
) -> None:
    called = f"{positional} arguments" if positional != 1 else "one argument"
    with_options = f" and the options {', '.join(sorted(options))}" if options else ""
    try:
        inspect.signature(found).bind(*[None] * positional, **options)
    except (TypeError, ValueError) as error:
        refuse(
            field,
            entry_point,
            f"It cannot be called with {called}{with_options}: {error}.",
            "Make its parameters fit.",
        )
