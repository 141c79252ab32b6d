"""``python -m rl_sampler.models``: ``hand-out``, ``promote``, ``stage`` and ``endpoint``.

The pods are made by ``kubectl rl`` with the environment of a sampler pod. How a program ended is
left in the container's termination message, which needs no right to read logs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from rl_contracts import handout
from rl_contracts.env import EnvironmentVariableError, SamplerEnv
from rl_contracts.errors import RefusedError, RLError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import SamplerTemplate
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.artifacts import Origin
from rl_sampler import TERMINATED
from rl_sampler.engine.assignment import Assignment, AssignmentError
from rl_sampler.engine.client import open_session
from rl_sampler.engine.key import make_key, read_key
from rl_sampler.engine.listening import listening
from rl_sampler.models.endpoint import CONNECTIONS, ServedModel
from rl_sampler.models.files import HandedFiles
from rl_sampler.models.promote import promote
from rl_sampler.models.stage import Wanted, stage_model

logger = logging.getLogger("rl_sampler.models")

PATIENCE_SECONDS = 120.0
FAILED, REFUSED = 1, 2
MESSAGE_FILE = Path("/dev/termination-log")
MESSAGE_CHARACTERS = 2000


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Run a program.

    Returns:
        0 on success; 1 when a retry may succeed; 2 when something must be changed first.
    """
    parser = argparse.ArgumentParser(prog="rl_sampler.models", description=__doc__)
    parser.add_argument("program", choices=("hand-out", "promote", "stage", "endpoint"))
    parser.add_argument("--version", type=int, default=0, help="a published version")
    parser.add_argument("--uri", default="", help="folder of an exported model")
    parser.add_argument(
        "--merged", action="store_true", help="hand-out: merge an adapter into its model"
    )
    parser.add_argument("--name", default="", help="of the promoted or served model")
    parser.add_argument("--key-file", type=Path, help="API key that the endpoint asks for")
    given = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # The kernel ignores signals without a handler for the first process of a container.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    try:
        assignment = _assignment(environ)
        if given.program == "endpoint":
            asyncio.run(_serve(assignment, name=given.name, key=_api_key(given.key_file)))
            return 0
        settings = StoreSettings.from_folder(assignment.env.stores_folder)
        stores = Stores.connect(settings, patience_seconds=PATIENCE_SECONDS)
        with contextlib.closing(stores):
            _leave(_run(given, assignment, stores))
    except (AssignmentError, EnvironmentVariableError, RefusedError) as error:
        return _failed(error, REFUSED)
    except RLError as error:
        return _failed(error, FAILED)
    return 0


def _assignment(environ: Mapping[str, str]) -> Assignment:
    """As of a sampler pod, but of no group: a supervised job has none."""
    env = SamplerEnv.parse(environ)
    try:
        spec = RLJobSpec.model_validate_json(env.spec_file.read_bytes())
    except (OSError, ValidationError) as error:
        raise AssignmentError(f"cannot use spec file {env.spec_file}: {error}") from error
    return Assignment(env=env, spec=spec, template=SamplerTemplate())


def _run(given: argparse.Namespace, assignment: Assignment, stores: Stores) -> str:
    # What is promoted or served is a whole model.
    merged = given.merged or given.program != "hand-out"
    wanted = Wanted(version=given.version, uri=given.uri, merged=merged)
    if given.program == "hand-out":
        asyncio.run(_hand_out(assignment, stores, wanted))
        return "nobody asks any more"
    folder = stage_model(assignment, stores, wanted)
    if given.program == "stage":
        assert assignment.env.engine_key_folder is not None
        make_key(assignment.env.engine_key_folder)
        return f"staged {folder}"
    origin = Origin(kind="model", run=assignment.run, epoch=0, step=0, version=wanted.version)
    return promote(stores.objects, folder, name=given.name, origin=origin)


async def _hand_out(assignment: Assignment, stores: Stores, wanted: Wanted) -> None:
    files = HandedFiles()
    async with listening(files.application(), port=handout.PORT, host="127.0.0.1", cancels=True):
        await files.stage(lambda: stage_model(assignment, stores, wanted))
        await files.until_quiet()


def _api_key(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        key = file.read_text().strip()
    except OSError as error:
        raise AssignmentError(f"{file} cannot be read: {error.strerror}") from error
    if not key:
        raise AssignmentError(f"{file} is empty: put the API key into the Secret")
    return key


async def _serve(assignment: Assignment, *, name: str, key: str) -> None:
    """Serve the engine's model until the pod ends."""
    port = assignment.env.listen_port
    async with open_session(read_key(assignment.env.engine_key_folder)) as session:
        served = ServedModel(assignment.engine(session), name=name, key=key)
        application = served.application()
        async with (
            served.watching(),
            listening(application, port=port, connections=CONNECTIONS, cancels=True),
        ):
            await asyncio.Event().wait()


def _failed(error: Exception, code: int) -> int:
    logger.error("%s", error)
    _leave(str(error))
    return code


def _leave(message: str) -> None:
    """Leave a message for who made the pod; outside of a pod there is no such file."""
    with contextlib.suppress(OSError):
        MESSAGE_FILE.write_text(message[:MESSAGE_CHARACTERS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
