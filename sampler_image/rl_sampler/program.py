"""Program of the sampler image: ``stage`` in the init container, ``serve`` beside the engine."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Mapping

from rl_contracts.env import EnvironmentVariableError
from rl_contracts.errors import RefusedError, RLError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_sampler.engine.assignment import Assignment, AssignmentError, load_assignment
from rl_sampler.prepare import prepare
from rl_sampler.serve import serve

logger = logging.getLogger("rl_sampler")

STAGE_PATIENCE_SECONDS = 120.0
SERVE_PATIENCE_SECONDS = 5.0
STORE_CONNECTIONS = 4
"""With the driver's monitor five, so that one server holds ten thousand agents. Fewer could let a
renewal wait behind large rollouts. An idle agent keeps one or two."""
FAILED, REFUSED = 1, 2


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Run ``stage`` or ``serve``.

    Returns:
        0 on success; 1 when a retry may succeed; 2 when the job or the cluster must be changed
        first.
    """
    parser = argparse.ArgumentParser(prog="rl_sampler", description=__doc__)
    parser.add_argument("program", choices=("stage", "serve"))
    program = parser.parse_args(arguments).program
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        assignment = load_assignment(environ)
        settings = StoreSettings.from_folder(assignment.env.stores_folder)
        _run(program, assignment, settings)
    except (AssignmentError, EnvironmentVariableError, RefusedError) as error:
        logger.error("%s", error)
        return REFUSED
    except RLError as error:
        logger.error("%s", error)
        return FAILED
    return 0


def _run(program: str, assignment: Assignment, settings: StoreSettings) -> None:
    staging = program == "stage"
    patience = STAGE_PATIENCE_SECONDS if staging else SERVE_PATIENCE_SECONDS
    stores = Stores.connect(settings, patience_seconds=patience, connections=STORE_CONNECTIONS)
    try:
        if staging:
            prepare(assignment, stores=stores)  # SIGTERM ends it: incomplete work is discarded
        else:
            asyncio.run(serve(assignment, stores=stores))
    finally:
        stores.close()
