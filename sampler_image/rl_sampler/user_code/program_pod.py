"""``python -m rl_sampler.user_code.program_pod <folder> [--once <folder>]``: prepares a pod.

The init container runs it in the sampler's image. It leaves in a folder that the user's container
mounts: the server of programs as a folder that ``python3`` can start, and the SHA-256 of the run's
key. The key is derived from the Secret of the stores, which the user's container does not mount.

``--once`` is for a pod that serves one episode: it names a folder that the user's container may
write, and gets a token whose digest stands beside the key's, where that container may not write.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from rl_contracts import env
from rl_contracts.env import EnvironmentVariableError, required
from rl_contracts.errors import RefusedError
from rl_contracts.ids import RunId
from rl_contracts.stores.clients.settings import StoreSettings
from rl_sampler.user_code.programs.single_use import TOKEN, TOKEN_DIGEST

logger = logging.getLogger("rl_sampler.programs")

SERVER_FOLDER = "server"
KEY_DIGEST = "key.sha256"
MODULES = (
    "rl_contracts",
    "rl_contracts.env",
    "rl_sampler",
    "rl_sampler.code",
    "rl_sampler.code.wire",
    "rl_sampler.user_code",
    "rl_sampler.user_code.programs",
    "rl_sampler.user_code.programs.connection",
    "rl_sampler.user_code.programs.episode_folders",
    "rl_sampler.user_code.programs.harbor_tests",
    "rl_sampler.user_code.programs.leftovers",
    "rl_sampler.user_code.programs.process",
    "rl_sampler.user_code.programs.server",
    "rl_sampler.user_code.programs.single_use",
)
"""All that the server imports besides the standard library."""
MAIN = """\
import sys
from rl_sampler.user_code.programs.server import main
main(sys.argv[1:])
"""


def purpose(run: RunId) -> str:
    """What the key of a run's programs is derived for."""
    return f"programs/{run}"


def prepare_programs(
    folder: Path, *, run: RunId, settings: StoreSettings, once: Path | None = None
) -> None:
    """Write the server and the key's digest; what an earlier start has left is replaced.

    Args:
        folder: that programs can read.
        run: whose programs these are.
        settings: of its stores, from which its key is derived.
        once: folder for the token of a pod that serves one episode; None: it serves many.
    """
    key = settings.shared_token(purpose(run))
    server = folder / SERVER_FOLDER
    shutil.rmtree(server, ignore_errors=True)
    for module in MODULES:
        _copy(module, server)
    (server / "__main__.py").write_text(MAIN)
    (folder / KEY_DIGEST).write_text(hashlib.sha256(key.encode()).hexdigest())
    if once is not None:
        token = secrets.token_hex()
        (once / TOKEN).write_text(token)
        (folder / TOKEN_DIGEST).write_text(hashlib.sha256(token.encode()).hexdigest())


def _copy(module: str, server: Path) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    place = server.joinpath(*module.split("."))
    if spec.submodule_search_locations is not None:
        place /= "__init__"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(spec.origin, place.with_suffix(".py"))


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Prepare the pod; returns 0, or 2 where the cluster must be changed first."""
    parser = argparse.ArgumentParser(prog="program_pod", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--once", type=Path)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = StoreSettings.from_folder(Path(required(environ, env.STORES_FOLDER)))
        run = RunId(required(environ, env.RUN))
    except (EnvironmentVariableError, RefusedError) as error:
        logger.error("%s", error)
        return 2
    prepare_programs(given.folder, run=run, settings=settings, once=given.once)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
