"""Imports the object of an entry point, and refuses objects that cannot be called as needed."""

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
    """The function or object of an entry point, with its options.

    A class is instantiated with the options.

    Args:
        entry_point: ``module:attribute``.
        field: path of the entry point in the manifest.
        options: keyword arguments of the class, or else of each call.
        positional: number of positional arguments of each call.

    Raises:
        RefusedError: the object cannot be imported, or cannot be called with these arguments.
    """
    what, remedy = "It cannot be loaded", "Fix what the module does when it is imported."
    with refusing_failures(field, entry_point, what, remedy):
        return _loaded(entry_point, field, options, positional)


def _loaded(
    entry_point: str, field: str, options: Mapping[str, Any], positional: int
) -> Callable[..., Any]:
    target = imported(entry_point, field=field)
    if not callable(target):
        message = f"It is of type {type(target).__name__}, which cannot be called."
        refuse(field, entry_point, message, "Name a function or class.")
    if inspect.isclass(target):
        _check_call(target, 0, options, entry_point, field)
        remedy = "Fix the class's __init__."
        with refusing_failures(field, entry_point, "The class cannot be instantiated", remedy):
            instance = target(**options)
        if not callable(instance):
            message = "Instances of the class cannot be called."
            refuse(field, entry_point, message, "Add a __call__ method to the class.")
        _check_call(instance, positional, {}, entry_point, field)
        return instance
    _check_call(target, positional, options, entry_point, field)
    return functools.partial(target, **options)


def imported(entry_point: str, *, field: str) -> Any:
    """The object of an entry point, of any type; raises RefusedError if it cannot be imported."""
    name, _, attribute = entry_point.partition(":")
    remedy = (
        "Put the module into the ConfigMap of spec.code, or on the PYTHONPATH of spec.code.image, "
        "and fix its import errors."
    )
    with refusing_failures(field, entry_point, "The module cannot be imported", remedy):
        module = importlib.import_module(name)
        known = hasattr(module, attribute)
    if not known:
        names = ", ".join(sorted(var for var in vars(module) if not var.startswith("_")))
        remedy = f"Name an attribute of the module: {names[:200]}."
        refuse(field, entry_point, f"Module {name} has no {attribute}.", remedy)
    return getattr(module, attribute)


def is_async(target: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine."""
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )


def refuse(field: str, value: str, message: str, remedy: str) -> NoReturn:
    """Raise RefusedError for user code that cannot be used."""
    raise RefusedError(
        Refusal(field=field, value=value[:200], reason=REASON, message=message, remedy=remedy)
    )


def short_error(error: BaseException) -> str:
    """Type and message of an exception in a line of at most SHOWN_CHARACTERS."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


@contextmanager
def refusing_failures(field: str, value: str, what: str, remedy: str) -> Iterator[None]:
    """Refuse user code with whatever it raises while it is loaded, and with what was refused."""
    try:
        yield
    except RefusedError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        refuse(field, value, f"{what}: {short_error(error)}.", remedy)


def _check_call(
    target: Callable[..., Any],
    positional: int,
    options: Mapping[str, Any],
    entry_point: str,
    field: str,
) -> None:
    arguments = f"{positional} arguments" if positional != 1 else "one argument"
    with_options = f" and the options {', '.join(sorted(options))}" if options else ""
    try:
        inspect.signature(target).bind(*[None] * positional, **options)
    except (TypeError, ValueError) as error:
        refuse(
            field,
            entry_point,
            f"It cannot be called with {arguments}{with_options}: {error}.",
            "Change its parameters, or the options in the manifest.",
        )
