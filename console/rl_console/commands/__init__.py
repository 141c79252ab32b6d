"""The commands of ``kubectl rl``, a module for each family.

A command module imports nothing slow at its top: `kubectl rl --help` imports all of them.
"""

from __future__ import annotations

from types import ModuleType

from rl_console.commands import (
    change,
    convert,
    dashboard,
    demo,
    doctor,
    follow,
    listing,
    logs,
    manifests,
    models,
    plan,
    report,
    run_data,
    samplers,
    state,
    talk,
    top,
)

MODULES: tuple[ModuleType, ...] = (
    manifests,
    convert,
    listing,
    state,
    follow,
    logs,
    top,
    run_data,
    talk,
    models,
    dashboard,
    change,
    samplers,
    report,
    plan,
    doctor,
    demo,
)
"""In the order of the help."""
